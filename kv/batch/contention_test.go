package batch

import (
	"testing"
	"time"
)

// Half of the wait for other servers is spent on gathering, none of a round trip, and none once they are gone.
func TestContention(t *testing.T) {
	const trip = 3 * time.Millisecond
	var c contention
	lock := trip // from the begin to the lock
	batch := func() time.Duration {
		pause := c.gather()
		c.begun(max(lock, pause+trip))
		return pause
	}
	for range 2 * contentionWindow {
		if pause := batch(); pause != 0 {
			t.Fatalf("gathers for %s before it knows what a round trip takes", pause)
		}
	}
	c.fetched(trip)
	for range contentionWindow {
		if pause := batch(); pause != 0 {
			t.Fatalf("gathers for %s although nobody else has the lock", pause)
		}
	}
	lock = trip + 8*time.Millisecond
	for range contentionWindow {
		if pause := batch(); pause != 0 {
			t.Fatalf("gathers for %s after a short wait among the last ones", pause)
		}
	}
	for range 3 * contentionWindow {
		if pause := batch(); pause != (lock-trip)/2 {
			t.Fatalf("gathers for %s, not half of the wait", pause)
		}
	}
	lock = time.Second
	for range contentionWindow {
		batch()
	}
	if pause := batch(); pause != maxGather {
		t.Errorf("gathers for %s, not %s at most", pause, maxGather)
	}
	lock = trip
	n := 0
	for c.wait() > 0 {
		if n++; n > 10 {
			t.Fatal("it never stops gathering for servers that are gone")
		}
		batch()
	}
}
