package engine

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"abide/internal/keyspace"
	"abide/kv"
	"abide/kv/memkv"
	"abide/protocol"
)

// written is a store that keeps what its transactions write.
type written struct {
	kv.Store
	values [][]byte
	bytes  int
}

func (s *written) Update(ctx context.Context, h kv.Hints, fn func(kv.Tx) error) (kv.Position, error) {
	return s.Store.Update(ctx, h, func(tx kv.Tx) error { return fn(writtenTx{tx, s}) })
}

type writtenTx struct {
	kv.Tx
	store *written
}

func (t writtenTx) keep(value []byte) {
	t.store.values = append(t.store.values, bytes.Clone(value))
	t.store.bytes += len(value)
}

func (t writtenTx) Put(key, value []byte) error {
	t.keep(value)
	return t.Tx.Put(key, value)
}

func (t writtenTx) Append(partition, record []byte) error {
	t.keep(record)
	return t.Tx.Append(partition, record)
}

// Whatever happens to a task after its birth, no byte of a large payload is written again, and what is written does not
// depend on how large it is: in the records, in the journal, in anything.
func TestNoPayloadIsWrittenTwice(t *testing.T) {
	const mark = "payload."
	target := tags(protocol.TagTarget, "poll://any@g")
	sizes := map[int]int{} // size of the payload -> bytes written after birth
	for _, size := range []int{keyspace.InlineBytes + 1, 100_000, protocol.MaxBodyBytes - 500} {
		inner := memkv.Open(memkv.Options{Queued: true, Keys: keyspace.Register()})
		t.Cleanup(func() { inner.Close() })
		s := &written{Store: inner}
		f := fixtureOver(t, s, newManual())
		param := protocol.MakeValue(nil, strings.Repeat(mark, size/len(mark)+1))
		f.do(200, &protocol.PromiseCreate{ID: "p", TimeoutAt: far, Param: param, Tags: target})
		if s.bytes < len(param) {
			t.Fatalf("%d bytes of %d were written at birth", s.bytes, len(param))
		}
		s.values, s.bytes = nil, 0
		f.do(200, &protocol.TaskAcquire{ID: "p", PID: "w", TTL: 10_000})
		f.clock.advance(time.Second)
		f.do(200, &protocol.TaskHeartbeat{PID: "w", Tasks: []protocol.TaskRef{{ID: "p", Version: 1}}})
		f.do(200, &protocol.TaskHeartbeat{PID: "w"})
		f.do(200, &protocol.TaskRelease{ID: "p", Version: 1})
		f.do(200, &protocol.TaskAcquire{ID: "p", Version: 1, PID: "w", TTL: 10_000})
		f.clock.advance(11 * time.Second)
		f.fireDue()
		f.do(200, &protocol.PromiseRegisterListener{Awaited: "p", Address: "poll://uni@g/w"})
		f.do(200, &protocol.TaskHalt{ID: "p"})
		f.do(200, &protocol.TaskContinue{ID: "p"})
		if len(s.values) < 8 {
			t.Errorf("only %d values were written", len(s.values))
		}
		for _, v := range s.values {
			if bytes.Contains(v, []byte(mark)) {
				t.Errorf("a payload of %d bytes: written again, in a value of %d bytes", size, len(v))
			}
		}
		sizes[size] = s.bytes
		if p := f.do(200, &protocol.PromiseSettle{ID: "p", State: protocol.Resolved, Value: param}).Body.(protocol.PromiseBody).Promise; string(p.Param) != string(param) || string(p.Value) != string(param) {
			t.Errorf("%d bytes came back as %d and %d", len(param), len(p.Param), len(p.Value))
		}
	}
	for size, n := range sizes {
		if least := sizes[keyspace.InlineBytes+1]; n > least+20 { // the size itself takes more digits
			t.Errorf("%d bytes written for a payload of %d, %d for a small one", n, size, least)
		}
	}
}
