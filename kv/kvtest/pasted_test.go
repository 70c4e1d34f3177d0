package kvtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"abide/kv"
	"abide/kv/memkv"
)

var opened *memkv.Store

func open(*testing.T) kv.Store {
	opened = memkv.Open(memkv.Options{})
	return opened
}

func reopen(*testing.T) kv.Store { return opened.Handle() }

// What follows is printed.

// program is the store that failed, and what is known of its positions.
type program struct {
	*testing.T
	s    kv.Store
	at   map[int]kv.Position
	last kv.Position
}

func (p *program) check(err error) {
	p.Helper()
	if err != nil {
		p.Error(err)
	}
}

func (p *program) same(what string, err error, want []string, got ...string) error {
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("%s gives %q, want %q", what, got, want)
	}
	return err
}

func (p *program) text(value []byte) string {
	if value == nil {
		return "<none>"
	}
	return string(value)
}

func (p *program) get(r kv.Reader, key string, want ...string) error {
	value, err := r.Get([]byte(key))
	return p.same("get", err, want, p.text(value))
}

func (p *program) getMany(r kv.Reader, a, b string, want ...string) error {
	values, err := r.GetMany([][]byte{[]byte(a), []byte(b), []byte(a)})
	var got []string
	for _, v := range values {
		got = append(got, p.text(v))
	}
	return p.same("get many", err, want, got...)
}

func (p *program) scan(r kv.Reader, start, end string, limit int, want ...string) error {
	entries, err := r.Scan(kv.Range{Start: []byte(start), End: []byte(end)}, limit)
	var got []string
	for _, e := range entries {
		got = append(got, string(e.Key)+"="+p.text(e.Value))
	}
	return p.same("scan", err, want, got...)
}

func (p *program) journal(v kv.Snapshot, partition string, after kv.EntryPosition, limit int, want ...string) error {
	entries, err := v.Journal([]byte(partition), after, limit)
	if errors.Is(err, kv.ErrExpired) {
		return p.same("journal", nil, want, "expired")
	}
	var got []string
	for _, e := range entries {
		got = append(got, string(e.Record))
	}
	return p.same("journal", err, want, got...)
}

func (p *program) place(statement int, index uint32) kv.EntryPosition {
	if p.at[statement].IsZero() {
		return kv.EntryPosition{}
	}
	return kv.EntryPosition{Commit: p.at[statement], Index: index}
}

func (p *program) update(statement int, writes bool, fn func(kv.Tx) error) error {
	at, err := kv.Run(context.Background(), p.s, kv.Hints{}, fn)
	if err == nil && (writes && at.Compare(p.last) <= 0 || !writes && !at.IsZero()) {
		err = fmt.Errorf("update %d has the position %v after %v", statement, at, p.last)
	}
	if p.at[statement] = at; writes {
		p.last = at
	}
	return err
}

func (p *program) fail(fn func(kv.Tx) error) error {
	meant := errors.New("meant")
	_, err := kv.Run(context.Background(), p.s, kv.Hints{}, func(tx kv.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return meant
	})
	if err == meant {
		return nil
	}
	return fmt.Errorf("a closure that fails: %w", err)
}

func (p *program) view(fn func(kv.Snapshot) error) error { return p.s.View(context.Background(), fn) }

func (p *program) compact(statement int, partition string, target, want kv.EntryPosition, wantMore bool) error {
	floor, more, err := kv.Compact(context.Background(), p.s, []byte(partition), target)
	if err == nil && (floor != want || more != wantMore) {
		err = fmt.Errorf("compaction gives %v, %v, want %v, %v", floor, more, want, wantMore)
	}
	return errors.Join(err, p.view(func(v kv.Snapshot) error {
		if v.Bound().Compare(p.last) > 0 {
			p.at[statement], p.last = v.Bound(), v.Bound()
		}
		return nil
	}))
}

func TestHistory(t *testing.T) {
	p := &program{T: t, s: open(t), at: map[int]kv.Position{}}
	p.check(p.update(1, true, func(tx kv.Tx) error {
		return errors.Join(
			tx.Put([]byte("a"), []byte("1")),
			tx.Put([]byte("b\x00"), []byte(strings.Repeat("v", 100))),
			p.get(tx, "a", "1"),
			p.getMany(tx, "a", "absent", "1", "<none>", "1"),
			tx.Append([]byte("p"), []byte("first")),
			tx.Append([]byte("p"), []byte("second")),
		)
	}))
	p.check(p.fail(func(tx kv.Tx) error {
		return errors.Join(
			tx.Delete([]byte("a")),
			p.scan(tx, "", "\xff", 5, "b\x00="+strings.Repeat("v", 100)),
		)
	}))
	p.check(p.view(func(v kv.Snapshot) error {
		if err := p.scan(v, "a", "b", 5, "a=1"); err != nil {
			return err
		}
		if err := p.update(4, true, func(tx kv.Tx) error {
			return errors.Join(
				tx.Delete([]byte("a")),
				tx.Append([]byte("p"), []byte("third")),
			)
		}); err != nil {
			return err
		}
		if err := p.get(v, "a", "1"); err != nil {
			return err
		}
		if err := p.compact(5, "p", p.place(1, 0), p.place(1, 0), false); err != nil {
			return err
		}
		if err := p.journal(v, "p", kv.EntryPosition{}, 10, "first", "second"); err != nil {
			return err
		}
		return nil
	}))
	p.check(p.s.Close())
	p.s = reopen(t)
	p.check(p.view(func(v kv.Snapshot) error {
		if err := p.journal(v, "p", p.place(1, 0), 10, "second", "third"); err != nil {
			return err
		}
		if err := p.journal(v, "p", kv.EntryPosition{}, 10, "expired"); err != nil {
			return err
		}
		if err := p.journal(v, "p", p.place(4, kv.AfterCommit), 10); err != nil {
			return err
		}
		return nil
	}))
	p.check(p.compact(8, "p", p.place(4, 0), p.place(4, 0), false))
	p.check(p.view(func(v kv.Snapshot) error {
		return p.scan(v, "", "\xff", 10000, "b\x00="+strings.Repeat("v", 100))
	}))
}
