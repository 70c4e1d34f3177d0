package engine

import (
	"sync"
	"time"
)

// Where several servers share a store, each timer is one server's to fire, by the rendezvous hash of its name. That
// saves the others the work; it is no condition for anything. Whoever arms a timer that is due within a poll interval
// fires it itself, since it alone knows at once. And what its owner has left undone for takeOver, anybody does.
// (docs/servers.md)

const (
	// takeOver is how long what is due may stay undone by its owner before others do it.
	takeOver = time.Second
	// maxArmed is how many instants at which this server has armed timers are remembered. More are left to the owners.
	maxArmed = 1024
)

// duties remember what the timer loop has left to others.
type duties struct {
	left  map[string]time.Duration // keys of timers that are others' to fire: since when they have been due
	quiet bool                     // nothing was due in the last pass; of several servers only

	mu    sync.Mutex
	armed map[int64]bool // the instants of timers that this server has armed and fires itself
}

// arm notes that this server has armed a timer. Any goroutine.
func (d *duties) arm(dueAt int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.armed == nil {
		d.armed = map[int64]bool{}
	}
	if len(d.armed) < maxArmed {
		d.armed[dueAt] = true
	}
}

// take returns the noted instants up to now, and forgets them.
func (d *duties) take(now int64) map[int64]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	due := map[int64]bool{}
	for at := range d.armed {
		if at <= now {
			due[at] = true
			delete(d.armed, at)
		}
	}
	return due
}

// mine leaves of the steps of a pass those that are this server's to do.
func (e *Engine) mine(steps []Step, now int64) []Step {
	if !e.shared {
		return steps
	}
	d := &e.duties
	at := e.mono()
	armed := d.take(now)
	left := make(map[string]time.Duration, len(d.left))
	var mine []Step
	for _, s := range steps {
		key := string(s.Key)
		since, seen := d.left[key]
		if !seen {
			since = at
		}
		if armed[s.DueAt] || at-since >= takeOver || e.owns(s.Workspace+"\x00"+s.ID) {
			mine = append(mine, s)
		} else {
			left[key] = since
		}
	}
	d.left = left
	return mine
}

// others reports whether a timer is left to others for now.
func (d *duties) others(key string, at time.Duration) bool {
	since, left := d.left[key]
	return left && at-since < takeOver
}

// goOn makes the next pass do the rest of a step of which this one has done a part.
func (d *duties) goOn(key string, at time.Duration) {
	if d.left == nil {
		d.left = map[string]time.Duration{}
	}
	d.left[key] = at - takeOver
}
