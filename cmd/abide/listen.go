package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// listen opens port on bind. An IPv6 address may stand in brackets. Port 0 takes a free port.
func listen(bind string, port int) (net.Listener, error) { return listenAs("server-port", bind, port) }

// listenAs is listen for a port that another flag has set.
func listenAs(flag, bind string, port int) (net.Listener, error) {
	host := strings.Trim(bind, "[]")
	address := net.JoinHostPort(host, strconv.Itoa(port))
	network := "tcp"
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		network = "tcp4" // else 0.0.0.0 would be every IPv6 address as well
	}
	listener, err := net.Listen(network, address)
	switch {
	case err == nil:
		return listener, nil
	case isAddressInUse(err):
		return nil, fmt.Errorf("port %d is in use on %s: stop what listens there (another abide?) or choose another port with --%s", port, bind, flag)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("no permission to listen on port %d of %s: choose a port above 1023 with --%s", port, bind, flag)
	}
	return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
}

// listenLoopback opens port on both loopback addresses, because a client's localhost may be either. Only
// the IPv4 one must succeed: a machine may have no IPv6.
func listenLoopback(port int) ([]net.Listener, error) {
	first, err := listen("127.0.0.1", port)
	if err != nil {
		return nil, err
	}
	listeners := []net.Listener{first}
	second, err := listen("::1", portOf(first))
	if err != nil && isAddressInUse(err) {
		_ = first.Close()
		return nil, err
	}
	if err == nil {
		listeners = append(listeners, second)
	}
	return listeners, nil
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// windowsAddressInUse is WSAEADDRINUSE, which package syscall does not map to EADDRINUSE.
const windowsAddressInUse = syscall.Errno(10048)

func isAddressInUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, windowsAddressInUse)
}
