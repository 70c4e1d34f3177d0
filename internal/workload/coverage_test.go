package workload

import (
	"strings"
	"sync"
	"testing"
)

var reachable = sync.OnceValue(Reachable)

// TestCoverage counts which of the situations that two promises can be in (Reachable) the generator's histories meet.
// ABIDE_LONG=1 asks for all of them within 10,000 seeds, and stops when it has them; without it, most within a few.
func TestCoverage(t *testing.T) {
	t.Parallel()
	seeds, needed := long(24, 10_000), 0.75
	if seeds == 10_000 {
		needed = 1
	}
	all := reachable()
	total := len(all.Situations())
	met := NewCoverage()
	missing := all.Situations()
	seed := 0
	for seed < seeds && len(missing) > 0 {
		m := NewModel(30_000)
		g := NewGenerator(uint64(seed))
		for range 2000 {
			met.Apply(m, g.Next(m))
		}
		seed++
		missing = met.Missing(all)
		if seed&(seed-1) == 0 || len(missing) == 0 {
			t.Logf("%d seeds of 2000 requests: %d of %d situations met", seed, total-len(missing), total)
		}
	}
	reached := float64(total-len(missing)) / float64(total)
	t.Logf("%d seeds of 2000 requests: %d of %d situations met (%.1f%%), and %d that take more than two promises or name none",
		seed, total-len(missing), total, 100*reached, len(all.Missing(met)))
	if reached < needed {
		t.Errorf("%.3f of the situations were met, want %.3f; among those that were not:", reached, needed)
		for _, name := range missing[:min(20, len(missing))] {
			t.Error(name)
		}
	}
	for _, name := range all.Missing(met) {
		if !beyondTwo(name) {
			t.Errorf("two promises can be in %q, and the enumeration has not found it", name)
		}
	}
}

// beyondTwo tells whether a situation is none that Reachable looks for: refused as invalid, about schedules, searches
// or the debug kinds, about several promises besides the task's own, or one in which a task waits though the only other
// promise there is, if there is one, has settled: it waits for a third.
func beyondTwo(name string) bool {
	kind, rest, _ := strings.Cut(name, " ")
	status, found, _ := strings.Cut(rest, " ")
	switch {
	case status == "400", strings.HasPrefix(kind, "schedule."), strings.HasPrefix(kind, "debug."), strings.HasSuffix(kind, ".search"):
		return true
	case strings.HasSuffix(found, "several"):
		return true
	default:
		return strings.Contains(found, "task suspended") && (strings.HasSuffix(found, "absent") || strings.HasSuffix(found, "settled"))
	}
}

// TestReachableIsStable wants the enumeration to reach every kind of request in every status that two promises
// can bring about.
func TestReachableIsStable(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range reachable().Situations() {
		seen[firstWords(name)] = true
	}
	for _, want := range []string{
		"promise.get 200", "promise.get 404", "promise.create 200", "promise.settle 200", "promise.settle 404",
		"promise.register_callback 200", "promise.register_callback 400", "promise.register_callback 404", "promise.register_callback 422",
		"promise.register_listener 200", "promise.register_listener 404", "task.get 200", "task.get 404",
		"task.create 200", "task.create 409", "task.create 422", "task.acquire 200", "task.acquire 404", "task.acquire 409",
		"task.fence(create) 200/200", "task.fence(create) 404", "task.fence(create) 409",
		"task.fence(settle) 200/200", "task.fence(settle) 200/404", "task.fence(settle) 404", "task.fence(settle) 409",
		"task.heartbeat 200", "task.suspend 200", "task.suspend 300", "task.suspend 404", "task.suspend 409", "task.suspend 422",
		"task.fulfill 200", "task.fulfill 404", "task.fulfill 409", "task.release 200", "task.release 404", "task.release 409",
		"task.halt 200", "task.halt 404", "task.halt 409", "task.continue 200", "task.continue 404", "task.continue 409", "debug.tick 200",
	} {
		if !seen[want] {
			t.Errorf("no situation of two promises is answered %q", want)
		}
		delete(seen, want)
	}
	for name := range seen {
		t.Errorf("a situation of two promises is answered %q, which the table of requests does not know", name)
	}
}

func firstWords(name string) string {
	spaces := 0
	for i, r := range name {
		if r == ' ' {
			if spaces++; spaces == 2 {
				return name[:i]
			}
		}
	}
	return name
}
