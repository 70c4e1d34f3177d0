package batch_test

import (
	"fmt"
	"testing"

	"abide/kv/batch"
)

// Causes come from errors that a database makes up: their number is bounded.
func TestCausesAreBounded(t *testing.T) {
	var c batch.Causes
	if c.Get() != nil {
		t.Error("causes of nothing")
	}
	for i := range 100 {
		c.Add(fmt.Sprint("cause ", i%50))
	}
	got := c.Get()
	if len(got) != 33 || got["cause 0"] != 2 || got["other"] != 36 {
		t.Errorf("%d causes: %v", len(got), got)
	}
	got["cause 0"] = 7
	if c.Get()["cause 0"] != 2 {
		t.Error("the copy is none")
	}
}
