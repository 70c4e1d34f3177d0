package bench

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"abide/protocol"
)

// The modes that measure push. The runner listens on ports of its own, so the server must run on this machine and be
// allowed to send to it; an own server is.
const (
	// Push creates a promise that is targeted at a port of the runner. Its latency is from then until its message is there.
	Push Mode = "push"
	// PushHang is Push beside a tenth port that takes requests and never answers: each client creates a promise for it with
	// every tenth of its operations, which is not waited for.
	PushHang Mode = "push-hang"
	// PushUnblock creates a promise, registers a port of the runner as a listener and settles it. Its latency is from the
	// settlement until the message is there.
	PushUnblock Mode = "push-unblock"
)

// PushModes lists them.
func PushModes() []Mode { return []Mode{Push, PushHang, PushUnblock} }

const (
	// sinks is how many ports, which are hosts to a server, the messages of a run go to.
	sinks = 9
	// hangEvery is every which operation of a client in PushHang is one for the port that hangs as well.
	hangEvery = 10
	// sinkFlags lets an own server send to the runner.
	sinkFlags = "--transports-http-push-allow=127.0.0.1"
	// maxMessageBytes is how much of a message is read.
	maxMessageBytes = 4 << 20
)

// pushes reports whether a mode measures push.
func (m Mode) pushes() bool { return m == Push || m == PushHang || m == PushUnblock }

// receipt is a message that has arrived.
type receipt struct {
	id string
	at time.Time
}

// sink is where messages are pushed to: some ports that take them, and one that hangs. Safe for concurrent use.
type sink struct {
	urls    []string
	hanging string
	servers []*http.Server
	over    chan struct{}

	mu     sync.Mutex
	groups map[string]chan receipt // by the group that ids begin with
}

// openSink listens.
func openSink() (*sink, error) {
	s := &sink{over: make(chan struct{}), groups: map[string]chan receipt{}}
	for i := range sinks + 1 {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			s.close()
			return nil, fmt.Errorf("cannot listen for messages: %w", err)
		}
		server := &http.Server{Handler: http.HandlerFunc(s.take), ReadHeaderTimeout: operationTimeout}
		url := "http://" + l.Addr().String() + "/"
		if i == sinks {
			server.Handler, s.hanging = http.HandlerFunc(s.hang), url
		} else {
			s.urls = append(s.urls, url)
		}
		s.servers = append(s.servers, server)
		go func() { _ = server.Serve(l) }()
	}
	return s, nil
}

// close ends it. It may be called on nil.
func (s *sink) close() {
	if s == nil {
		return
	}
	close(s.over)
	for _, server := range s.servers {
		_ = server.Close()
	}
}

// join gives a client its messages: those whose ids begin with its group.
func (s *sink) join(group string) chan receipt {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan receipt, 16) // a client waits for one at a time; a repetition finds room or is dropped
	s.groups[group] = c
	return c
}

func (s *sink) take(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxMessageBytes))
	if err != nil {
		return
	}
	at := time.Now()
	_, rest, _ := bytes.Cut(body, []byte(`"id":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	last := bytes.LastIndexByte(id, '-')
	if last < 0 {
		return
	}
	s.mu.Lock()
	to := s.groups[string(id[:last])]
	s.mu.Unlock()
	select {
	case to <- receipt{string(id), at}:
	default:
	}
}

func (s *sink) hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // only then the end of the connection shows
	select {
	case <-r.Context().Done():
	case <-s.over:
	}
}

// joinSink has the client's messages come to it, at the port of its turn.
func (c *client) joinSink() {
	c.receipts = c.sink.join(c.group)
	c.address = c.sink.urls[hashName(c.group)%sinks]
}

// received waits for the message about id.
func (c *client) received(id []byte, deadline time.Time) (time.Time, error) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for {
		select {
		case r := <-c.receipts:
			if r.id == string(id) {
				return r.at, nil
			}
		case <-timer.C:
			return time.Time{}, errNoMessage
		}
	}
}

// errNoMessage counts as a timeout.
var errNoMessage = fmt.Errorf("the message did not come: %w", os.ErrDeadlineExceeded)

// push is the operation of Push and PushHang.
func (c *client) push(deadline time.Time) (end time.Time, err error) {
	if c.mode == PushHang && c.made%(hangEvery+1) == 0 {
		own := c.address
		c.address = c.sink.hanging
		err := c.createAs(c.newID(), true)
		if c.address = own; err != nil {
			return time.Time{}, err
		}
	}
	c.began = time.Now()
	id := c.newID()
	if err := c.createAs(id, true); err != nil {
		return time.Time{}, err
	}
	return c.received(id, deadline)
}

// pushUnblock is the operation of PushUnblock.
func (c *client) pushUnblock(deadline time.Time) (end time.Time, err error) {
	id, err := c.create()
	if err != nil {
		return time.Time{}, err
	}
	b := appendMember(c.begin(protocol.KindPromiseRegisterListener), "awaited", id)
	b = appendMember(append(b, ','), "address", []byte(c.address))
	if err := c.send(protocol.KindPromiseRegisterListener, b, protocol.StatusOK); err != nil {
		return time.Time{}, err
	}
	c.began = time.Now()
	if err := c.send(protocol.KindPromiseSettle, c.appendSettlement(c.begin(protocol.KindPromiseSettle), id), protocol.StatusOK); err != nil {
		return time.Time{}, err
	}
	return c.received(id, deadline)
}
