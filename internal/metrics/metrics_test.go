package metrics

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"abide/internal/deliver"
	"abide/internal/engine"
	"abide/internal/keyspace"
	"abide/internal/push"
	"abide/internal/store"
	"abide/internal/trace"
	"abide/kv/batch"
)

var update = flag.Bool("update", false, "rewrite the golden files; read the difference before committing it")

// sample are sources in which every number is another one.
func sample() Sources {
	n := uint64(0)
	next := func() uint64 { n++; return n }
	st := Store{Engine: "postgres", Writable: true, FileBytes: 1 << 20, LogBytes: 1 << 10, DiskFreeBytes: 1 << 30, Remote: &Remote{
		WriteTrips: next(), ReadTrips: next(), Failures: map[string]uint64{"40P01": next()}, LockWaits: next(), LockWait: time.Second,
		Connects: next(), Resolved: next(), Readers: int(next()), Reading: int(next()), ReaderWaits: next(), Hints: next(), Listening: true,
	}}
	b := &st.Batch
	b.Commits, b.Closures, b.Queued, b.Refused, b.Reruns = next(), next(), int(next()), next(), next()
	b.Conflicts, b.Unavailable, b.Unknown, b.Corrupt = next(), next(), next(), next()
	b.CommitTimes, b.CommitTime = [batch.CommitClasses]uint64{1: 2, 4: 3, batch.CommitClasses - 1: 1}, 3*time.Second
	b.Batches = [batch.BatchSizes]uint64{0: 4, 8: 5}
	counts := engine.Counts{Quarantined: int64(next()), Failures: int64(next()), ExpiredUnblocks: int64(next()), Swept: int64(next()), Compacted: int64(next())}
	for kind := range counts.StepsOf {
		counts.StepsOf[kind] = int64(next())
	}
	var d deliver.Stats
	for i := range d.Messages {
		d.Messages[i] = deliver.MessageStats{Sent: next(), Claimed: next(), Delivered: next(), Late: next(), Expired: next(), Resent: next(), GivenUp: next(), InFlight: int(next()), Held: int(next())}
	}
	d.Connections, d.Refused, d.Replaced, d.HintsDropped = int(next()), next(), next(), next()
	d.Errors[0] = next()
	d.Groups = []deliver.GroupStats{{Workspace: "default", Group: "g", Connections: 3}}
	pushed := push.Stats{Transports: []push.TransportStats{{Name: "http", Accepted: next(), Failed: next(), Refused: next(), Dropped: next(),
		Sending: int(next()), Ready: int(next()), Resting: int(next()), Failing: int(next()), Lanes: 1000, OldestMs: 5500}},
		Outstanding: int(next()), HintsDropped: next(), GivenUp: next(), TakenOver: next(), Unserved: [2]int{int(next()), int(next())}}
	pushed.Errors[0] = next()
	q := store.Queues{OverdueMs: map[keyspace.TimerKind]int64{keyspace.TimerLease: 1500}, Executes: store.Queue{Messages: int64(next()), OldestMs: 2500},
		Unblocks: store.Queue{Messages: int64(next()), OldestMs: 3500}, JournalLagMs: 4500, Quarantined: int64(next())}
	return Sources{
		Version: "1.2.3", Store: func() Store { return st }, Engine: func() engine.Counts { return counts },
		Delivery: func() deliver.Stats { return d }, Push: func() push.Stats { return pushed }, InFlight: func() int64 { return 7 },
		Traces:         func() trace.Stats { return trace.Stats{Exported: 9001, Failed: 9002, Dropped: 9003, Queued: 4} },
		MaxConnections: 1000, MaxPushes: 1024, Workspaces: func(context.Context) (int, int, error) { return 12, 10_000, nil }, Ready: func(context.Context) error { return nil },
		Queues: func(context.Context) (store.Queues, error) { return q, nil },
		Census: func(context.Context) (engine.Census, error) {
			return engine.Census{Server: "b", Servers: []engine.CensusServer{{ID: "a"}, {ID: "b", Live: true, OffsetMs: -250}, {ID: "c", Live: true}},
				Duties: []engine.CensusDuty{{Name: "sweep", Server: "b"}, {Name: "journal", Server: "c"}}}, nil
		},
	}
}

var silent = slog.New(slog.DiscardHandler)

// own are the metrics of a scrape without those of Go and of the process, which are Prometheus' own.
func own(t testing.TB, m *Metrics) []*dto.MetricFamily {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
		return !strings.HasPrefix(f.GetName(), "abide_") && !strings.HasPrefix(f.GetName(), "resonate_")
	})
}

// TestNames holds names, types, labels and help against a file, and docs/metrics.md against the names.
func TestNames(t *testing.T) {
	m := New(sample(), silent)
	m.Request("promise.get", 200, time.Millisecond)
	var out strings.Builder
	document, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range own(t, m) {
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		fmt.Fprintf(&out, "%s %s {%s}\n    %s\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ","), f.GetHelp())
		if !strings.Contains(string(document), "`"+f.GetName()+"`") {
			t.Errorf("docs/metrics.md does not name %s", f.GetName())
		}
	}
	if count := strings.Count(out.String(), "\n    "); count != len(all)+2 {
		t.Errorf("%d metrics of %d are in the sample's scrape", count, len(all)+2)
	}
	compareGolden(t, "names.txt", out.String())
}

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (rewrite with -update):\n%s", path, got)
	}
}

// scrape asks for /metrics over HTTP and returns the own lines that are no comments.
func scrape(t testing.TB, m *Metrics) string {
	t.Helper()
	s := httptest.NewServer(m.Handler(silent))
	defer s.Close()
	answer, err := http.Get(s.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%d %s %v", answer.StatusCode, answer.Header.Get("Content-Type"), err)
	}
	if !strings.Contains(string(body), "go_goroutines") || !strings.Contains(string(body), "process_cpu_seconds_total") {
		t.Error("the metrics of Go and of the process are missing")
	}
	var lines []string
	for _, line := range strings.Split(string(body), "\n") {
		if strings.HasPrefix(line, "abide_") || strings.HasPrefix(line, "resonate_") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// TestValues holds a whole scrape of the sample against a file: every number is at its place.
func TestValues(t *testing.T) {
	m := New(sample(), silent)
	for i, r := range []struct {
		kind   string
		status int
	}{{"promise.get", 200}, {"promise.get", 200}, {"promise.get", 404}, {"promise.create", 503}, {"made.up", 400}, {"", 413}, {"promise.get", 9999}} {
		m.Request(r.kind, r.status, time.Duration(i)*time.Millisecond)
	}
	compareGolden(t, "scrape.txt", scrape(t, m))
}

// TestAnEngineInTheProcessHasNoRoundTrips leaves out what does not apply.
func TestAnEngineInTheProcessHasNoRoundTrips(t *testing.T) {
	s := sample()
	inner := s.Store
	s.Store = func() Store { st := inner(); st.Remote = nil; st.LogBytes, st.DiskFreeBytes = -1, -1; return st }
	got := scrape(t, New(s, silent))
	for _, name := range []string{"abide_store_round_trips_total", "abide_store_pool_connections", "abide_database_log_bytes", "abide_disk_free_bytes"} {
		if strings.Contains(got, name) {
			t.Errorf("%s is there", name)
		}
	}
}

// TestGroupsAreBounded connects more groups than have a series, in different orders.
func TestGroupsAreBounded(t *testing.T) {
	s := sample()
	var d deliver.Stats
	s.Delivery = func() deliver.Stats { return d }
	m := New(s, silent)
	group := func(i int) deliver.GroupStats {
		return deliver.GroupStats{Workspace: "w", Group: fmt.Sprintf("g%d", i), Connections: 2}
	}
	d.Groups = []deliver.GroupStats{group(7)}
	scrape(t, m)
	d.Groups = nil
	for i := range MaxGroups + 30 {
		d.Groups = append(d.Groups, group(1000-i))
	}
	got := scrape(t, m)
	if n := strings.Count(got, "abide_workers{"); n != MaxGroups+1 {
		t.Errorf("%d series, want %d", n, MaxGroups+1)
	}
	for _, want := range []string{`abide_workers{group="g7",workspace="w"} 0`, `abide_workers{group="g1000",workspace="w"} 2`, `abide_workers{group="other",workspace="other"} 62`} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("%s is not in the scrape", want)
		}
	}
}

// TestAScrapeWithoutTheStore leaves out what cannot be read, and says the rest.
func TestAScrapeWithoutTheStore(t *testing.T) {
	s := sample()
	s.Queues = func(ctx context.Context) (store.Queues, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the look at the queues has no deadline")
		}
		return store.Queues{}, errors.New("the store is away")
	}
	s.Census = func(ctx context.Context) (engine.Census, error) {
		return engine.Census{}, errors.New("the store is away")
	}
	s.Ready = func(ctx context.Context) error { return errors.New("the store is away") }
	got := scrape(t, New(s, silent))
	if strings.Contains(got, "abide_timer_overdue_seconds") || strings.Contains(got, "abide_servers") || !strings.Contains(got, "abide_commits_total") || !strings.Contains(got, "\nabide_ready 0\n") {
		t.Errorf("%s", got)
	}
}

func TestOnlyMetricsAreServed(t *testing.T) {
	h := New(sample(), silent).Handler(silent)
	for path, want := range map[string]int{"GET /metrics": 200, "GET /": 404, "GET /debug/pprof/": 404, "POST /metrics": 405} {
		method, path, _ := strings.Cut(path, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != want {
			t.Errorf("%s %s: %d, want %d", method, path, w.Code, want)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	m := New(sample(), silent)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Request("promise.create", 200, 300*time.Microsecond)
		}
	})
}

// TestAScraperThatGoesAway is no error of the server's, and Prometheus' handler tells of it once for each metric.
func TestAScraperThatGoesAway(t *testing.T) {
	for _, c := range []struct {
		err  error
		told bool
	}{
		{fmt.Errorf("encoding: %w", context.Canceled), false},
		{http.ErrHandlerTimeout, false},
		{errors.New("a metric was collected twice"), true},
	} {
		var log strings.Builder
		scrapeLog{slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))}.Println("error:", c.err)
		if told := strings.Contains(log.String(), "level=ERROR"); told != c.told || told != strings.Contains(log.String(), c.err.Error()) {
			t.Errorf("%v: the log %q", c.err, log.String())
		}
	}
}
