package kvbench

import (
	"math"
	"testing"
)

// A run that was too short for one read has no ratio to report; it still has a report.
func TestARatioToNothingIsLeftOut(t *testing.T) {
	r := &run{}
	r.figure("a", 0/math.Inf(1), "ratio", "")
	r.figure("b", math.NaN(), "ratio", "")
	r.figure("c", math.Inf(1), "ratio", "")
	if len(r.figures) != 1 || r.figures[0].Name != "a" {
		t.Errorf("figures %+v", r.figures)
	}
}
