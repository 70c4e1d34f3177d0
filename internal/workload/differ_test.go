package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"abide/internal/api"
	"abide/internal/engine"
	"abide/internal/keyspace"
	"abide/kv/sqlitekv"
)

const serverRetryMs = 30_000

// bigDrain is more than the 256 waiters that the server wakes in one transaction.
const bigDrain = 300

// handlerServer posts to an API without sockets.
type handlerServer struct{ handler http.Handler }

func (s handlerServer) Post(path string, body []byte) (int, []byte, error) {
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
	return w.Code, w.Body.Bytes(), nil
}

// startServer is a whole server on SQLite, but for the sockets and the delivery.
func startServer(t *testing.T) Server {
	t.Helper()
	store, err := sqlitekv.Open(sqlitekv.Options{Path: filepath.Join(t.TempDir(), "abide.db"), Keys: keyspace.Register(), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	e, err := engine.Open(context.Background(), store, engine.Options{RetryTimeoutMs: serverRetryMs})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(e, api.Options{Debug: true})
	if err != nil {
		t.Fatal(err)
	}
	return handlerServer{handler}
}

// TestDifferential asks the same of the server and of the model.
func TestDifferential(t *testing.T) {
	runs, requests := 3, 2000
	if os.Getenv("ABIDE_LONG") != "" {
		runs = 300
	}
	server := startServer(t)
	met := NewCoverage()
	for seed := range runs {
		run := NewRun(server, fmt.Sprintf("seed%d-", seed), serverRetryMs)
		g := NewGenerator(uint64(seed))
		if seed%3 == 0 {
			g.BigDrain = bigDrain
		}
		err := run.Generate(g, requests, 100)
		met.Merge(run.Coverage)
		var found *Difference
		if errors.As(err, &found) {
			short := Shrink(found, Replayer(server, fmt.Sprintf("shrink%d", seed), serverRetryMs))
			t.Fatalf("seed %d: the server and the model differ:\n%v", seed, short)
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%d runs of %d requests, %d situations", runs, requests, len(met.Situations()))
}
