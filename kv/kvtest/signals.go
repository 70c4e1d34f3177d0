package kvtest

import (
	"errors"
	"sync"

	"abide/kv"
)

var signalTests = []test{
	{"signals come with the commit, coalesced", testSignals},
	{"nothing that did not commit signals", testNoSignals},
	{"a subscription ends", testSignalsStop},
}

// recorder keeps the signals that it gets.
type recorder struct {
	mu  sync.Mutex
	got []kv.Signal
}

func (r *recorder) record(signals []kv.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, signals...)
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, s := range r.got {
		out = append(out, s.Topic+":"+s.Body)
	}
	r.got = nil
	return out
}

// An engine whose signals travel may deliver them after Update has returned. The engines of this suite are
// their own only senders, so they come before.
func testSignals(f *fixture) {
	var r recorder
	defer f.Store.Signals(r.record)()
	f.update(func(tx kv.Tx) error {
		for _, s := range []kv.Signal{{Topic: "timer", Body: "1"}, {Topic: "outbox", Body: "g"}, {Topic: "timer", Body: "1"}, {Topic: "timer", Body: "2"}} {
			tx.Signal(s)
		}
		return tx.Put([]byte("k"), nil)
	})
	wantStrings(f, "the signals", r.take(), []string{"timer:1", "outbox:g", "timer:2"})
	f.update(func(tx kv.Tx) error { tx.Signal(kv.Signal{Topic: "timer", Body: "1"}); return tx.Append(nil, nil) })
	wantStrings(f, "the signals of the next commit", r.take(), []string{"timer:1"})
	f.update(func(tx kv.Tx) error {
		for i := range 40 {
			tx.Signal(kv.Signal{Topic: string(rune('a' + i%20))})
		}
		return tx.Put([]byte("k"), nil)
	})
	if n := len(r.take()); n != 20 {
		f.Errorf("%d signals, want 20 different ones", n)
	}
}

func testNoSignals(f *fixture) {
	var r recorder
	defer f.Store.Signals(r.record)()
	signal := kv.Signal{Topic: "t"}
	f.update(func(tx kv.Tx) error { tx.Signal(signal); return nil })
	f.fails(errOwn, func(tx kv.Tx) error {
		tx.Signal(signal)
		return errors.Join(tx.Put([]byte("k"), nil), errOwn)
	})
	f.fails(kv.ErrLimit, func(tx kv.Tx) error { tx.Signal(signal); return tx.Put(nil, nil) })
	wantStrings(f, "the signals", r.take(), nil)
}

func testSignalsStop(f *fixture) {
	var one, two recorder
	stop := f.Store.Signals(one.record)
	defer f.Store.Signals(two.record)()
	send := func() {
		f.update(func(tx kv.Tx) error { tx.Signal(kv.Signal{Topic: "t"}); return tx.Put([]byte("k"), nil) })
	}
	send()
	stop()
	stop()
	send()
	wantStrings(f, "the signals of the one that stopped", one.take(), []string{"t:"})
	wantStrings(f, "the signals of the one that did not", two.take(), []string{"t:", "t:"})
}
