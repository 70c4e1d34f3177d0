package mysqlkv

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/kv"
)

// What another server has committed is made durable before it is shown, where the database shows it early; once, and not
// for this server's own commits.
func TestForeignCommitsAreFlushed(t *testing.T) {
	wants := map[string]uint64{testenv.MariaDB10: 1, testenv.MySQL8: 0} // which has a binary log
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			want := wants[kind]
			url := testenv.MySQL(t, kind)
			a, b := openStore(t, Options{URL: url, Now: time.Now}), openStore(t, Options{URL: url, Now: time.Now})
			defer a.Close()
			defer b.Close()
			view := func(tx kv.Snapshot) error { _, err := tx.Get([]byte("a")); return err }
			read := func(tx kv.Tx) error { _, err := tx.Get([]byte("a")); return err }
			flushes := func(name string, want uint64, do func() error) {
				t.Helper()
				before := b.Stats().Flushes
				if err := do(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if got := b.Stats().Flushes - before; got != want {
					t.Errorf("%s: %d flushes, want %d", name, got, want)
				}
			}
			viewing := func() error { return b.View(context.Background(), view) }
			reading := func() error { _, err := b.Update(context.Background(), kv.Hints{}, read); return err }
			writing := func() error { _, err := b.Update(context.Background(), kv.Hints{}, counting("b")); return err }
			commit := func(key string) {
				t.Helper()
				if o := addOnce(t, a, key); o != kv.OutcomeCommitted {
					t.Fatal(o)
				}
			}
			flushes("its own commit", 0, writing)
			flushes("a view of it", 0, viewing)
			commit("1")
			flushes("a view of another's", want, viewing)
			flushes("the same again", 0, viewing)
			commit("2")
			flushes("a transaction that reads another's", want, reading)
			flushes("the same again", 0, reading)
			commit("3")
			flushes("a commit after another's", 0, writing)
			flushes("a view after that", 0, viewing)
		})
	}
}

// Who has read what is under way waits for that commit, and not for longer than its context.
func TestHorizonWaits(t *testing.T) {
	h := newHorizon(&counters{})
	h.showsEarly.Store(true)
	h.commits(7)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := h.seen(ctx, 7); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before the commit: %v", err)
	}
	done := make(chan error)
	go func() { done <- h.seen(context.Background(), 6) }()
	h.reach(7)
	h.commits(0)
	if err := <-done; err != nil {
		t.Error(err)
	}
	h.dial = func(context.Context) (*session, error) { return nil, errors.New("no server") }
	if err := h.seen(context.Background(), 8); !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("beyond the horizon without a server: %v", err)
	}
	if h.reach(9); h.at() != 9 || h.seen(context.Background(), 9) != nil {
		t.Errorf("the horizon is at %d", h.at())
	}
}

// The answer to what became of a commit rests on the row of its writer, and on how many rows are kept.
func TestWriterRows(t *testing.T) {
	many := map[string]uint64{"w": 100}
	for i := range writersKept {
		many[fmt.Sprint(i)] = uint64(200 + i)
	}
	for _, tc := range []struct {
		rows   map[string]uint64
		writer string
		last   uint64
		want   kv.Outcome
	}{
		{map[string]uint64{}, "w", 5, kv.OutcomeNotCommitted},
		{map[string]uint64{"w": 5, "x": 9}, "w", 5, kv.OutcomeCommitted},
		{map[string]uint64{"w": 4, "x": 9}, "w", 5, kv.OutcomeNotCommitted},
		{map[string]uint64{"w": 6}, "w", 5, kv.OutcomeUnknown},
		{many, "w", 150, kv.OutcomeNotCommitted},
		{many, "y", 150, kv.OutcomeUnknown},
		{many, "y", 250, kv.OutcomeNotCommitted},
	} {
		rows := &writerRows{last: tc.rows}
		if got := rows.outcome(tc.writer, tc.last); got != tc.want {
			t.Errorf("%s at %d among %d: %v, want %v", tc.writer, tc.last, len(tc.rows), got, tc.want)
		}
	}
	for _, bad := range []kv.Token{"", "x", "-1", "61626364656667686970-", "61626364656667686970-x", "616263-1"} {
		if _, _, ok := splitToken(bad); ok {
			t.Errorf("the token %q passes", bad)
		}
	}
	if opened, last, ok := splitToken(token("0123456789", 77)); !ok || opened != "0123456789" || last != 77 {
		t.Errorf("a token comes back as %q, %d, %v", opened, last, ok)
	}
}

// Rows of writers long gone are removed, and another process can ask what became of a commit of theirs.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	url := testenv.MySQL(t, testenv.MariaDB10)
	var first kv.Token
	for i := range writersKept + 6 {
		s := openStore(t, Options{URL: url, Now: time.Now})
		at, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error { return tx.Put([]byte("a"), []byte{byte(i)}) })
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			// As the batch makes it.
			first = token(s.engine.opened, at.Sequence()) + kv.Token("/1")
		}
		if i == 1 {
			if outcome, _, err := s.Resolve(context.Background(), first); outcome != kv.OutcomeCommitted || err != nil {
				t.Errorf("the outcome of another process's commit is %v, %v", outcome, err)
			}
		}
		if i == writersKept+5 {
			s.engine.turn.Lock()
			rows, err := s.engine.readWriters()
			s.engine.turn.Unlock()
			if err != nil || len(rows.last) < writersKept || len(rows.last) > writersKept+1 {
				t.Errorf("%d rows are kept, %v", len(rows.last), err)
			}
			if outcome, _, err := s.Resolve(context.Background(), first); outcome != kv.OutcomeUnknown || err != nil {
				t.Errorf("the outcome of a commit long gone is %v, %v", outcome, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
