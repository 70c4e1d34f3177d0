package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/protocol"
)

// clock hands out pauses that last until the test ends them.
type clock struct {
	mu     sync.Mutex
	pauses []time.Duration
	begun  chan struct{} // one for each pause
	over   chan time.Time
}

func newClock() *clock { return &clock{begun: make(chan struct{}, 10_000), over: make(chan time.Time)} }

func (c *clock) after(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauses = append(c.pauses, d)
	c.begun <- struct{}{}
	return c.over
}

func (c *clock) seen() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.pauses)
}

// TestRefusalsOfOneWorkspaceWait: each as long as there are others, up to a limit; those of another workspace do not count.
func TestRefusalsOfOneWorkspaceWait(t *testing.T) {
	c := newClock()
	b := &brake{after: c.after}
	first := b.hold(t.Context(), "a")
	if len(c.seen()) != 0 {
		t.Fatalf("a refusal that is alone waits for %v", c.seen())
	}
	const n = 700
	var running sync.WaitGroup
	for range n {
		running.Go(func() { b.hold(t.Context(), "a")() })
		<-c.begun
	}
	b.hold(t.Context(), "b")()
	pauses := c.seen()
	if len(pauses) != n || pauses[0] != holdStep || pauses[1] != 2*holdStep || pauses[n-1] != maxHold || !slices.IsSorted(pauses) {
		t.Errorf("%d pauses: %v", len(pauses), pauses)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.hold(ctx, "a")() // whose client has gone waits no longer
	close(c.over)
	running.Wait()
	first()
	if len(b.held) != 0 {
		t.Errorf("%v are remembered after all were answered", b.held)
	}
}

// refusing is an engine that answers once it is told to.
type refusing struct{ entered, answer chan struct{} }

func (e refusing) Do(ctx context.Context, workspace string, _ protocol.Request, _ *int64) protocol.Reply {
	if workspace == "full" {
		e.entered <- struct{}{}
		<-e.answer
	}
	return protocol.OK(protocol.EmptyBody{})
}

func (refusing) Ready(context.Context) error { return nil }

// TestRefusalsAreSpacedBesideOthers: a workspace that is refused over and over is slowed down while there is another one, which
// is served at once meanwhile; alone it is not.
func TestRefusalsAreSpacedBesideOthers(t *testing.T) {
	const good, bad = `{"kind":"task.get","head":{"corrId":"1","version":"` + protocol.Version + `"},"data":{"id":"t"}}`, `{`
	for _, tc := range []struct {
		name, body string
		status     int
	}{{"too many requests", good, http.StatusTooManyRequests}, {"no request", bad, http.StatusBadRequest}} {
		for _, beside := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.name, ", another workspace: ", beside), func(t *testing.T) {
				e := refusing{make(chan struct{}, 1), make(chan struct{})}
				h, err := New(e, Options{MaxWorkspaceInFlight: 1})
				if err != nil {
					t.Fatal(err)
				}
				c := newClock()
				h.brake.after = c.after
				post := func(workspace, body string) int {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/w/"+workspace, strings.NewReader(body)))
					_, _ = io.Copy(io.Discard, w.Body)
					return w.Code
				}
				var running, refused sync.WaitGroup
				running.Go(func() { post("full", good) })
				<-e.entered
				if beside {
					post("gentle", good)
				}
				done := h.brake.hold(t.Context(), "full") // one that is being answered
				const n = 20
				for i := range n {
					refused.Go(func() {
						if status := post("full", tc.body); status != tc.status {
							t.Errorf("status %d, want %d", status, tc.status)
						}
					})
					if beside {
						select {
						case <-c.begun:
						case <-time.After(time.Minute):
							t.Fatalf("refusal %d of %d does not wait", i+1, n)
						}
					}
				}
				if beside {
					if status := post("gentle", good); status != http.StatusOK {
						t.Errorf("the other workspace is answered %d", status)
					}
				}
				close(c.over)
				refused.Wait()
				close(e.answer)
				running.Wait()
				done()
				if pauses := len(c.seen()); pauses != map[bool]int{true: n}[beside] {
					t.Errorf("%d of %d refusals waited", pauses, n)
				}
			})
		}
	}
}
