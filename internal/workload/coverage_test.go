package workload

import "testing"

func TestReach(t *testing.T) {
	all := Reachable()
	met := NewCoverage()
	total := 0
	for seed := uint64(1); seed < 130; seed++ {
		m := NewModel(30_000)
		g := NewGenerator(seed)
		for range 2000 {
			met.Apply(m, g.Next(m))
			total++
		}
		if seed&(seed-1) == 0 || seed == 129 {
			t.Log(seed, total, len(all.counts), len(met.counts), len(met.Missing(all)))
		}
	}
	for _, s := range met.Missing(all) {
		t.Log("missing", s)
	}
	for _, s := range all.Missing(met) {
		t.Log("extra", s)
	}
}
