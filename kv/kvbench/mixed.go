package kvbench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"abide/kv"
)

// latency is a distribution of microseconds. Safe for concurrent use.
type latency struct {
	mu        sync.Mutex
	histogram *hdrhistogram.Histogram
}

func newLatency() *latency {
	const longestUs, digits = 60_000_000, 3
	return &latency{histogram: hdrhistogram.New(1, longestUs, digits)}
}

// time runs op and records how long it took.
func (l *latency) time(op func() error) error {
	start := time.Now()
	err := op()
	us := max(1, time.Since(start).Microseconds())
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.histogram.RecordValue(us) // what takes more than a minute is left out: the run has failed by then
	return err
}

func (l *latency) us(percentile float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(l.histogram.ValueAtPercentile(percentile))
}

// mixture is the load of mixed.
type mixture struct {
	*run
	subject *Subject
	space   *space
	next    func() uint64

	alone, beside, writing *latency
	transactions, log      atomic.Int64
	mark                   atomic.Uint64
}

// mixed times a reader of single keys alone and beside writers at full speed, and the writers, while a slow
// reader pages through everything.
func (r *run) mixed() error {
	return r.with("mixed", func(s *Subject) error {
		m := &mixture{
			run: r, subject: s, space: newSpace(r.SizeBytes, r.Seed), next: random(max(1, r.Keys/putsPerTx), r.Seed),
			alone: newLatency(), beside: newLatency(), writing: newLatency(),
		}
		if err := r.fill(s.Store, nil, m.space, r.Keys); err != nil {
			return err
		}
		if _, err := r.rate(r.For/2, m.read(m.alone)); err != nil {
			return err
		}
		passed, err := m.together()
		if err != nil {
			return err
		}
		r.figure("reads alone: p99", m.alone.us(99), "us", "")
		r.figure("reads beside writers: p50", m.beside.us(50), "us", "")
		r.figure("reads beside writers: p99", m.beside.us(99), "us", "<= 1000")
		r.figure("reads beside writers: p99 / p99 alone", m.beside.us(99)/m.alone.us(99), "ratio", "<= 10")
		r.figure("writes", float64(m.transactions.Load())/passed.Seconds(), "/s", "")
		r.figure("writes: p50", m.writing.us(50), "us", "")
		r.figure("writes: p99", m.writing.us(99), "us", "")
		r.figure("writes: p99 / p50", m.writing.us(99)/m.writing.us(50), "ratio", "<= 4")
		r.figure("largest log", float64(m.log.Load()), "bytes", "<= 268435456")
		return nil
	})
}

// read is one timed get in a snapshot of its own.
func (m *mixture) read(l *latency) func() (int, error) {
	return func() (int, error) {
		key := [][]byte{m.space.key(m.next(), 2)}
		return 1, l.time(func() error { return m.get(m.subject.Store, key) })
	}
}

// together lets the writers and the slow reader run beside the reader.
func (m *mixture) together() (passed time.Duration, err error) {
	ctx, stop := context.WithCancel(m.ctx)
	defer stop()
	failures := make(chan error, m.Clients+1)
	var running sync.WaitGroup
	loop := func(op func() error) {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := op(); err != nil && ctx.Err() == nil {
					failures <- err
					stop() // the others are of no use any more
					return
				}
			}
		})
	}
	for range m.Clients {
		loop(func() error {
			m.transactions.Add(1)
			return m.writing.time(func() error {
				return m.update(m.subject.Store, m.space, m.next(), m.mark.Add(putsPerTx), false)
			})
		})
	}
	loop(func() error { return m.slowly(ctx) })
	start := time.Now()
	_, err = m.rate(m.For, m.read(m.beside))
	passed = time.Since(start)
	stop()
	running.Wait()
	close(failures)
	for failure := range failures {
		err = errors.Join(err, failure)
	}
	return passed, err
}

// slowPause is how long the slow reader rests after each page.
const slowPause = 20 * time.Millisecond

// slowly walks through everything once, and notes the largest log that it saw.
func (m *mixture) slowly(ctx context.Context) error {
	_, err := walk(ctx, m.subject.Store, m.space.everything(), func() {
		m.log.Store(max(m.log.Load(), m.subject.LogBytes()))
		time.Sleep(slowPause)
	})
	return err
}

// get reads keys in one snapshot.
func (r *run) get(s kv.Store, keys [][]byte) error {
	return s.View(r.ctx, func(snap kv.Snapshot) error {
		for _, key := range keys {
			value, err := snap.Get(key)
			if err != nil {
				return err
			}
			if value == nil {
				return errMissing
			}
		}
		return nil
	})
}

var errMissing = errors.New("a key that was written is not there")
