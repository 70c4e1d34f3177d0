package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"abide/protocol"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Range and resolution of the latencies: microseconds up to ten minutes, three digits.
const (
	maxLatencyUs  = int64(10 * time.Minute / time.Microsecond)
	latencyDigits = 3
)

// leaseMs is the ttl of every claim: long enough that no lease ends during a run's operation.
const leaseMs = 60_000

// plan is what all clients of a run share; nobody changes it once they run.
type plan struct {
	target    target
	run       string // unique to the run; every id begins with it
	mode      Mode
	sizeBytes int
	seed      uint64
	sink      *sink     // of the modes of push, else nil
	timeoutAt string    // of every promise, decimal epoch ms
	getSet    int       // how many preloaded promises there are to read
	endBy     time.Time // nothing waits for an answer longer than that
	patient   bool      // Retry-After is obeyed
}

// client does one operation after the other. It is owned by one goroutine.
type client struct {
	*plan
	conn    *connection
	stream  *stream
	address string // of what it creates for workers

	receipts chan receipt // what was pushed to it
	began    time.Time    // when the latency of its operation began, if that is not with the operation

	group   string // its own, so that a message finds the client that waits for it
	prefix  string // of its ids
	made    int64  // promises that it has asked for; the next id's number
	payload string
	random  *rand.Rand
	id      []byte // of the promise in hand
	child   []byte
	corrID  int64

	tally tally
}

// tally is what a client has counted. Only what ends within the measured time is counted, but for objects.
type tally struct {
	measuring  func() bool
	latencies  *latencies
	operations int64
	requests   int64            // answered as expected
	errors     map[string]int64 // by status, or timeout, connection, stream
	objects    int64            // promises made, whenever
}

// latencies is a histogram of microseconds that a few clients share: one for each would take more memory
// than ten thousand connections do. Safe for concurrent use.
type latencies struct {
	mu        sync.Mutex
	histogram *hdrhistogram.Histogram
}

func newLatencies() *latencies {
	return &latencies{histogram: hdrhistogram.New(1, maxLatencyUs, latencyDigits)}
}

func (l *latencies) record(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.histogram.RecordValue(min(d.Microseconds(), maxLatencyUs))
}

func newClient(p *plan, name string, measuring func() bool, l *latencies) *client {
	random := rand.New(rand.NewPCG(p.seed, uint64(len(name))<<32^hashName(name)))
	return &client{
		plan:    p,
		conn:    newConnection(p.target),
		group:   "bench-" + p.run + "-" + name,
		address: "poll://any@bench-" + p.run + "-" + name,
		prefix:  "bench-" + p.run + "-" + name + "-",
		payload: makePayload(random, p.sizeBytes),
		random:  random,
		tally: tally{
			measuring: measuring,
			latencies: l,
			errors:    map[string]int64{},
		},
	}
}

// hashName is FNV-1a: each client draws its own numbers from the run's seed.
func hashName(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// makePayload is text of the alphabet that SDKs' payloads have, base64's.
func makePayload(random *rand.Rand, size int) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	text := make([]byte, size)
	for i := range text {
		text[i] = alphabet[random.IntN(len(alphabet))]
	}
	return string(text)
}

// connect opens what the client's mode needs, so that the run fails at once if there is no server.
func (c *client) connect() error {
	if err := c.conn.open(); err != nil {
		return err
	}
	if c.sink != nil {
		c.joinSink()
	}
	if c.mode == Dispatch || c.mode == Workflow {
		return c.openStream(time.Now().Add(operationTimeout))
	}
	return nil
}

func (c *client) openStream(deadline time.Time) (err error) {
	c.stream, err = openStream(c.target, c.group, "worker", deadline)
	return err
}

func (c *client) close() {
	c.conn.close()
	c.stream.close()
}

// operate does one operation and counts it. A failure is counted and costs a short pause, unless the server
// has answered: a server that is gone shall not be asked a million times a second whether it is.
func (c *client) operate() {
	start := time.Now()
	deadline := start.Add(operationTimeout)
	if deadline.After(c.endBy) {
		deadline = c.endBy
	}
	c.conn.limit(deadline)
	c.began = start
	end, err := c.operation(deadline)
	if err != nil {
		if c.tally.measuring() {
			c.tally.errors[errorName(err)]++
		}
		var status statusError
		switch {
		case !errors.As(err, &status):
			time.Sleep(10 * time.Millisecond)
		case c.patient:
			time.Sleep(c.conn.retryAfter)
		}
		return
	}
	if c.tally.measuring() {
		c.tally.operations++
		c.tally.latencies.record(end.Sub(c.began))
	}
}

func (c *client) operation(deadline time.Time) (end time.Time, err error) {
	switch c.mode {
	case Noop:
		err = c.noop()
	case Create:
		_, err = c.create()
	case Get:
		err = c.get()
	case Lifecycle:
		err = c.lifecycle()
	case Dispatch:
		return c.dispatch(deadline)
	case Workflow:
		err = c.workflow(deadline)
	case Push, PushHang:
		return c.push(deadline)
	case PushUnblock:
		return c.pushUnblock(deadline)
	}
	return time.Now(), err
}

// statusError is an answer with another status than the expected one.
type statusError struct {
	kind   protocol.Kind
	status int
	data   string // the beginning of the answer
}

func (e statusError) Error() string {
	return fmt.Sprintf("%s was answered %d: %s", e.kind, e.status, e.data)
}

// streamError is a failure of the message stream.
type streamError struct{ error }

func (e streamError) Unwrap() error { return e.error }

// errorName is the name under which an error is counted.
func errorName(err error) string {
	var status statusError
	var stream streamError
	switch {
	case errors.As(err, &status):
		return strconv.Itoa(status.status)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.As(err, &stream):
		return "stream"
	}
	return "connection"
}

// await waits until the execute message of the task id has come and returns its version. Messages of other
// tasks are left-overs of operations that failed, or repeats.
func (c *client) await(id []byte, atLeast int64, deadline time.Time) (version int64, err error) {
	for {
		if c.stream == nil {
			if err := c.openStream(deadline); err != nil {
				return 0, streamError{err}
			}
		}
		got, version, err := c.stream.next(deadline)
		switch {
		case err == nil && bytes.Equal(got, id) && version >= atLeast:
			return version, nil
		case err == nil:
			continue
		}
		c.stream.close()
		c.stream = nil
		// A server ends each stream cleanly before proxies would; what is not delivered is sent again.
		if !errors.Is(err, io.EOF) || isTimeout(err) {
			return 0, streamError{err}
		}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
