package api

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// knownHost reports whether the Host header of a request names this server: an IP address, or one of
// Options.Hosts or a name below localhost. Without Options.Hosts every name does.
func (h *Handler) knownHost(header string) bool {
	if len(h.o.Hosts) == 0 || header == "" {
		return true
	}
	host := header
	if name, _, err := net.SplitHostPort(header); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return strings.HasSuffix(host, ".localhost") || slices.Contains(h.o.Hosts, host)
}
