package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/client"
	"abide/protocol"
)

// function is a worker that lives behind a URL: it takes the task of the message that it is sent, and fulfils it.
type function struct {
	t *testing.T
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	unblocks map[string]int
	fail     int // how many requests it answers with 503 first
}

func newFunction(t *testing.T, fail int) *function {
	f := &function{t: t, unblocks: map[string]int{}, fail: fail}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *function) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m struct {
		Kind string
		Head struct{ ServerURL string }
		Data struct {
			Task struct {
				ID      string
				Version int64
			}
			Promise struct{ ID, State string }
		}
	}
	if err := json.Unmarshal(body, &m); err != nil {
		f.t.Errorf("%s: %v", body, err)
	}
	f.mu.Lock()
	f.requests = append(f.requests, r)
	if f.fail > 0 {
		f.fail--
		f.mu.Unlock()
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if m.Kind == "unblock" {
		f.unblocks[m.Data.Promise.ID+" "+m.Data.Promise.State]++
	}
	f.mu.Unlock()
	if m.Kind == "unblock" {
		return
	}
	c, err := client.New(client.Options{URL: m.Head.ServerURL})
	if err != nil {
		f.t.Error(err)
		return
	}
	task, err := c.TaskAcquire(r.Context(), protocol.TaskAcquire{ID: m.Data.Task.ID, Version: m.Data.Task.Version, PID: "function", TTL: 60_000})
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, err = c.TaskFulfill(r.Context(), protocol.TaskFulfill{ID: task.Task.ID, Version: task.Task.Version, Action: protocol.PromiseSettle{ID: task.Task.ID, State: protocol.Resolved}})
	if err != nil {
		f.t.Error(err)
	}
}

// A function behind a URL is run, at first failures too, and whoever listens at a URL is told.
func TestFunctionsArePushedTo(t *testing.T) {
	f := newFunction(t, 2)
	s := start(t, "dev", "--ephemeral", "--server-port", "0", "--observability-metrics-port", "0")
	c := s.client(t)
	const tasks = 20
	for i := range tasks {
		id := fmt.Sprint("t", i)
		_, err := c.PromiseCreate(t.Context(), protocol.PromiseCreate{ID: id, TimeoutAt: 1 << 50, Tags: protocol.Tags{}.With(protocol.TagTarget, f.URL+"/run")})
		if err == nil {
			_, err = c.PromiseRegisterListener(t.Context(), id, f.URL+"/done")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		f.mu.Lock()
		told := len(f.unblocks)
		f.mu.Unlock()
		if told == tasks {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d listeners were told", told, tasks)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for what, n := range f.unblocks {
		if !strings.HasSuffix(what, " resolved") || n != 1 {
			t.Errorf("%s: %d times", what, n)
		}
	}
	if len(f.requests) > 2*tasks+2 {
		t.Errorf("%d requests", len(f.requests))
	}
	if code := s.stop(t); code != exitOK {
		t.Errorf("exit %d", code)
	}
}
