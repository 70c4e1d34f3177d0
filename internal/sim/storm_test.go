package sim

import (
	"slices"
	"testing"
)

// TestHeavyWeather runs universes with the faults of four plans at once.
func TestHeavyWeather(t *testing.T) {
	if *oneSeed != 0 {
		t.Skip("only one seed is wanted")
	}
	for seed := *fromSeed; seed < *fromSeed+*seedCount/8; seed++ {
		plan := NewPlan(seed)
		for i := range uint64(3) {
			plan.Faults = append(plan.Faults, NewPlan(seed+(i+1)<<32).Faults...)
		}
		slices.SortStableFunc(plan.Faults, func(a, b Fault) int { return int(a.At - b.At) })
		if r := Run(Config{Seed: seed, Plan: plan, Model: true}); r.Err != nil {
			t.Errorf("seed %d: %v", seed, r.Err)
		}
	}
}
