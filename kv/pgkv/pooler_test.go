package pgkv_test

import (
	"bytes"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/kv/kvtest"
	"abide/kv/pgkv"
)

// Behind a pooler in transaction mode every transaction may run on another session. (G11)
func TestPooler(t *testing.T) {
	onOne(t, newest, func(t *testing.T, version string) {
		t.Parallel()
		server := testenv.Postgres(t, version)
		pooler := testenv.PgBouncer(t, server)
		proxy, between := through(t, pooler)
		h := harness(pgkv.Options{URL: pooler, ListenURL: server}, proxy, between, atPooledCommit)
		h.Operations = 300
		if long() {
			h.Operations = 20_000
		}
		kvtest.Run(t, h)
	})
}

// atPooledCommit is atCommit for statements that are not prepared.
func atPooledCommit(decide func() testenv.Fate) func([]byte) testenv.Fate {
	return func(piece []byte) testenv.Fate {
		if !bytes.Contains(piece, []byte("\x00COMMIT\x00")) {
			return testenv.Pass
		}
		return decide()
	}
}

// Notifications do not pass a pooler: the store says that it does not listen, and works.
func TestListeningThroughAPooler(t *testing.T) {
	server := testenv.Postgres(t, oldest)
	pooler := testenv.PgBouncer(t, server)
	deaf := open(t, pgkv.Options{URL: pooler})
	var l ledger
	for range 3 {
		if err := l.run(deaf); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(100 * time.Millisecond)
	if deaf.Stats().Listening {
		t.Error("the store says that it listens through a pooler")
	}
	l.check(t, deaf, deaf)
}
