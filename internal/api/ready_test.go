package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// noted is an engine with a note.
type noted struct {
	Engine
	note string
}

func (n noted) Note() string { return n.note }

func TestReadyNote(t *testing.T) {
	for _, c := range []struct {
		engine Engine
		body   string
	}{
		{&scripted{}, ""},
		{noted{&scripted{}, ""}, ""},
		{noted{&scripted{}, "not durable"}, "not durable\n"},
	} {
		h, err := New(c.engine, Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ready", nil))
		if w.Code != http.StatusOK || w.Body.String() != c.body {
			t.Errorf("%d %q, want 200 %q", w.Code, w.Body, c.body)
		}
	}
}
