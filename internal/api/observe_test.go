package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"abide/protocol"
)

// scripted answers gets and creates, each in a time of its own, and panics on everything else.
type scripted struct{ now time.Time }

func (s *scripted) Do(_ context.Context, _ string, req protocol.Request, _ *int64) protocol.Reply {
	switch req.Kind() {
	case protocol.KindPromiseGet:
		s.now = s.now.Add(time.Millisecond)
		return protocol.Fail(protocol.StatusNotFound, "no")
	case protocol.KindPromiseCreate:
		s.now = s.now.Add(time.Second)
		return protocol.OK(protocol.EmptyBody{})
	}
	panic("for the test")
}

func (s *scripted) Ready(context.Context) error { return nil }

// TestObserve posts requests of every sort and demands exactly what was observed.
func TestObserve(t *testing.T) {
	s := &scripted{now: time.Unix(1000, 0)}
	var seen []string
	h, err := New(s, Options{
		Now: func() time.Time { return s.now },
		Observe: func(kind string, status int, took time.Duration) {
			seen = append(seen, fmt.Sprintf("%s %d %s", kind, status, took))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	post := func(body string, header ...string) {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	envelope := func(kind, data string) string {
		return `{"kind":"` + kind + `","head":{"corrId":"c","version":"` + protocol.Version + `"},"data":` + data + `}`
	}
	post(envelope("promise.get", `{"id":"p"}`))
	post(envelope("promise.create", `{"id":"p","timeoutAt":5}`))
	post(envelope("promise.get", `{}`))
	post(envelope("promise.settle", `{"id":"p","state":"resolved"}`))
	post(envelope("made.up", `{}`))
	post("no JSON")
	post(strings.Repeat(" ", protocol.MaxBodyBytes+1))
	post("{}", "Origin", "https://elsewhere.example")
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/health", nil))
	want := []string{
		"promise.get 404 1ms", "promise.create 200 1s", "promise.get 400 0s", "promise.settle 500 0s",
		"made.up 400 0s", "unknown 400 0s", " 413 0s", " 403 0s",
	}
	if got := strings.Join(seen, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("observed\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if h.InFlight() != 0 {
		t.Errorf("%d requests are in flight", h.InFlight())
	}
}
