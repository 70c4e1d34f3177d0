package kvtest

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"abide/kv"
)

var errorTests = []test{
	{name: "an error names its store, its operation and the kind of its key, never the key", run: testErrorNames},
	{name: "an error of the transaction is final", run: testErrorIsFinal},
	{name: "a transaction that is over says so", run: testTxDone},
	{name: "a token that is not the store's", run: testForeignToken},
	{name: "a closure's own error comes back as it is", run: testOwnError},
}

// testErrorNames makes one error of each operation and looks at what it says.
func testErrorNames(f *fixture) {
	long := append([]byte("k"), bytes.Repeat([]byte("secret"), kv.MaxKeyBytes/6+1)...)
	value := bytes.Repeat([]byte("secret"), kv.MaxValueBytes/6+1)
	for _, tc := range []struct {
		op, kind string
		inTx     func(kv.Tx) error
		inView   func(kv.Snapshot) error
	}{
		{op: "get", kind: "kind k", inTx: func(tx kv.Tx) error { _, err := tx.Get(long); return err }},
		{op: "get", kind: "kind k", inView: func(s kv.Snapshot) error { _, err := s.Get(long); return err }},
		{op: "get", kind: "kind k", inTx: func(tx kv.Tx) error { _, err := tx.GetMany([][]byte{long}); return err }},
		{op: "put", kind: "kind k", inTx: func(tx kv.Tx) error { return tx.Put(long, nil) }},
		{op: "put", kind: "kind k", inTx: func(tx kv.Tx) error { return tx.Put([]byte("k1"), value) }},
		{op: "put", kind: "other kind", inTx: func(tx kv.Tx) error { return tx.Put([]byte("x"), value) }},
		{op: "delete", kind: "kind k", inTx: func(tx kv.Tx) error { return tx.Delete(long) }},
		{op: "scan", kind: "kind k", inTx: func(tx kv.Tx) error { _, err := tx.Scan(kv.Range{Start: []byte("k"), End: long}, 1); return err }},
		{op: "scan", kind: "kind k", inView: func(s kv.Snapshot) error { _, err := s.Scan(kv.Range{Start: []byte("k")}, 1); return err }},
		{op: "append", kind: kv.KindEntry, inTx: func(tx kv.Tx) error { return tx.Append([]byte("secret"), value) }},
		{op: "append", kind: kv.KindEntry, inTx: func(tx kv.Tx) error { return tx.Append(value, nil) }},
		{op: "journal", kind: kv.KindEntry, inView: func(s kv.Snapshot) error { _, err := s.Journal(value, kv.EntryPosition{}, 1); return err }},
		{op: "signal", inTx: func(tx kv.Tx) error { tx.Signal(kv.Signal{Body: string(value)}); return nil }},
	} {
		var err error
		if tc.inTx != nil {
			_, err = f.Store.Update(context.Background(), kv.Hints{}, tc.inTx)
		} else {
			err = f.Store.View(context.Background(), tc.inView)
		}
		var known *kv.Error
		if !errors.As(err, &known) || !errors.Is(err, kv.ErrLimit) {
			f.Errorf("%s: %v, want a *kv.Error that is ErrLimit", tc.op, err)
			continue
		}
		if known.Store == "" || known.Op != tc.op || known.KeyKind != tc.kind || known.Detail == "" {
			f.Errorf("%s: store %q, operation %q, kind of key %q, detail %q; want kind %q", tc.op, known.Store, known.Op, known.KeyKind, known.Detail, tc.kind)
		}
		if text := err.Error(); strings.Contains(text, "secret") || !strings.Contains(text, known.Store) || !strings.Contains(text, tc.op) {
			f.Errorf("%s: the message is %q", tc.op, text[:min(len(text), 200)])
		}
	}
}

// testErrorIsFinal overlooks errors: a closure must not commit the half that worked.
func testErrorIsFinal(f *fixture) {
	f.fails(kv.ErrLimit, func(tx kv.Tx) error {
		_ = tx.Put([]byte("a"), nil)
		_ = tx.Put(nil, nil)
		return tx.Put([]byte("b"), nil)
	})
	f.fails(kv.ErrLimit, func(tx kv.Tx) error {
		_ = tx.Put([]byte("a"), nil)
		_, _ = tx.Get(nil)
		return nil
	})
	f.fails(kv.ErrLimit, func(tx kv.Tx) error {
		_ = tx.Append([]byte("p"), nil)
		_, _ = tx.Scan(everything, 0)
		return nil
	})
	f.wantContent()
	wantStrings(f, "the records", showJournal(f.journal("p", kv.EntryPosition{}, 10)), nil)
}

func testTxDone(f *fixture) {
	var tx kv.Tx
	f.update(func(t kv.Tx) error { tx = t; return t.Put([]byte("a"), []byte("1")) })
	var failed kv.Tx
	f.fails(errOwn, func(t kv.Tx) error { failed = t; return errOwn })
	var snapshot kv.Snapshot
	f.view(func(s kv.Snapshot) error { snapshot = s; return nil })
	for name, call := range map[string]func() error{
		"Get":              func() error { _, err := tx.Get([]byte("a")); return err },
		"GetMany":          func() error { _, err := tx.GetMany([][]byte{[]byte("a")}); return err },
		"Scan":             func() error { _, err := tx.Scan(everything, 1); return err },
		"Put":              func() error { return tx.Put([]byte("a"), nil) },
		"Delete":           func() error { return tx.Delete([]byte("a")) },
		"Append":           func() error { return tx.Append(nil, nil) },
		"failed Get":       func() error { _, err := failed.Get([]byte("a")); return err },
		"failed Put":       func() error { return failed.Put([]byte("a"), nil) },
		"snapshot Get":     func() error { _, err := snapshot.Get([]byte("a")); return err },
		"snapshot GetMany": func() error { _, err := snapshot.GetMany([][]byte{[]byte("a")}); return err },
		"snapshot Scan":    func() error { _, err := snapshot.Scan(everything, 1); return err },
		"snapshot Journal": func() error { _, err := snapshot.Journal(nil, kv.EntryPosition{}, 1); return err },
	} {
		if err := call(); !errors.Is(err, kv.ErrTxDone) {
			f.Errorf("%s: %v, want ErrTxDone", name, err)
		}
	}
	tx.Signal(kv.Signal{Topic: "late"})
	f.wantContent("a=1")
}

func testForeignToken(f *fixture) {
	for _, token := range []kv.Token{"", "x", "x/y", "another-1/1"} {
		outcome, at, err := f.Store.Resolve(context.Background(), token)
		if outcome != kv.OutcomeUnknown || !at.IsZero() || (err != nil && !errors.Is(err, kv.ErrLimit)) {
			f.Errorf("token %q: %v, %v, %v", token, outcome, at, err)
		}
	}
}

type typedError struct{ code int }

func (typedError) Error() string { return "typed" }

func testOwnError(f *fixture) {
	own := &typedError{7}
	if _, err := f.Store.Update(context.Background(), kv.Hints{}, func(kv.Tx) error { return own }); err != error(own) {
		f.Errorf("from an update: %v", err)
	}
	if err := f.Store.View(context.Background(), func(kv.Snapshot) error { return own }); err != error(own) {
		f.Errorf("from a view: %v", err)
	}
}
