package main

import (
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
	s := limitSettings{LimitsRequests: 7, TransportsHTTPPollBufferSize: 1000}
	for _, c := range []struct{ files, streams, setting, want int }{
		{20_000, 1000, 16_384, 16_384},
		{20_000, 5000, 16_384, 20_000 - otherFiles - 5000},
		{20_000, 22_000, 16_384, (20_000 - otherFiles) / 4}, // more streams than files: it still answers
		{20_000, 22_000, 10, 10},
		{100, 1000, 10, 1},
	} {
		s.TransportsHTTPPollMaxConnections, s.LimitsConnections = c.streams, c.setting
		if n := s.connections(c.files); n != c.want {
			t.Errorf("%d files, %d streams, %d connections wanted: %d, want %d", c.files, c.streams, c.setting, n, c.want)
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
