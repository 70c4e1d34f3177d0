package kvbench_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"abide/kv"
	"abide/kv/kvbench"
	"abide/kv/sqlitekv"
)

func config(t testing.TB, mode kvbench.Mode) kvbench.Config {
	folder := t.TempDir()
	return kvbench.Config{Mode: mode, Clients: 4, For: 30 * time.Millisecond, SizeBytes: 100, Keys: 1000, Open: func(name string) (*kvbench.Subject, error) {
		s, err := sqlitekv.Open(sqlitekv.Options{Path: filepath.Join(folder, name+".db"), Now: time.Now})
		if err != nil {
			return nil, err
		}
		b, err := sqlitekv.OpenBare(sqlitekv.Options{Path: filepath.Join(folder, name+"-bare.db")})
		return &kvbench.Subject{Store: s, Engine: b, Commits: func() uint64 { return s.Stats().Commits }, LogBytes: func() int64 { return s.Stats().WALBytes }}, err
	}}
}

// Every mode runs, small, and tells what it is for.
func TestModes(t *testing.T) {
	for mode, want := range map[kvbench.Mode][]string{
		kvbench.Write: {"contract / engine", "cost of a journal entry", "syncs per transaction", "allocations per put"},
		kvbench.Read:  {"single gets: contract / engine", "scans of 100 rows: contract / engine", "gets in one snapshot: allocations"},
		kvbench.Mixed: {"reads beside writers: p99 / p99 alone", "writes: p99 / p50", "largest log"},
		kvbench.Size:  {"walking: memory", "transactions of five puts: large / small"},
	} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			c := config(t, mode)
			if mode == kvbench.Size {
				c.Keys = 11_000
			}
			figures, err := kvbench.Run(context.Background(), c)
			if err != nil {
				t.Fatal(err)
			}
			byName := map[string]kvbench.Figure{}
			for _, f := range figures {
				if _, twice := byName[f.Name]; twice {
					t.Errorf("%q is there twice", f.Name)
				}
				byName[f.Name] = f
			}
			for _, name := range want {
				if f, ok := byName[name]; !ok || f.Unit == "" {
					t.Errorf("%q is missing, or has no unit: %v", name, figures)
				}
			}
			if f, ok := byName["walking: rows"]; ok && f.Value != 11_000 {
				t.Errorf("the walk has met %v rows of 11,000", f.Value)
			}
			if f, ok := byName["through the contract"]; ok && f.Value <= 0 {
				t.Errorf("nothing was written: %v", f)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for says, spoil := range map[string]func(*kvbench.Config){
		"unknown mode": func(c *kvbench.Config) { c.Mode = "kv-guess" },
		"clients":      func(c *kvbench.Config) { c.Clients = 0 },
		"longer":       func(c *kvbench.Config) { c.For = 0 },
		"bytes":        func(c *kvbench.Config) { c.SizeBytes = kv.MaxValueBytes + 1 },
		"0 keys":       func(c *kvbench.Config) { c.Keys = 0 },
		"more than":    func(c *kvbench.Config) { c.Mode, c.Keys = kvbench.Size, 100 },
	} {
		c := config(t, kvbench.Read)
		spoil(&c)
		if _, err := kvbench.Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
}

func TestARunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := config(t, kvbench.Write)
	c.For = time.Hour
	if _, err := kvbench.Run(ctx, c); err == nil {
		t.Error("a run without a context's life reports figures")
	}
}

// BenchmarkModes reports the ratios of every mode, each of which stands for a whole run: use -benchtime 1x.
func BenchmarkModes(b *testing.B) {
	for _, mode := range kvbench.Modes() {
		b.Run(string(mode), func(b *testing.B) {
			for b.Loop() {
				c := config(b, mode)
				c.Clients, c.For, c.SizeBytes, c.Keys = 64, 3*time.Second, 200, 100_000
				figures, err := kvbench.Run(context.Background(), c)
				if err != nil {
					b.Fatal(err)
				}
				for _, f := range figures {
					if f.Unit == "ratio" || strings.Contains(f.Name, "allocations") {
						b.ReportMetric(f.Value, strings.NewReplacer(" ", "_", ":", "").Replace(f.Name))
					}
				}
			}
		})
	}
}
