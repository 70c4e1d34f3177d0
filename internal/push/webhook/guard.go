package webhook

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"abide/internal/push"
)

// Rules say where messages may go. Clients name the addresses, so without rules anybody who may create a promise could have
// the server post to the machines around it.
//
// A rule is a host name, *.suffix for all names below suffix, an IP address, a CIDR, or * for every public address. What a
// deny rule covers is refused. If there are allow rules, only what one of them covers is not: a name stands for whatever
// addresses it has, but for link-local ones, which only an address or a CIDR covers. Without allow rules, public addresses
// are allowed. All is judged by the address that is dialled, so a name that changes its addresses gains nothing.
type Rules struct{ allow, deny []rule }

// rule is one of three forms.
type rule struct {
	any    bool         // *
	suffix string       // of names, with its first dot
	host   string       // a name
	prefix netip.Prefix // addresses
}

// MaxRules is how many rules either list may have.
const MaxRules = 1000

// ParseRules reads the rules of both lists. The error names the one that is wrong.
func ParseRules(allow, deny []string) (r Rules, err error) {
	for _, list := range []struct {
		texts []string
		to    *[]rule
	}{{allow, &r.allow}, {deny, &r.deny}} {
		if len(list.texts) > MaxRules {
			return Rules{}, fmt.Errorf("%d rules: the limit is %d", len(list.texts), MaxRules)
		}
		for _, text := range list.texts {
			one, err := parseRule(text)
			if err != nil {
				return Rules{}, err
			}
			*list.to = append(*list.to, one)
		}
	}
	return r, nil
}

func parseRule(text string) (rule, error) {
	wrong := fmt.Errorf("%q is no rule: write a host name, *.suffix, an IP address, a CIDR such as 10.0.0.0/8, or * for every public address", text)
	name := strings.ToLower(strings.TrimSpace(text))
	if name != "*." {
		name = strings.TrimSuffix(name, ".")
	}
	switch {
	case name == "*":
		return rule{any: true}, nil
	case strings.Contains(name, "/"):
		prefix, err := netip.ParsePrefix(name)
		if err != nil {
			return rule{}, wrong
		}
		return rule{prefix: prefix.Masked()}, nil
	}
	if ip, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		ip = ip.Unmap().WithZone("")
		return rule{prefix: netip.PrefixFrom(ip, ip.BitLen())}, nil
	}
	host, below := strings.CutPrefix(name, "*.")
	host, err := oneHost(host)
	if err != nil || host == "" || len(host) > maxHostBytes || strings.ContainsAny(host, "*:@?#[] \\") || strings.HasPrefix(host, ".") {
		return rule{}, wrong
	}
	if below {
		return rule{suffix: "." + host}, nil
	}
	return rule{host: host}, nil
}

// names reports whether r covers a host by its name.
func (r rule) names(host string) bool {
	return r.host != "" && r.host == host || r.suffix != "" && strings.HasSuffix(host, r.suffix)
}

// holds reports whether r covers an address by itself.
func (r rule) holds(ip netip.Addr) bool { return r.prefix.IsValid() && r.prefix.Contains(ip) }

// reserved are the addresses that are not on the public Internet, after the registries of special-purpose addresses
// (RFC 6890 and its updates), and those of clouds that a machine reaches its host by.
var reserved = func() (list []netip.Prefix) {
	for _, text := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
		"192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	} {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}()

// global are the IPv6 addresses that the Internet has (RFC 4291 and the registry of its address space): all others are local,
// reserved, or a way to write an IPv4 address.
var global = netip.MustParsePrefix("2000::/3")

// nat64 is how an IPv4 address is written where there is only IPv6 (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// plain is the address that is reached in the end, in one spelling.
func plain(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	if nat64.Contains(ip) {
		b := ip.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return ip
}

func public(ip netip.Addr) bool {
	if ip.Is6() && !global.Contains(ip) {
		return false
	}
	for _, p := range reserved {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}

// spelled is a host name as rules have it.
func spelled(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// check judges an address that a host has; the error wraps push.ErrRefused, and does not tell the address: clients may see
// it, and the names of the networks around the server are none of their business. host may be the address itself.
func (r Rules) check(host string, ip netip.Addr) error {
	host, ip = spelled(host), plain(ip)
	for _, d := range r.deny {
		if d.names(host) || d.holds(ip) || d.any && public(ip) {
			return fmt.Errorf("%w: a rule of transports.http_push.deny covers %s", push.ErrRefused, host)
		}
	}
	for _, a := range r.allow {
		if a.holds(ip) || a.any && public(ip) || a.names(host) && !ip.IsLinkLocalUnicast() {
			return nil
		}
	}
	switch {
	case len(r.allow) > 0:
		return fmt.Errorf("%w: no rule of transports.http_push.allow covers %s", push.ErrRefused, host)
	case !public(ip):
		return fmt.Errorf("%w: %s is not on the public Internet; a rule of transports.http_push.allow may allow it", push.ErrRefused, host)
	}
	return nil
}

// checkName judges a host whose addresses cannot be known: only a proxy can resolve it.
func (r Rules) checkName(host string) error {
	host = spelled(host)
	for _, d := range r.deny {
		if d.names(host) {
			return fmt.Errorf("%w: a rule of transports.http_push.deny covers %s", push.ErrRefused, host)
		}
	}
	for _, a := range r.allow {
		if a.any || a.names(host) {
			return nil
		}
	}
	if len(r.allow) > 0 {
		return fmt.Errorf("%w: no rule of transports.http_push.allow covers %s", push.ErrRefused, host)
	}
	return nil
}

// guard dials what the rules allow.
type guard struct {
	rules    Rules
	timeout  time.Duration // of one connection
	resolver *net.Resolver // nil: the system's
}

// dial is http.Transport.DialContext. The rules see each address that is about to be connected to.
func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: g.timeout, KeepAlive: 15 * time.Second, Resolver: g.resolver}
	d.Control = func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%w: cannot tell which address %q is", push.ErrRefused, address)
		}
		return g.rules.check(host, at.Addr())
	}
	return d.DialContext(ctx, network, address)
}

// checkProxied judges a destination that a proxy will connect to: by the addresses that it has here, or by its name alone
// if it has none here.
func (g *guard) checkProxied(ctx context.Context, u *url.URL) error {
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil {
		return g.rules.check(host, ip)
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	resolver := g.resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	ips, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return g.rules.checkName(host)
	}
	for _, ip := range ips {
		if err := g.rules.check(host, ip); err != nil {
			return err
		}
	}
	return nil
}
