package webhook

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"abide/protocol"
)

// maxHostBytes is the longest host name that the domain name system has.
const maxHostBytes = 253

// parseTarget reads an address as the lenient URL parser of protocol.ParseAddress does, which has accepted it: outer blanks
// and line ends do not count, any slashes, also backward ones, may stand before the host, an escape that is none is text.
// The host comes out in one spelling, so that nothing on the way takes it for another one than the rules have judged.
func parseTarget(address string) (*url.URL, error) {
	text := strings.TrimFunc(address, func(r rune) bool { return r <= ' ' })
	text = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(text)
	text, _, _ = strings.Cut(text, "#")
	scheme, rest, ok := strings.Cut(text, ":")
	if scheme = strings.ToLower(scheme); !ok || scheme != "http" && scheme != "https" {
		return nil, errors.New("it is no http or https URL")
	}
	rest = strings.TrimLeft(rest, `/\`)
	path, query, asked := strings.Cut(rest, "?")
	path = strings.ReplaceAll(path, `\`, "/")
	end := strings.IndexByte(path, '/')
	if end < 0 {
		end = len(path)
	}
	authority, err := oneSpelling(path[:end])
	if err != nil {
		return nil, err
	}
	path = escapeStray(authority + path[end:])
	if asked {
		path += "?" + query
	}
	u, err := url.Parse(scheme + "://" + path)
	if err != nil {
		return nil, errors.New("it is no URL that a request can be sent to")
	}
	host := u.Hostname()
	switch {
	case host == "":
		return nil, errors.New("it names no host")
	case len(host) > maxHostBytes:
		return nil, fmt.Errorf("its host is %d bytes long, the limit is %d", len(host), maxHostBytes)
	}
	return u, nil
}

// oneSpelling writes the host of an authority without percent escapes, and as oneHost does. An IPv6 address stays as it is.
func oneSpelling(authority string) (string, error) {
	at := strings.LastIndexByte(authority, '@') + 1
	user, host := authority[:at], authority[at:]
	if strings.HasPrefix(host, "[") {
		return authority, nil
	}
	host, port, hasPort := strings.Cut(host, ":")
	if plain, err := url.PathUnescape(host); err == nil {
		host = plain
	}
	host, err := oneHost(host)
	if err != nil {
		return "", err
	}
	if hasPort {
		host += ":" + port
	}
	return user + host, nil
}

// domainNames is how browsers read a name that is not ASCII (UTS #46).
var domainNames = idna.New(idna.MapForLookup(), idna.StrictDomainName(false), idna.CheckHyphens(false), idna.Transitional(false))

// oneHost writes a name in ASCII, and an IPv4 address as four decimal numbers: name servers know no other spelling, while
// proxies and the C library take 127.1, 0x7f000001 and 2130706433 for the same.
func oneHost(host string) (string, error) {
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		ascii, err := domainNames.ToASCII(host)
		if err != nil {
			return "", errors.New("its host is no domain name")
		}
		host = ascii
	}
	if ip, ok := protocol.ParseIPv4(host); ok {
		return ip.String(), nil
	}
	if strings.ContainsAny(host, "/?#@:[]%\\ ") || strings.HasPrefix(host, ".") || strings.Contains(host, "..") {
		return "", errors.New("its host is no domain name")
	}
	return host, nil
}

// escapeStray escapes the percent signs that begin no escape.
func escapeStray(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		b.WriteByte(s[i])
		if s[i] == '%' && (i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2])) {
			b.WriteString("25")
		}
	}
	return b.String()
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

// origin is the scheme, host and port of a URL, in one spelling.
func origin(u *url.URL) string {
	port := u.Port()
	switch {
	case port == "" && u.Scheme == "https":
		port = "443"
	case port == "":
		port = "80"
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
