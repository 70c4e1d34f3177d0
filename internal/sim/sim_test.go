package sim

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var (
	oneSeed   = flag.Uint64("seed", 0, "run this seed alone, with its trace printed")
	fromSeed  = flag.Uint64("from", 1, "the first seed")
	seedCount = flag.Uint64("seeds", 60, "how many seeds to run")
	withModel = flag.Bool("model", false, "compare every answer with the reference model's; otherwise in one seed of four")
	withPush  = flag.Bool("push", false, "push to targets in every seed; otherwise in those that choose it")
	stopFirst = flag.Bool("stop", false, "stop at the first seed that fails")
)

// replay is how to run a seed again. Its trace is printed where it fails; with -v in any case.
const replay = "go test ./internal/sim -seed %d"

func TestMain(m *testing.M) {
	flag.Parse()
	if *oneSeed != 0 {
		_ = flag.Set("test.run", "^TestSeeds$")
	}
	os.Exit(m.Run())
}

// pushChoice is what -push says.
func pushChoice() Choice {
	if *withPush {
		return Always
	}
	return AsSeed
}

func TestSeeds(t *testing.T) {
	if *oneSeed != 0 {
		r := Run(Config{Seed: *oneSeed, Push: pushChoice(), Model: true, Trace: os.Stdout})
		t.Logf("%+v", r.Stats)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return
	}
	for seed := *fromSeed; seed < *fromSeed+*seedCount; seed++ {
		if r := Run(Config{Seed: seed, Push: pushChoice(), Model: *withModel || seed%4 == 0}); r.Err != nil {
			t.Errorf("seed %d: %v\nreplay: "+replay, seed, r.Err, seed)
			if *stopFirst {
				return
			}
		}
	}
}

func TestSameSeedSameTrace(t *testing.T) {
	for seed := uint64(1); seed <= 8; seed++ {
		choice := Never
		if seed%2 == 0 {
			choice = Always
		}
		var first, second bytes.Buffer
		Run(Config{Seed: seed, Push: choice, Trace: &first})
		Run(Config{Seed: seed, Push: choice, Trace: &second})
		if first.Len() < 10_000 {
			t.Fatalf("seed %d: a trace of %d bytes", seed, first.Len())
		}
		a, b := bytes.Split(first.Bytes(), []byte("\n")), bytes.Split(second.Bytes(), []byte("\n"))
		for i := range a {
			if i >= len(b) || !bytes.Equal(a[i], b[i]) {
				t.Fatalf("seed %d: line %d differs:\n%s\n%s", seed, i+1, a[i], b[min(i, len(b)-1)])
			}
		}
		if len(a) != len(b) {
			t.Fatalf("seed %d: %d lines, then %d", seed, len(a), len(b))
		}
	}
}

// BenchmarkSeed is one universe after another, without the reference model.
func BenchmarkSeed(b *testing.B) {
	seed := uint64(0)
	requests := 0
	for b.Loop() {
		seed++
		requests += Run(Config{Seed: seed}).Stats.Requests
	}
	b.ReportMetric(float64(requests)/float64(b.N), "requests/op")
}

// TestPushSeeds runs universes with targets that messages are pushed to, and sees that they bring about what they are for.
func TestPushSeeds(t *testing.T) {
	if *oneSeed != 0 {
		t.Skip("only one seed is wanted")
	}
	var sum Stats
	for seed := *fromSeed; seed < *fromSeed+*seedCount/2; seed++ {
		r := Run(Config{Seed: seed, Push: Always, Model: *withModel || seed%4 == 0})
		sum.Add(r.Stats)
		if r.Err != nil {
			t.Errorf("seed %d: %v\nreplay: "+replay+" -push", seed, r.Err, seed)
			if *stopFirst {
				return
			}
		}
	}
	if *seedCount >= 60 && (sum.Pushes < 1000 || sum.PushesFailed < sum.Pushes/20 || sum.PushKills == 0) {
		t.Errorf("of %d messages %d were not accepted, and %d servers died between claim and answer", sum.Pushes, sum.PushesFailed, sum.PushKills)
	}
}
