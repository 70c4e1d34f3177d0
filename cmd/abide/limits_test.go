package main

import (
	"log/slog"
	"strings"
	"testing"
)

// TestLimitsAreChecked: each setting takes its least and its largest value, and nothing beyond.
func TestLimitsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		key      string
		min, max string
		below    string
		above    string
	}{
		{"limits.requests", "1", "1000000", "0", "1000001"},
		{"limits.requests_per_workspace", "0", "4096", "-1", "4097"},
		{"limits.buffered_bytes", "4194304", "1099511627776", "4194303", "1099511627777"},
		{"limits.connections", "1", "10000000", "0", "10000001"},
		{"limits.workspaces", "1", "1000000", "0", "1000001"},
		{"transports.http_poll.max_connections", "1", "1000000", "0", "1000001"},
		{"transports.http_poll.max_connections_per_workspace", "0", "1000000", "-1", "1000001"},
		{"transports.http_poll.max_connections_per_group", "0", "1000000", "-1", "1000001"},
		{"transports.http_poll.buffer_size", "1", "100000", "0", "100001"},
	} {
		for _, value := range []string{tc.min, tc.max} {
			if r := runWith(nil, "config", "check", "--config", writeIn(t, "abide.toml", tc.key+" = "+value)); r.code != 0 {
				t.Errorf("%s = %s: exit %d, %s", tc.key, value, r.code, r.stderr)
			}
		}
		for _, value := range []string{tc.below, tc.above} {
			r := runWith(nil, "config", "check", "--config", writeIn(t, "abide.toml", tc.key+" = "+value))
			if r.code != 2 || !strings.Contains(r.stderr, "must be from "+tc.min+" to "+tc.max) {
				t.Errorf("%s = %s: exit %d, %s", tc.key, value, r.code, r.stderr)
			}
		}
	}
}

func TestDefaultsThatFollowOthers(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	s := limitSettings{LimitsRequests: 7, LimitsConnections: 10, TransportsHTTPPollMaxConnections: 5, TransportsHTTPPollBufferSize: 1000}
	if n := s.connections(log); n != 10 {
		t.Errorf("%d connections, want 10", n)
	}
	if files, known := maxOpenFiles(); known {
		s.LimitsConnections = files - otherFiles - 5
		if n := s.connections(log); n != files-otherFiles-5 {
			t.Errorf("%d connections, want %d", n, files-otherFiles-5)
		}
		s.LimitsConnections++
		if n := s.connections(log); n != files-otherFiles-5 {
			t.Errorf("%d connections, want those that %d files leave room for", n, files)
		}
	}
	if s.requestsPerWorkspace() != 3 || s.streams().MaxExecutes != maxUnclaimed {
		t.Errorf("%d requests per workspace, %d executes", s.requestsPerWorkspace(), s.streams().MaxExecutes)
	}
	if s.LimitsRequests = 1; s.requestsPerWorkspace() != 1 {
		t.Errorf("%d requests per workspace of 1", s.requestsPerWorkspace())
	}
	if s.LimitsRequestsPerWorkspace = 9; s.requestsPerWorkspace() != 9 {
		t.Errorf("%d requests per workspace, want 9", s.requestsPerWorkspace())
	}
}
