package sqlitekv

import (
	"context"
	"path/filepath"
	"testing"

	"abide/kv"
)

// Recovery believes the file alone: a commit whose outcome SQLite could not tell is committed if its number is in the
// file, and lost if it is not; then its numbers are given up.
func TestRecoveryBelievesTheFile(t *testing.T) {
	for name, missing := range map[string]uint64{"it is there": 0, "it is not": 1} {
		t.Run(name, func(t *testing.T) {
			s := openAt(t, Options{Path: filepath.Join(t.TempDir(), "a.db")})
			var last kv.Position
			for range 3 {
				at, err := s.Update(t.Context(), kv.Hints{}, func(tx kv.Tx) error { return tx.Put([]byte("a"), []byte("1")) })
				if err != nil {
					t.Fatal(err)
				}
				last = at
			}
			// The writer hears of a failure after the third commit, or before a fourth that never came.
			w, number := s.writer, last.Sequence()+missing
			u := &unknownCommit{last: number}
			w.poisoned, w.pending, w.unknown = true, u, []*unknownCommit{u}
			want := kv.OutcomeCommitted
			if missing > 0 {
				want = kv.OutcomeNotCommitted
			}
			if got, err := w.Resolve(context.Background(), w.token(u)); err != nil || got != want {
				t.Errorf("resolved: %v, %v; want %v", got, err, want)
			}
			at, err := s.Update(t.Context(), kv.Hints{}, func(tx kv.Tx) error { return tx.Put([]byte("b"), []byte("2")) })
			if err != nil || at.Sequence() != number+1 {
				t.Errorf("the next commit is %v, %v; want number %d", at, err, number+1)
			}
		})
	}
}
