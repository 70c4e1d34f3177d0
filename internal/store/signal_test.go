package store

import (
	"math"
	"strings"
	"testing"

	"abide/kv"
	"abide/protocol"
)

// TestLongestNamesAreTold: a message with the longest workspace, id and address that requests may have fits into a
// signal, so that it does not wait for somebody to look.
func TestLongestNamesAreTold(t *testing.T) {
	workspace, id := strings.Repeat("w", protocol.MaxWorkspaceBytes), strings.Repeat("i", protocol.MaxIDBytes)
	address := strings.Repeat("a", protocol.MaxAddressBytes)
	for _, s := range []kv.Signal{
		ExecuteSignal(workspace, id, math.MaxInt64, address), UnblockSignal(workspace, id, address), ClaimedSignal(workspace, id, math.MaxInt64),
	} {
		if n := len(s.Topic) + len(s.Body); n > kv.MaxSignalBytes {
			t.Errorf("%s: %d bytes, and a signal has at most %d", s.Topic, n, kv.MaxSignalBytes)
		}
		if m, ok := ParseMessage(s.Body); !ok || m.Workspace != workspace || m.ID != id {
			t.Errorf("%s does not come back: %v %+v", s.Topic, ok, m)
		}
	}
}
