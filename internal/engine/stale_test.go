package engine

import (
	"context"
	"testing"

	"abide/internal/deliver"
	"abide/protocol"
)

// An execute is sent for the version that is queued: a hint, or a page, of an earlier one is dropped.
func TestStaleExecutesAreNotSent(t *testing.T) {
	f := newFixture(t)
	f.do(200, &protocol.PromiseCreate{ID: "t", TimeoutAt: far, Tags: target})
	f.do(200, &protocol.TaskAcquire{ID: "t", Version: 0, PID: "w", TTL: 1000})
	f.do(200, &protocol.TaskRelease{ID: "t", Version: 1})
	at := func(version int64) deliver.Execute {
		return deliver.Execute{Workspace: "default", ID: "t", Version: version, Address: "poll://any@g"}
	}
	for _, c := range []struct {
		version int64
		valid   bool
	}{{0, false}, {1, true}, {2, false}} {
		valid, err := f.Outbox().CheckExecutes(context.Background(), "default", []deliver.Execute{at(c.version)})
		if err != nil || (len(valid) == 1) != c.valid {
			t.Errorf("version %d: %v, %v; want it sent: %t", c.version, valid, err, c.valid)
		}
	}
	// What was delivered of an earlier version leaves the entry of this one in its place.
	if err := f.Outbox().ExecutesDelivered(context.Background(), "default", []deliver.Execute{at(0)}); err != nil {
		t.Fatal(err)
	}
	page := executesFor(t, f.Outbox(), deliver.Destination{Workspace: "default", Group: "g"}, "", 10).Executes
	if len(page) != 1 || page[0] != at(1) {
		t.Errorf("after the report of an earlier version: %v", page)
	}
}
