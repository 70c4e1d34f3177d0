package engine

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"abide/kv"
	"abide/protocol"
)

// TestFailuresDoNotFloodTheLog lets ten thousand requests fail, as they do within seconds while a database is away.
func TestFailuresDoNotFloodTheLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var f failureLog
	away := &kv.Error{Is: kv.ErrUnavailable, Detail: "away"}
	for range 10_000 {
		f.tell(log, time.Second, slog.LevelWarn, "request not served", protocol.KindPromiseGet, away)
	}
	if n := strings.Count(out.String(), "\n"); n != failureLines {
		t.Errorf("%d lines of 10,000 failures at once, want %d", n, failureLines)
	}
	out.Reset()
	f.tell(log, time.Second, slog.LevelError, "stored record is damaged", protocol.KindPromiseGet, errors.New("damage"))
	if !strings.Contains(out.String(), "level=ERROR") || strings.Contains(out.String(), "left_out_before") {
		t.Errorf("another message is hidden or counted with it: %q", out.String())
	}
	out.Reset()
	f.tell(log, time.Second+failureInterval, slog.LevelWarn, "request not served", protocol.KindPromiseGet, away)
	f.tell(log, time.Second+failureInterval, slog.LevelWarn, "request not served", protocol.KindPromiseGet, away)
	if lines := strings.Split(out.String(), "\n"); len(lines) != 3 || !strings.Contains(lines[0], "left_out_before=9990") || strings.Contains(lines[1], "left_out") {
		t.Errorf("an interval later: %q", out.String())
	}
}

// TestEngineCountsFailures fails more requests than the log is told of.
func TestEngineCountsFailures(t *testing.T) {
	f := newFixture(t)
	var out bytes.Buffer
	f.Engine.log = slog.New(slog.NewTextHandler(&out, nil))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 3 * failureLines {
		f.Engine.failure(&protocol.PromiseGet{ID: "a"}, ctx.Err())
	}
	if n := strings.Count(out.String(), "request not served"); n != failureLines {
		t.Errorf("%d lines", n)
	}
}
