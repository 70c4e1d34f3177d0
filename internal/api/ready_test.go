package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-json-experiment/json"
)

// noted is an engine with a note.
type noted struct {
	Engine
	note string
}

func (n noted) Note() string { return n.note }

// unready is an engine that is not.
type unready struct {
	Engine
	why string
}

func (u unready) Ready(context.Context) error { return errors.New(u.why) }

// reticent is an engine that is not ready for a reason of which not everybody is told everything.
type reticent struct{ *scripted }

func (reticent) Ready(context.Context) error { return fmt.Errorf("wrapped: %w", twoFaced{}) }

type twoFaced struct{}

func (twoFaced) Error() string  { return "db.internal:5432 is away" }
func (twoFaced) Public() string { return "the store is away" }

// TestReadySays asks servers in every state, with both methods: the status is for probes, the body for people.
func TestReadySays(t *testing.T) {
	for _, c := range []struct {
		name   string
		engine Engine
		drain  bool
		status int
		body   string
	}{
		{"ready", &scripted{}, false, 200, `{"ready":true}`},
		{"nothing to note", noted{&scripted{}, ""}, false, 200, `{"ready":true}`},
		{"a note", noted{&scripted{}, "not durable"}, false, 200, `{"ready":true,"note":"not durable"}`},
		{"not ready", unready{&scripted{}, "the store is gone"}, false, 503, `{"ready":false,"reason":"the store is gone"}`},
		{"quotes and other bytes", unready{&scripted{}, "no \"x\"\n\xff"}, false, 503, `{"ready":false,"reason":"no \"x\"\n` + "\ufffd" + `"}`},
		{"the log may know more", reticent{&scripted{}}, false, 503, `{"ready":false,"reason":"the store is away"}`},
		{"draining", noted{&scripted{}, "x"}, true, 503, `{"ready":false,"reason":"the server is stopping"}`},
	} {
		h, err := New(c.engine, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if c.drain {
			h.Drain()
		}
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, "/ready", nil))
			if w.Code != c.status || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s: %s answers %d %v, want %d", c.name, method, w.Code, w.Header(), c.status)
			}
			if method == http.MethodGet && w.Body.String() != c.body+"\n" {
				t.Errorf("%s: %q, want %q", c.name, w.Body, c.body)
			}
			var body map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body["ready"] != (c.status == 200) {
				t.Errorf("%s: %q is not what it should be: %v", c.name, w.Body, err)
			}
		}
	}
}
