package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"abide/internal/deliver"
	"abide/protocol"
)

// pollOutbox is an outbox of messages for anybody in a group, and of unblocks for single workers.
type pollOutbox struct {
	mu       sync.Mutex
	executes map[string]deliver.Execute
	unblocks map[deliver.UnblockRef]protocol.Promise
}

func newPollOutbox() *pollOutbox {
	return &pollOutbox{executes: map[string]deliver.Execute{}, unblocks: map[deliver.UnblockRef]protocol.Promise{}}
}

func (b *pollOutbox) queue(e deliver.Execute) deliver.Execute {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.executes[e.ID] = e
	return e
}

func (b *pollOutbox) queueUnblock(ref deliver.UnblockRef, p protocol.Promise) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unblocks[ref] = p
}

func (b *pollOutbox) claim(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.executes, id)
}

func (b *pollOutbox) left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.executes) + len(b.unblocks)
}

func (b *pollOutbox) Executes(_ context.Context, asks []deliver.Ask) (pages []deliver.ExecutePage, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range asks {
		page, next := b.executesOf(a.Destination, a.After, a.Limit)
		pages = append(pages, deliver.ExecutePage{Executes: page, Next: next})
	}
	return pages, nil
}

func (b *pollOutbox) executesOf(d deliver.Destination, after string, limit int) (page []deliver.Execute, next string) {
	for _, e := range b.executes {
		if d.PID == "" && e.ID > after && e.Address == "poll://any@"+d.Group {
			page = append(page, e)
		}
	}
	slices.SortFunc(page, func(x, y deliver.Execute) int { return strings.Compare(x.ID, y.ID) })
	if len(page) > limit {
		page, next = page[:limit], page[limit-1].ID
	}
	return page, next
}

func (b *pollOutbox) CheckExecutes(_ context.Context, _ string, hinted []deliver.Execute) (out []deliver.Execute, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range hinted {
		if q, ok := b.executes[e.ID]; ok && q.Version == e.Version {
			out = append(out, e)
		}
	}
	return out, nil
}

func (b *pollOutbox) ExecutesDelivered(_ context.Context, _ string, delivered []deliver.Execute) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range delivered {
		delete(b.executes, e.ID)
	}
	return nil
}

func (b *pollOutbox) Unblocks(_ context.Context, asks []deliver.Ask) ([]deliver.UnblockPage, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pages := make([]deliver.UnblockPage, len(asks))
	for i, a := range asks {
		for ref, p := range b.unblocks {
			if ref.Address == "poll://uni@"+a.Group+"/"+a.PID && len(pages[i].Unblocks) < a.Limit {
				pages[i].Unblocks = append(pages[i].Unblocks, deliver.Unblock{Workspace: a.Workspace, ID: ref.ID, Address: ref.Address, Promise: p})
			}
		}
	}
	return pages, nil
}

func (b *pollOutbox) CheckUnblocks(_ context.Context, workspace string, hinted []deliver.UnblockRef) (out []deliver.Unblock, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ref := range hinted {
		if p, ok := b.unblocks[ref]; ok {
			out = append(out, deliver.Unblock{Workspace: workspace, ID: ref.ID, Address: ref.Address, Promise: p})
		}
	}
	return out, nil
}

func (b *pollOutbox) UnblocksDelivered(_ context.Context, _ string, delivered []deliver.UnblockRef) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ref := range delivered {
		delete(b.unblocks, ref)
	}
	return nil
}

// pollServer serves Poll at /{group}/{id} on a real socket.
type pollServer struct {
	box  *pollOutbox
	d    *deliver.Deliverer
	addr string
}

func newPollServer(t testing.TB, o PollOptions, l deliver.Limits) *pollServer {
	return newTimedPollServer(t, time.Minute, o, l)
}

// newTimedPollServer is newPollServer with the server's own deadlines for one request, which do not hold for streams.
func newTimedPollServer(t testing.TB, timeout time.Duration, o PollOptions, l deliver.Limits) *pollServer {
	start := time.Now()
	o.Now = time.Now
	s := &pollServer{box: newPollOutbox()}
	s.d = deliver.New(deliver.Options{
		Outbox:    s.box,
		ServerURL: func(string) string { return "http://abide:8001" },
		NowMs:     func() int64 { return time.Since(start).Milliseconds() },
		Limits:    l,
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	poll := Poll(s.d, o)
	server := &http.Server{ReadTimeout: timeout, WriteTimeout: timeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		group, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		poll(w, r, Worker{Workspace: "default", Group: group, ID: id})
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ln) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(s.d.Stop(ctx), server.Shutdown(ctx)); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	return s
}

// pollClient reads one stream with the standard client.
type pollClient struct {
	resp  *http.Response
	lines *bufio.Reader
}

func (s *pollServer) poll(t testing.TB, path string) *pollClient {
	t.Helper()
	c, err := s.connect(t, path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *pollServer) connect(t testing.TB, path string) (*pollClient, error) {
	resp, err := http.Get("http://" + s.addr + path)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &pollClient{resp, bufio.NewReaderSize(resp.Body, 64<<10)}, nil
}

// next returns the next block of lines up to an empty one.
func (c *pollClient) next() (string, error) {
	var b strings.Builder
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			return b.String() + line, err
		}
		if b.WriteString(line); line == "\n" {
			return b.String(), nil
		}
	}
}

// message returns the next event, comments left out.
func (c *pollClient) message() (string, error) {
	for {
		block, err := c.next()
		if err != nil || !strings.HasPrefix(block, ":") {
			return block, err
		}
	}
}

func (s *pollServer) dispatch(id, group string) {
	s.d.HintExecute(s.box.queue(deliver.Execute{Workspace: "default", ID: id, Address: "poll://any@" + group}))
}

func TestPollStream(t *testing.T) {
	s := newPollServer(t, PollOptions{}, deliver.Limits{})
	c := s.poll(t, "/g/worker-1")
	if c.resp.StatusCode != 200 {
		t.Errorf("status %d", c.resp.StatusCode)
	}
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"} {
		if got := c.resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if block, err := c.next(); block != greeting || err != nil {
		t.Errorf("first bytes %q, %v", block, err)
	}
	s.dispatch("tâche", "g")
	want := "data: {\"kind\":\"execute\",\"head\":{\"serverUrl\":\"http://abide:8001\"},\"data\":{\"task\":{\"id\":\"t\\u00e2che\",\"version\":0}}}\n\n"
	if got, err := c.message(); got != want || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestPollKeepsSilentStreamsAlive(t *testing.T) {
	s := newPollServer(t, PollOptions{KeepAlive: time.Millisecond}, deliver.Limits{})
	c := s.poll(t, "/g/a")
	for i := range 4 {
		want := keepAlive
		if i == 0 {
			want = greeting
		}
		if got, err := c.next(); got != want || err != nil {
			t.Fatalf("block %d: %q, %v", i, got, err)
		}
	}
}

func TestPollOutlivesTheServersTimeouts(t *testing.T) {
	patiently(t, func(timeout time.Duration) error {
		s := newTimedPollServer(t, timeout, PollOptions{}, deliver.Limits{})
		c, err := s.connect(t, "/g/a")
		if err != nil {
			return err
		}
		time.Sleep(timeout + timeout/5)
		s.dispatch("t", "g")
		got, err := c.message()
		if err == nil && !strings.Contains(got, `"id":"t"`) {
			t.Errorf("got %q", got)
		}
		return err
	})
}

// patiently tries what a timeout must not end, with ever longer ones: the first ones end also what a busy machine holds up.
func patiently(t *testing.T, try func(timeout time.Duration) error) {
	t.Helper()
	for timeout := 300 * time.Millisecond; ; timeout *= 2 {
		if err := try(timeout); err == nil {
			return
		} else if timeout > 10*time.Second {
			t.Fatal(err)
		}
	}
}

func TestPollEndsCleanly(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *pollServer){
		"age": func(*testing.T, *pollServer) {},
		"stop": func(t *testing.T, s *pollServer) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := s.d.Stop(ctx); err != nil {
				t.Error(err)
			}
		},
		"newer connection": func(t *testing.T, s *pollServer) { s.poll(t, "/g/a") },
	} {
		t.Run(name, func(t *testing.T) {
			patiently(t, func(timeout time.Duration) error {
				o := PollOptions{WriteTimeout: timeout}
				if name == "age" {
					o.MaxAge = 2 * timeout
				}
				s := newPollServer(t, o, deliver.Limits{})
				c := s.poll(t, "/g/a")
				if _, err := c.next(); err != nil {
					return err
				}
				time.Sleep(timeout + timeout/5) // the deadline of the last write is over
				end(t, s)
				rest, err := io.ReadAll(c.lines)
				if len(rest) > 0 {
					t.Errorf("rest %q", rest)
				}
				return err
			})
		})
	}
}

func TestPollRefusals(t *testing.T) {
	s := newPollServer(t, PollOptions{}, deliver.Limits{MaxConnections: 1})
	s.poll(t, "/g/a")
	refused := func(reason string) {
		t.Helper()
		c := s.poll(t, "/g/b")
		body, _ := io.ReadAll(c.resp.Body)
		if c.resp.StatusCode != 503 || !strings.HasPrefix(c.resp.Header.Get("Content-Type"), "text/plain") ||
			c.resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), reason) {
			t.Errorf("%d %v %q", c.resp.StatusCode, c.resp.Header, body)
		}
	}
	refused("largest number")
	s.d.Drain()
	refused("stopping")
}

func TestPollMessagesWaitForAWorker(t *testing.T) {
	// Nobody claims here: what keeps a slot is given up soon.
	s := newPollServer(t, PollOptions{}, deliver.Limits{WindowMs: 20, GatherMs: 1, PollMs: 20, HoldMs: 20})
	for i := range 1000 {
		s.dispatch(fmt.Sprintf("t%03d", i), "g")
	}
	c := s.poll(t, "/g/a")
	seen := map[string]bool{}
	for len(seen) < 1000 {
		m, err := c.message()
		if err != nil {
			t.Fatal(err)
		}
		if seen[m] {
			t.Fatalf("twice: %s", m)
		}
		seen[m] = true
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if s.box.left() == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d messages are still queued", s.box.left())
}

func TestPollLargeUnblockArrivesWhole(t *testing.T) {
	s := newPollServer(t, PollOptions{}, deliver.Limits{})
	c := s.poll(t, "/g/a")
	ref := deliver.UnblockRef{ID: "p", Address: "poll://uni@g/a"}
	p := protocol.Promise{ID: "p", State: protocol.Resolved, Value: protocol.Value(`{"data":"` + strings.Repeat("ü", 1<<20) + `"}`)}
	s.box.queueUnblock(ref, p)
	s.d.HintUnblock("default", ref)
	m, err := c.message()
	if err != nil || strings.Count(m, `\u00fc`) != 1<<20 || strings.Count(m, "\n") != 2 {
		t.Errorf("got %d bytes, %v", len(m), err)
	}
}

// A worker that has stopped reading must not hold up the others, and its messages must reach somebody else.
func TestPollDeadPeer(t *testing.T) {
	s := newPollServer(t, PollOptions{WriteTimeout: 50 * time.Millisecond}, deliver.Limits{})
	dead := dialPoll(t, s.addr, "/g/dead")
	defer func() { _ = dead.Close() }()
	waitConnections(t, s, 1)
	ref := deliver.UnblockRef{ID: "p", Address: "poll://uni@g/dead"}
	s.box.queueUnblock(ref, protocol.Promise{ID: "p", Value: protocol.Value(`{"data":"` + strings.Repeat("ü", 2<<20) + `"}`)})
	s.d.HintUnblock("default", ref)
	c := s.poll(t, "/g/live")
	for i := range 10 {
		s.dispatch(fmt.Sprintf("t%d", i), "g")
	}
	for got := map[string]bool{}; len(got) < 10; {
		m, err := c.message()
		if err != nil { // a busy machine held up a write of its own, too
			c = s.poll(t, "/g/live")
			continue
		}
		got[m] = true
	}
	waitConnections(t, s, 1)
}

func waitConnections(t *testing.T, s *pollServer, want int) {
	t.Helper()
	got := 0
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if got = s.d.Stats().Connections; got == want {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%d connections, want %d", got, want)
}

// dialPoll sends a poll request and reads nothing.
func dialPoll(t *testing.T, addr, path string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("counting file descriptors needs /proc")
	}
	return len(entries)
}

func TestPollAbruptResetsLeaveNothingBehind(t *testing.T) {
	s := newPollServer(t, PollOptions{}, deliver.Limits{MaxConnections: 2000})
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	reset := func(c *net.TCPConn) {
		_ = c.SetLinger(0) // close sends a reset
		_ = c.Close()
	}
	var first []byte
	for i := range 1000 {
		c := dialPoll(t, s.addr, fmt.Sprintf("/g%d/%d", i%7, i))
		switch i % 4 {
		case 0: // perhaps before the server has seen the request
		case 1: // in the middle of the response
			first = make([]byte, 20)
			_, _ = io.ReadFull(c, first)
		case 2: // while messages flow
			s.dispatch(fmt.Sprint("t", i), fmt.Sprintf("g%d", i%7))
		case 3: // a burst of the same worker
			reset(dialPoll(t, s.addr, fmt.Sprintf("/g%d/%d", i%7, i)))
		}
		reset(c)
	}
	waitConnections(t, s, 0)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if runtime.NumGoroutine() <= goroutines && openFiles(t) <= files {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d goroutines and %d files, before %d and %d", runtime.NumGoroutine(), openFiles(t), goroutines, files)
}

// BenchmarkPollDispatch is one message at a time through a real socket: hint, check, frame, claim.
func BenchmarkPollDispatch(b *testing.B) {
	s := newPollServer(b, PollOptions{}, deliver.Limits{})
	c := s.poll(b, "/g/a")
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprint("t", i)
		s.dispatch(id, "g")
		if _, err := c.message(); err != nil {
			b.Fatal(err)
		}
		s.box.claim(id)
		s.d.HintClaimed("default", id, 0)
	}
}
