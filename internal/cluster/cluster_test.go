package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const lease = 10 * time.Second

// row is a server's row after so many renewals.
func row(id string, renewals, clockMs int64) Sighting {
	return Sighting{ID: id, Life: 1, Renewals: renewals, Lease: lease, ClockMs: clockMs}
}

// look is a look at a second on a clock that shows the same.
func look(second int, rows ...Sighting) Look {
	at := time.Duration(second) * time.Second
	return Look{Before: at, After: at, BeforeMs: at.Milliseconds(), AfterMs: at.Milliseconds(), Rows: rows}
}

// A server is dead when its row has not changed for its lease, whatever its clock says, and lives again when it changes.
func TestLiveness(t *testing.T) {
	o := NewObserver("a")
	expect := func(second int, live ...string) {
		t.Helper()
		if got := o.Live(time.Duration(second) * time.Second); !slices.Equal(got, live) {
			t.Errorf("at %d s %v live, want %v", second, got, live)
		}
	}
	o.See(look(0, row("a", 1, 0), row("b", 1, 0), row("c", 1, 1<<40)))
	expect(0, "b", "c")
	o.See(look(2, row("a", 1, 0), row("b", 1, 0), row("c", 1, 1<<40)))
	o.See(look(4, row("a", 1, 0), row("b", 1, 0), row("c", 1, 1<<40)))
	o.See(look(5, row("a", 2, 0), row("b", 2, 0), row("c", 1, 1<<40)))
	expect(10, "b", "c")
	expect(11, "b")
	if dead := o.Dead(11 * time.Second); len(dead) != 1 || dead[0].ID != "c" {
		t.Errorf("dead: %v", dead)
	}
	expect(16)
	for second := 6; second < 17; second++ {
		o.See(look(second, row("b", 2, 0), row("c", 1, 1<<40)))
	}
	o.See(look(17, row("b", 2, 0), row("c", 2, 1<<40)))
	expect(17, "c")
	o.See(look(18, row("c", 2, 1<<40)))
	expect(18, "c")
	if dead := o.Dead(18 * time.Second); len(dead) != 0 {
		t.Errorf("a server without a row is dead: %v", dead)
	}
	// Another process under the same id is another server: it has its whole lease.
	o.See(look(26, Sighting{ID: "c", Life: 2, Renewals: 2, Lease: lease}))
	expect(35, "c")
}

// A store that was away longer than a lease kills nobody: whoever reaches it first leaves the others the time to renew. One that
// does not renew then is dead all the same, however seldom the store can be read.
func TestOutageKillsNobody(t *testing.T) {
	o := NewObserver("a")
	o.See(look(0, row("b", 1, 0), row("c", 1, 0)))
	o.See(look(3, row("b", 2, 0), row("c", 2, 0)))
	o.See(look(63, row("b", 2, 0), row("c", 2, 0))) // the store was away for a minute
	if dead := o.Dead(63 * time.Second); len(dead) != 0 {
		t.Errorf("dead after an outage: %v", dead)
	}
	second := 65
	for ; len(o.Dead(time.Duration(second)*time.Second)) == 0 && second < 1000; second += 20 {
		o.See(look(second, row("b", int64(second), 0), row("c", 2, 0)))
	}
	if live := o.Live(time.Duration(second) * time.Second); second > 65+6*20 || slices.Contains(live, "c") {
		t.Errorf("at %d s, with a look every 20 s, %v live", second, live)
	}
}

// The distance to the median is known to within half the time between two looks, and better with every renewal.
func TestOffset(t *testing.T) {
	for _, c := range []struct {
		ahead []int64 // of the others, ms
		want  int64
	}{
		{nil, 0},
		{[]int64{3000}, 0},     // the other is ahead, and in the wrong
		{[]int64{-3000}, 3000}, // so is this one
		{[]int64{3000, 3000}, -3000},
		{[]int64{3000, -3000}, 0},
		{[]int64{-10_000, -4000, 5000}, 4000},
	} {
		o := NewObserver("self")
		for second := range 20 {
			rows := []Sighting{row("self", int64(second), 0)}
			for i, ahead := range c.ahead {
				renewed := second - second%3 // every three seconds
				rows = append(rows, row(fmt.Sprint("peer", i), int64(renewed), int64(renewed)*1000+ahead))
			}
			o.See(look(second, rows...))
		}
		if got := o.OffsetMs(19 * time.Second); got < c.want-500 || got > c.want+500 {
			t.Errorf("with others ahead by %v: %d ms ahead of the median, want about %d", c.ahead, got, c.want)
		}
	}
}

// A clock that was stepped is noticed with the next renewals.
func TestOffsetFollowsSteps(t *testing.T) {
	o := NewObserver("self")
	for second := range 30 {
		ahead := int64(0)
		if second >= 15 {
			ahead = -8000
		}
		o.See(look(second, row("peer", int64(second), int64(second)*1000+ahead)))
	}
	if got := o.OffsetMs(29 * time.Second); got < 7500 || got > 8500 {
		t.Errorf("%d ms ahead of a server that went back by 8 s", got)
	}
}

// Whoever knows the same servers names the same owner, and only what belonged to the one that left moves.
func TestOwner(t *testing.T) {
	if owner := Owner("key", nil); owner != "" {
		t.Errorf("%q owns a key of nobody", owner)
	}
	servers := []string{"a", "b", "c"}
	counts := map[string]int{}
	for i := range 3000 {
		key := fmt.Sprintf("w\x00r.%d", i)
		owner := Owner(key, servers)
		counts[owner]++
		if again := Owner(key, []string{"c", "a", "b"}); again != owner {
			t.Fatalf("%q belongs to %s or %s", key, owner, again)
		}
		if left := Owner(key, []string{"a", "b"}); owner != "c" && left != owner {
			t.Fatalf("%q went from %s to %s when c left", key, owner, left)
		}
	}
	for id, n := range counts {
		if n < 800 || n > 1200 {
			t.Errorf("%s owns %d of 3000", id, n)
		}
	}
}

func TestStart(t *testing.T) {
	for _, c := range []struct {
		what     string
		ceilings []Ceiling
		want     int64
	}{
		{"an empty store", nil, 0},
		{"its own earlier life", []Ceiling{{ID: "self", Ms: 50}}, 50},
		{"its own, which seems to live", []Ceiling{{ID: "self", Ms: 50, Live: true}}, 50},
		{"one that is gone was further", []Ceiling{{ID: "self", Ms: 50}, {ID: "b", Ms: 90}, {Ms: 70}}, 90},
		{"those whose rows are gone", []Ceiling{{ID: "", Ms: 70}}, 70},
		{"the only live one", []Ceiling{{ID: "b", Ms: 10_000, Live: true}}, 10_000},
		{"live ones near each other", []Ceiling{{ID: "b", Ms: 10_000, Live: true}, {ID: "c", Ms: 12_000, Live: true}}, 12_000},
		{"a live one that has run away", []Ceiling{{ID: "b", Ms: 10_000, Live: true}, {ID: "c", Ms: 1 << 40, Live: true}}, 10_000},
		{"a gone one that had run away", []Ceiling{{ID: "b", Ms: 10_000, Live: true}, {ID: "c", Ms: 1 << 40}}, 1 << 40},
	} {
		if got := StartMs("self", c.ceilings); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// However the looks fall, the true distance lies within the bounds, so the estimate is wrong by no more than the time
// between two looks.
func TestOffsetBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ahead := rapid.Int64Range(-100_000, 100_000).Draw(t, "ahead")
		o := NewObserver("self")
		var now, renewedAt, renewals, longest int64
		last := int64(0)
		for range rapid.IntRange(3, 20).Draw(t, "looks") {
			now += rapid.Int64Range(1, 2000).Draw(t, "pause")
			if at := rapid.Int64Range(last, now).Draw(t, "renewed"); rapid.Bool().Draw(t, "renews") {
				renewedAt, renewals = at, renewals+1
			}
			longest = max(longest, now-last)
			last = now
			at := time.Duration(now) * time.Millisecond
			o.See(Look{Before: at, After: at, BeforeMs: now, AfterMs: now, Rows: []Sighting{row("peer", renewals, renewedAt+ahead)}})
			p := o.peers["peer"]
			if p.known && (ahead < p.low || ahead > p.high || p.high-p.low > longest) {
				t.Fatalf("%d is outside of %d to %d, or that is wider than %d", ahead, p.low, p.high, longest)
			}
		}
	})
}
