package webhook

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// maxHostBytes is the longest host name that the domain name system has.
const maxHostBytes = 253

// parseTarget reads an address as the lenient URL parser of protocol.ParseAddress does, which has accepted it: outer blanks
// and line ends do not count, any slashes, also backward ones, may stand before the host, an escape that is none is text.
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
	path = escapeStray(strings.ReplaceAll(path, `\`, "/"))
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
