package kv_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"abide/kv"
)

func TestPositionOrderIsIncarnationThenSequence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i, j := rapid.Uint32().Draw(t, "i"), rapid.Uint32().Draw(t, "j")
		m, n := rapid.Uint64().Draw(t, "m"), rapid.Uint64().Draw(t, "n")
		p, q := kv.NewPosition(i, m), kv.NewPosition(j, n)
		want := 0
		switch {
		case i < j || i == j && m < n:
			want = -1
		case i > j || m > n:
			want = 1
		}
		if got := p.Compare(q); got != want || bytes.Compare([]byte(p.String()), []byte(q.String())) != want {
			t.Fatalf("%v against %v: %d, want %d", p, q, got, want)
		}
		if p.Incarnation() != i || p.Sequence() != m {
			t.Fatalf("%v gives back %d and %d, want %d and %d", p, p.Incarnation(), p.Sequence(), i, m)
		}
	})
}

func TestZeroPositionIsBeforeEveryCommit(t *testing.T) {
	var zero kv.Position
	if !zero.IsZero() || zero.Compare(kv.NewPosition(0, 1)) >= 0 || zero.Compare(kv.NewPosition(1, 0)) >= 0 {
		t.Error("the zero position does not stand before every commit")
	}
	if kv.NewPosition(1, 1).IsZero() {
		t.Error("a commit has the zero position")
	}
}

func TestEntryPositionOrder(t *testing.T) {
	first, second := kv.NewPosition(1, 1), kv.NewPosition(1, 2)
	order := []kv.EntryPosition{{}, {first, 0}, {first, 1}, {first, kv.AfterCommit}, {second, 0}, {second, kv.AfterCommit}}
	for i, a := range order {
		for j, b := range order {
			want := 0
			switch {
			case i < j:
				want = -1
			case i > j:
				want = 1
			}
			if got := a.Compare(b); got != want {
				t.Errorf("%v against %v: %d, want %d", a, b, got, want)
			}
		}
	}
}
