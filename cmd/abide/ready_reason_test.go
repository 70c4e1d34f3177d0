package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"abide/internal/api"
	"abide/kv"
)

// TestReadyTellsNoAddresses holds what /ready says of a database that is away against what nobody without a token need know.
func TestReadyTellsNoAddresses(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 5432}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		cause error
		says  string
	}{
		{fmt.Errorf("failed to connect to `user=alice database=ledger`: db.internal: %w", refused), "it refuses connections"},
		{fmt.Errorf("db.internal: %w", context.DeadlineExceeded), "it does not answer in time"},
		{&net.DNSError{Name: "db.internal", Err: "no such host"}, "its name cannot be looked up"},
		{errors.New("password authentication failed for user \"alice\" at db.internal"), "the server's log says more"},
	} {
		err := fmt.Errorf("the store cannot be written: %w", &kv.Error{Is: kv.ErrUnavailable, Store: "postgres", Op: "begin", Detail: "it is said why", Err: c.cause})
		got := withoutAddresses(err)
		var reticent api.Reticent
		if !errors.As(got, &reticent) {
			t.Fatalf("%v is for everybody", got)
		}
		public := reticent.Public()
		for _, secret := range []string{"alice", "ledger", "db.internal", "10.1.2.3", "5432"} {
			if strings.Contains(public, secret) {
				t.Errorf("everybody is told %q: %s", secret, public)
			}
		}
		if !strings.Contains(public, c.says) || !strings.Contains(public, "it is said why") || !strings.Contains(got.Error(), c.cause.Error()) || !errors.Is(got, kv.ErrUnavailable) {
			t.Errorf("everybody is told %s; the log %v", public, got)
		}
	}
	for _, err := range []error{nil, errors.New("delivery has not moved for 30s"), &kv.Error{Is: kv.ErrUnavailable, Store: "sqlite", Op: "commit", Err: errors.New("disk full")}} {
		if got := withoutAddresses(err); got != err {
			t.Errorf("%v has become %v", err, got)
		}
	}
}
