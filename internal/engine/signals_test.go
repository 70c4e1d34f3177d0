package engine

import (
	"strings"
	"sync"
	"testing"

	"abide/internal/store"
	"abide/kv"
	"abide/protocol"
)

// TestLongNamesNeedNoPoll: the signal of a message with the longest id and address there may be is given with its commit.
func TestLongNamesNeedNoPoll(t *testing.T) {
	f := newFixture(t)
	var mu sync.Mutex
	var told []store.Message
	defer f.store.Signals(func(signals []kv.Signal) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range signals {
			if m, ok := store.ParseMessage(s.Body); ok && s.Topic == store.TopicExecute {
				told = append(told, m)
			}
		}
	})()
	const scheme = "https://example.com/"
	id, address := strings.Repeat("i", protocol.MaxIDBytes), scheme+strings.Repeat("a", protocol.MaxAddressBytes-len(scheme))
	workspace := strings.Repeat("w", protocol.MaxWorkspaceBytes)
	r := f.Do(t.Context(), workspace, &protocol.PromiseCreate{ID: id, TimeoutAt: 1 << 50, Tags: protocol.Tags{}.With(protocol.TagTarget, address)}, nil)
	if r.Status != protocol.StatusOK {
		t.Fatalf("%d %s", r.Status, r.Message)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 1 || told[0].ID != id || told[0].Address != address {
		t.Errorf("told of %d messages, want the one", len(told))
	}
}
