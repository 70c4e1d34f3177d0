package protocol

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The schemes of addresses.
const (
	SchemeHTTP  = "http"
	SchemeHTTPS = "https"
	SchemePoll  = "poll"
	SchemeGCPS  = "gcps"
	SchemeBash  = "bash"
)

// The casts of a poll address.
const (
	// CastUni sends to the worker that the address names, and to no other.
	CastUni = "uni"
	// CastAny sends to the worker that the address names, else to any of its group.
	CastAny = "any"
)

// The backends of a bash address: who runs the scripts.
const (
	// BashLocal is the server itself.
	BashLocal = "bash"
	// BashDocker is a container of the image that the address names.
	BashDocker = "docker"
)

// Address is where messages go. Group and ID are decoded: they compare byte by byte with the decoded
// segments of GET /poll/{group}/{id}, whatever characters a name holds. The address as the client wrote
// it is what records keep and answers show.
type Address struct {
	// Scheme is one of the Scheme constants.
	Scheme string
	// Cast is CastUni or CastAny for poll, else empty.
	Cast string
	// Group is the group of workers for poll, the project for gcps, the backend for bash (one of the Bash
	// constants), else empty.
	Group string
	// ID is the process id of a worker for poll (may be empty: none named; with CastUni nobody can be
	// reached then), the topic for gcps, the image for BashDocker, else empty.
	ID string
}

// ParseAddress reads an address by the rules of a lenient (WHATWG) URL parser, as the released SDKs make
// and check them: outer blanks, tabs and line ends do not count, dot segments of a path are removed,
// password, port, query and fragment of a poll address mean nothing. At most MaxAddressBytes.
// (docs/protocol.md, Addresses)
func ParseAddress(s string) (Address, error) {
	if len(s) > MaxAddressBytes {
		return Address{}, fmt.Errorf("it is %d bytes long, the limit is %d (MaxAddressBytes)", len(s), MaxAddressBytes)
	}
	if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		return Address{}, errors.New("it must be UTF-8 without NUL characters")
	}
	url := strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
	if strings.ContainsAny(url, "\t\n\r") {
		url = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(url)
	}
	scheme, rest, ok := cutScheme(url)
	if !ok {
		return Address{}, fmt.Errorf("%s has no scheme; write poll://any@group, http://..., https://..., gcps://project/topic or bash://", quote(s))
	}
	var a Address
	var err error
	switch scheme {
	case SchemeHTTP, SchemeHTTPS:
		a, err = Address{Scheme: scheme}, checkWebURL(rest)
	case SchemePoll:
		a, err = parsePoll(rest)
	case SchemeGCPS:
		a, err = parseGCPS(rest)
	case SchemeBash:
		a, err = parseBash(rest)
	default:
		err = fmt.Errorf("the scheme %s is none of poll, http, https, gcps, bash", quote(scheme))
	}
	if err != nil {
		return Address{}, fmt.Errorf("%s: %w", quote(s), err)
	}
	return a, nil
}

// cutScheme splits url at its first colon if what stands before is a scheme; that comes out in lower case.
func cutScheme(url string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(url, ":")
	if !ok || scheme == "" {
		return "", "", false
	}
	for i := 0; i < len(scheme); i++ {
		c := scheme[i] | 0x20
		letter := 'a' <= c && c <= 'z'
		other := '0' <= scheme[i] && scheme[i] <= '9' || strings.IndexByte("+-.", scheme[i]) >= 0
		if !letter && (i == 0 || !other) {
			return "", "", false
		}
	}
	return strings.ToLower(scheme), rest, true
}

func parsePoll(rest string) (Address, error) {
	auth, path, ok := cutAuthority(rest)
	if !ok {
		return Address{}, errors.New("it must begin with poll://any@ or poll://uni@")
	}
	if auth.user != CastUni && auth.user != CastAny {
		return Address{}, errors.New("the part before @ must be any or uni, as in poll://any@group/worker")
	}
	if err := checkOpaqueHost(auth, "group"); err != nil {
		return Address{}, err
	}
	return Address{Scheme: SchemePoll, Cast: auth.user, Group: unescape(auth.host), ID: unescape(path)}, nil
}

func parseGCPS(rest string) (Address, error) {
	auth, path, ok := cutAuthority(rest)
	if !ok || path == "" {
		return Address{}, errors.New("it must name a project and a topic, as in gcps://project/topic")
	}
	if err := checkOpaqueHost(auth, "project"); err != nil {
		return Address{}, err
	}
	return Address{Scheme: SchemeGCPS, Group: unescape(auth.host), ID: unescape(path)}, nil
}

// parseBash refuses what nobody can ever run. (docs/transports.md)
func parseBash(rest string) (Address, error) {
	auth, path, ok := cutAuthority(rest)
	if !ok {
		path, _, _ = strings.Cut(rest, "?")
		path, _, _ = strings.Cut(path, "#")
	}
	backend, image := unescape(auth.host), strings.TrimLeft(unescape(path), "/")
	switch backend {
	case "", BashLocal:
		if image != "" {
			return Address{}, fmt.Errorf("%s follows, and nothing may; write bash://, or bash://docker/image for a container", quote(image))
		}
		return Address{Scheme: SchemeBash, Group: BashLocal}, nil
	case BashDocker:
		if image == "" {
			return Address{}, errors.New("the image is missing; write bash://docker/image")
		}
		if image[0] == '-' || strings.ContainsFunc(image, isNotOfImage) {
			return Address{}, fmt.Errorf("%s is no name of an image", quote(image))
		}
		return Address{Scheme: SchemeBash, Group: BashDocker, ID: image}, nil
	}
	return Address{}, fmt.Errorf("the backend %s is none of bash and docker; write bash:// or bash://docker/image", quote(backend))
}

// isNotOfImage reports characters that no name of an image has. One that begins with a dash would be an option.
func isNotOfImage(r rune) bool {
	letter := 'a' <= r|0x20 && r|0x20 <= 'z' && r < utf8.RuneSelf
	return !letter && !('0' <= r && r <= '9') && !strings.ContainsRune("._-/:@+[]", r)
}

// authority is the part of a URL between // and the path.
type authority struct{ user, host, port string }

// cutAuthority splits what follows the colon of a URL into its authority and its path, the latter without
// the first slash and without dot segments. Not ok if there is no authority.
func cutAuthority(rest string) (authority, string, bool) {
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return authority{}, "", false
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	hostPart, path, _ := strings.Cut(rest, "/")
	return splitAuthority(hostPart), removeDots(path), true
}

func splitAuthority(s string) authority {
	var a authority
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		a.user, _, _ = strings.Cut(s[:i], ":")
		if strings.IndexByte(s[:i], '@') >= 0 {
			a.user = s[:i] // an @ inside is part of the name, which makes it no cast
		}
		s = s[i+1:]
	}
	a.host = s
	closing := strings.LastIndexByte(s, ']')
	if i := strings.IndexByte(s[closing+1:], ':'); i >= 0 {
		a.host, a.port = s[:closing+1+i], s[closing+1+i+1:]
	}
	return a
}

// removeDots resolves the segments . and .. of a path that has lost its first slash.
func removeDots(path string) string {
	if strings.IndexByte(path, '.') < 0 && !strings.Contains(strings.ToLower(path), "%2e") {
		return path
	}
	var out []string
	segments := strings.Split(path, "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch strings.ReplaceAll(strings.ToLower(s), "%2e", ".") {
		case ".":
			if last {
				out = append(out, "")
			}
		case "..":
			if len(out) > 0 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	return strings.Join(out, "/")
}

// checkOpaqueHost judges the host of a scheme that is not a web scheme: a name of almost any characters.
func checkOpaqueHost(a authority, what string) error {
	switch {
	case a.host == "":
		return fmt.Errorf("the %s is missing", what)
	case a.host[0] == '[':
		if !isIPv6(a.host) {
			return fmt.Errorf("the %s %s is no IPv6 address", what, quote(a.host))
		}
	case strings.ContainsAny(a.host, " <>[]\\^|"):
		return fmt.Errorf(`the %s %s holds one of the characters blank < > [ ] \ ^ |; percent-encode it`, what, quote(a.host))
	}
	return checkPort(a.port)
}

func checkPort(port string) error {
	if port == "" {
		return nil
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("the port %s is not a number up to 65535", quote(port))
	}
	return nil
}

func isIPv6(host string) bool {
	inner, ok := strings.CutSuffix(strings.TrimPrefix(host, "["), "]")
	if !ok || strings.IndexByte(inner, '%') >= 0 {
		return false
	}
	ip, err := netip.ParseAddr(inner)
	return err == nil && ip.Is6()
}

// checkWebURL judges what follows the colon of an http or https URL, where any number of slashes, also
// backward ones, may precede the host.
func checkWebURL(rest string) error {
	rest = strings.TrimLeft(rest, `/\`)
	if i := strings.IndexAny(rest, `/\?#`); i >= 0 {
		rest = rest[:i]
	}
	a := splitAuthority(rest)
	host := unescape(a.host)
	switch {
	case host == "":
		return errors.New("the host is missing")
	case host[0] == '[':
		if !isIPv6(host) {
			return fmt.Errorf("the host %s is no IPv6 address", quote(host))
		}
	case strings.ContainsFunc(host, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune(`#/:<>?@[\]^|%`, r)
	}):
		return fmt.Errorf("the host %s holds a character that no host name may", quote(host))
	case endsInNumber(host):
		if _, ok := ParseIPv4(host); !ok {
			return fmt.Errorf("the host %s is no IPv4 address", quote(host))
		}
	}
	return checkPort(a.port)
}

// endsInNumber reports whether a host must be an IPv4 address because its last label is a number.
func endsInNumber(host string) bool {
	host = strings.TrimSuffix(host, ".")
	label := host[strings.LastIndexByte(host, '.')+1:]
	if label == "" {
		return false
	}
	if strings.Trim(label, "0123456789") == "" {
		return true
	}
	_, ok := ipv4Part(label)
	return ok
}

// ParseIPv4 reads an IPv4 address as hosts of URLs may spell it: one to four numbers, decimal, octal or hexadecimal, of
// which the last fills the bytes that the others leave, with a dot behind them or none. What judges an address must know
// all spellings that something on its way may take for it.
func ParseIPv4(host string) (netip.Addr, bool) {
	parts := strings.Split(strings.TrimSuffix(host, "."), ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var sum uint64
	for i, part := range parts {
		n, ok := ipv4Part(part)
		limit, shift := uint64(256), 8*(3-i)
		if i == len(parts)-1 {
			limit, shift = 1<<(8*(5-len(parts))), 0
		}
		if !ok || n >= limit {
			return netip.Addr{}, false
		}
		sum += n << shift
	}
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}), true
}

func ipv4Part(s string) (uint64, bool) {
	base := 10
	switch {
	case len(s) >= 2 && (strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X")):
		s, base = s[2:], 16
		if s == "" {
			return 0, true
		}
	case len(s) >= 2 && s[0] == '0':
		s, base = s[1:], 8
	}
	if s == "" || s[0] == '+' || s[0] == '-' || strings.IndexByte(s, '_') >= 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(s, base, 64)
	return n, err == nil
}

// unescape decodes the percent-escapes of s; what is no escape stays as it is, and so does all of s if it
// would not be UTF-8 afterwards.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if b, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil && s[i+1] != '+' && s[i+1] != '-' {
				out = append(out, byte(b))
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	if !utf8.Valid(out) {
		return s
	}
	return string(out)
}
