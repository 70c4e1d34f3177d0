package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The ports that FreePort gives lie below those that systems give to whoever asks for any: Linux begins at 32768, others
// at 49152. So nobody who listens on port 0, in this process or in another, is given one before it is used.
const (
	firstPort = 20_000
	ports     = 10_000
)

// FreePort gives a port that nobody listens on now, neither on 127.0.0.1 nor on every address. Another caller may be given
// the same one, but that takes the same draw of ten thousand at the same moment. It is safe for concurrent use.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func freePort() (int, error) {
	var last error
	for range 100 {
		port := firstPort + rand.IntN(ports)
		if last = free(fmt.Sprintf("127.0.0.1:%d", port)); last != nil {
			continue
		}
		if last = free(fmt.Sprintf(":%d", port)); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port from %d to %d: %w", firstPort, firstPort+ports-1, last)
}

// free is an error if somebody listens on an address.
func free(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}
