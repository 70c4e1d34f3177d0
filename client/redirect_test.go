package client_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"abide/client"
	"abide/protocol"
)

// TestRedirectsAreNotFollowed has a server send its clients, and with them their tokens, to another one.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var reached atomic.Int32
	var seen atomic.Value
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen.Store(string(body))
		reached.Add(1)
	}))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/there?key=hidden", status)
		}))
		for name, h := range map[string]*http.Client{"the client's own": nil, "one that was given": {}} {
			c, err := client.New(client.Options{URL: s.URL, Token: "secret", HTTP: h})
			if err != nil {
				t.Fatal(err)
			}
			for _, ask := range []func() error{
				func() error { _, err := c.PromiseGet(t.Context(), "a"); return err },
				func() error { return c.Poll(t.Context(), "g", "p", func(protocol.Message) error { return nil }) },
			} {
				err := ask()
				if err == nil || !strings.Contains(err.Error(), elsewhere.URL+"/there;") || strings.Contains(err.Error(), "hidden") {
					t.Fatalf("%d, %s: %v; %d requests went to another server, with %v", status, name, err, reached.Load(), seen.Load())
				}
			}
		}
		s.Close()
	}
	if reached.Load() != 0 {
		t.Errorf("%d requests went to another server, with %v", reached.Load(), seen.Load())
	}
}
