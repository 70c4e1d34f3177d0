package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"abide/protocol"
)

// Bounds of the log of requests that failed: when the store is away, all of them do.
const (
	failureLines    = 10
	failureInterval = 10 * time.Second
)

// failureLog tells the log of failed requests: of failureLines in a failureInterval one by one, and of the others with the first
// line of a later interval how many they were. Each message is counted by itself, so that a store that is away hides no damage.
// Safe for concurrent use.
type failureLog struct {
	mu    sync.Mutex
	lines map[string]*told // by message: those of Engine.failure
}

// told is what the log has been told of a message.
type told struct {
	since   time.Duration // when the interval began, steady
	lines   int           // in it
	leftOut int           // since the last line
}

// tell logs one line, or counts it. now is a steady clock's.
func (f *failureLog) tell(log *slog.Logger, now time.Duration, level slog.Level, message string, kind protocol.Kind, err error) {
	f.mu.Lock()
	if f.lines == nil {
		f.lines = map[string]*told{}
	}
	t := f.lines[message]
	if t == nil || now-t.since >= failureInterval {
		fresh := &told{since: now}
		if t != nil {
			fresh.leftOut = t.leftOut
		}
		t, f.lines[message] = fresh, fresh
	}
	if t.lines++; t.lines > failureLines {
		t.leftOut++
		f.mu.Unlock()
		return
	}
	leftOut := t.leftOut
	t.leftOut = 0
	f.mu.Unlock()
	attributes := []any{"kind", kind, "error", err}
	if leftOut > 0 {
		attributes = append(attributes, "left_out_before", leftOut)
	}
	log.Log(context.Background(), level, message, attributes...)
}
