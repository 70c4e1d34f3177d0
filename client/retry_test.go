package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"abide/client"
	"abide/protocol"
)

// answers is one way of a server to answer, or not.
type answers func(w http.ResponseWriter, kind, corrID string)

func status(code int, retryAfter string) answers {
	return func(w http.ResponseWriter, kind, corrID string) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(code)
		reply := protocol.Fail(code, "because")
		if code == 200 {
			reply = protocol.OK(protocol.PromiseBody{Promise: promise})
		}
		_, _ = w.Write(protocol.AppendResponse(nil, kind, corrID, reply))
	}
}

func html(code int) answers {
	return func(w http.ResponseWriter, _, _ string) { http.Error(w, "<html>", code) }
}

// reset breaks the connection once the request was read.
func reset(http.ResponseWriter, string, string) { panic(http.ErrAbortHandler) }

// short begins an answer and breaks off.
func short(w http.ResponseWriter, _, _ string) {
	w.Header().Set("Content-Length", "100")
	_, _ = io.WriteString(w, `{"kind"`)
	panic(http.ErrAbortHandler)
}

// script starts a server that answers its n-th request with the n-th answer, the last one from then on.
func script(t *testing.T, retry client.Retry, all ...answers) (*client.Client, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		env, err := protocol.DecodeEnvelope(body)
		if err != nil {
			t.Error(err)
		}
		all[min(int(n.Add(1)), len(all))-1](w, env.Kind, env.CorrID)
	}))
	t.Cleanup(s.Close)
	c, err := client.New(client.Options{URL: s.URL, Retry: retry})
	if err != nil {
		t.Fatal(err)
	}
	return c, &n
}

func TestRepeats(t *testing.T) {
	get := &protocol.PromiseGet{ID: "p"}
	acquire := &protocol.TaskAcquire{ID: "p", PID: "w", TTL: 1}
	for name, tc := range map[string]struct {
		request protocol.Request
		answers []answers
		sent    int64
		status  int  // of the answer; 0 for an error
		unknown bool // the error says so
	}{
		"busy, then not":                  {acquire, []answers{status(503, "0"), status(200, "")}, 2, 200, false},
		"too many, by a proxy":            {acquire, []answers{html(429), status(200, "")}, 2, 200, false},
		"busy for ever":                   {acquire, []answers{status(503, "0")}, 4, 503, false},
		"busy for too long":               {acquire, []answers{status(503, "3600")}, 1, 503, false},
		"reset, repeatable":               {&create, []answers{reset, status(200, "")}, 2, 200, false},
		"reset, not repeatable":           {acquire, []answers{reset, status(200, "")}, 1, 0, true},
		"reset, reading only":             {get, []answers{reset}, 4, 0, false},
		"half an answer, repeatable":      {&settle, []answers{short, status(200, "")}, 2, 200, false},
		"half an answer, not repeatable":  {acquire, []answers{short}, 1, 0, true},
		"500, repeatable":                 {&create, []answers{status(500, ""), status(200, "")}, 2, 200, false},
		"500, not repeatable":             {acquire, []answers{status(500, "")}, 1, 500, false},
		"gateway, repeatable":             {get, []answers{html(502), html(504), status(200, "")}, 3, 200, false},
		"gateway, not repeatable":         {acquire, []answers{html(504)}, 1, 0, true},
		"an answer of something else":     {acquire, []answers{html(200)}, 1, 0, true},
		"refused by something else":       {acquire, []answers{html(403)}, 1, 0, false},
		"reset, then busy":                {&create, []answers{reset, status(503, "0")}, 4, 0, true},
		"a refusal is final":              {&create, []answers{status(409, "")}, 1, 409, false},
		"a refusal with pause is as well": {get, []answers{status(404, "1")}, 1, 404, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, n := script(t, client.Retry{MaxPause: 50 * time.Millisecond}, tc.answers...)
			response, err := c.Do(t.Context(), tc.request)
			if n.Load() != tc.sent || response.Status != tc.status && err == nil || (err != nil) != (tc.status == 0) || errors.Is(err, client.ErrUnknownOutcome) != tc.unknown {
				t.Errorf("sent %d times, status %d, error %v (unknown %v)", n.Load(), response.Status, err, errors.Is(err, client.ErrUnknownOutcome))
			}
		})
	}
}

func TestNoRepeatsOnRequest(t *testing.T) {
	c, n := script(t, client.Retry{Attempts: 1}, status(503, "7"))
	_, err := c.PromiseGet(t.Context(), "p")
	var answer *client.Error
	if !errors.As(err, &answer) || answer.RetryAfter != 7*time.Second || n.Load() != 1 {
		t.Errorf("sent %d times, error %v", n.Load(), err)
	}
}

func TestA500IsAnUnknownOutcome(t *testing.T) {
	c, _ := script(t, client.Retry{Attempts: 1}, status(500, ""))
	if _, err := c.TaskFulfill(t.Context(), protocol.TaskFulfill{ID: "p", Action: settle}); client.Status(err) != 500 || !errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("fulfill: %v", err)
	}
	if _, err := c.PromiseGet(t.Context(), "p"); client.Status(err) != 500 || errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("get: %v", err)
	}
}

// TestRetryAfterAsAnInstant: what counts is the distance to the answer's own date, not anybody's clock.
func TestRetryAfterAsAnInstant(t *testing.T) {
	long := func(w http.ResponseWriter, kind, corrID string) {
		w.Header().Set("Date", "Tue, 01 Jan 2030 00:00:00 GMT")
		status(503, "Tue, 01 Jan 2030 00:00:42 GMT")(w, kind, corrID)
	}
	c, _ := script(t, client.Retry{Attempts: 1}, long)
	_, err := c.PromiseGet(t.Context(), "p")
	var answer *client.Error
	if !errors.As(err, &answer) || answer.RetryAfter != 42*time.Second {
		t.Errorf("%v", err)
	}
}

// TestAServerThatIsNotThere: nothing was sent, so that any kind is repeated, and nothing is unknown.
func TestAServerThatIsNotThere(t *testing.T) {
	// A port that somebody had might be another test's by now.
	c, err := client.New(client.Options{URL: "http://127.0.0.1:1", Retry: client.Retry{Attempts: 2, MaxPause: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.TaskHalt(t.Context(), "p"); err == nil || errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("error %v", err)
	}
}

func TestContextEndsAPause(t *testing.T) {
	// The context must not end before the answer that asks for a pause has come, however slow the machine is.
	for timeout := 30 * time.Millisecond; ; timeout *= 2 {
		c, _ := script(t, client.Retry{MaxPause: time.Hour}, status(503, "600"))
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		_, err := c.PromiseGet(ctx, "p")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v", err)
		}
		if client.Status(err) == 503 {
			return
		}
		if timeout > time.Minute {
			t.Fatalf("the answer before the pause is not told: %v", err)
		}
	}
}

// TestRepeatableKinds says of every kind what its comment says.
func TestRepeatableKinds(t *testing.T) {
	want := map[protocol.Kind]bool{}
	for _, kind := range []protocol.Kind{"promise.get", "promise.create", "promise.settle", "promise.register_callback", "promise.register_listener",
		"promise.search", "task.get", "task.search", "task.explain", "task.fence", "task.heartbeat", "schedule.get", "schedule.search", "debug.snap"} {
		want[kind] = true
	}
	for _, kind := range []protocol.Kind{"task.create", "task.acquire", "task.suspend", "task.fulfill", "task.release", "task.halt", "task.continue",
		"schedule.create", "schedule.delete", "debug.start", "debug.stop", "debug.reset", "debug.tick"} {
		want[kind] = false
	}
	for kind, repeatable := range want {
		if !protocol.Known(string(kind)) || client.Repeatable(kind) != repeatable {
			t.Errorf("%s: known %v, repeatable %v", kind, protocol.Known(string(kind)), client.Repeatable(kind))
		}
	}
}
