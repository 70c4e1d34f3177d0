package push

import (
	"container/list"

	"abide/protocol"
)

// flightState is where a message stands.
type flightState int

const (
	ready     flightState = iota // in its lane's line
	checking                     // it has a slot, and the store is asked whether it is still queued
	sending                      // it is with the transport
	resting                      // it has failed and pauses
	delivered                    // accepted, to be reported
	reporting                    // its report is with the store
	gone                         // whoever still names it ignores it
)

// flight is one message in memory. Its entry in the outbox stays where it is until the report.
type flight struct {
	kind      Kind
	workspace string
	id        string
	version   int64 // of an execute
	address   string
	lane      *lane
	state     flightState
	place     *list.Element // in the lane's line
	trust     trust         // of its lane, when it was last looked at
	bytes     int           // of its promise, once the store has shown it; 0 of an execute
	loaded    int           // of them, those that are counted, while it is with the transport

	sinceMs  int64 // since when it is known
	attempts int   // sends that were begun
	reports  int   // reports that failed
	untilMs  int64 // end of its pause
	claimed  bool  // its task was taken while it was with the transport
	again    bool  // a hint came during the report: the entry may be a new one
	lastErr  string
	triedMs  int64 // when the last send was begun, or has failed
	refused  bool  // it was ErrRefused
}

// flightKey names a message: an execute by its task and version, an unblock by promise and address.
type flightKey struct {
	kind          Kind
	workspace, id string
	version       int64
	address       string
}

type taskKey struct{ workspace, id string }

func (f *flight) key() flightKey {
	if f.kind == KindExecute {
		return flightKey{f.kind, f.workspace, f.id, f.version, ""}
	}
	return flightKey{f.kind, f.workspace, f.id, 0, f.address}
}

// Send is one message that a transport is to be given. Run it, then hand it to Core.Sent.
type Send struct {
	Transport Transport
	// The rest is what Message is made of; Trace and Promise are shared, either may be nil.
	Kind      Kind
	Workspace string
	Address   string
	ID        string
	Version   int64
	Promise   *protocol.Promise
	Trace     *protocol.Trace
	Attempt   int

	flight *flight
}

// workQueue holds flights that wait for a call to the store, by workspace, because one call is about one workspace.
// Workspaces take turns. Flights that are gone are passed over.
type workQueue struct {
	byWorkspace map[string][]*flight
	turn        []string // workspaces with flights, the next one first
	n           int
}

func (q *workQueue) push(f *flight) {
	if q.byWorkspace == nil {
		q.byWorkspace = map[string][]*flight{}
	}
	if len(q.byWorkspace[f.workspace]) == 0 {
		q.turn = append(q.turn, f.workspace)
	}
	q.byWorkspace[f.workspace] = append(q.byWorkspace[f.workspace], f)
	q.n++
}

// take removes flights in a state of the workspace whose turn it is, at most so many, and fewer if limitOf says so for
// one of them; none only if no flight in that state is there.
func (q *workQueue) take(in flightState, limitOf func(*flight) int) (workspace string, out []*flight) {
	for len(q.turn) > 0 && len(out) == 0 {
		workspace = q.turn[0]
		line := q.byWorkspace[workspace]
		limit, i := MaxPage, 0
		for ; i < len(line); i++ {
			if line[i].state != in {
				continue
			}
			if limit = min(limit, limitOf(line[i])); len(out) >= limit {
				break
			}
			out = append(out, line[i])
		}
		q.n -= i
		q.turn = q.turn[1:]
		if i == len(line) {
			delete(q.byWorkspace, workspace)
		} else {
			q.byWorkspace[workspace] = line[i:]
			q.turn = append(q.turn, workspace)
		}
	}
	return workspace, out
}

// alarms is a heap of instants at which a flight's or a lane's pause ends. What has changed since is passed over.
type alarms []alarm

type alarm struct {
	atMs   int64
	seq    uint64
	flight *flight
	lane   *lane
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (a alarms) Len() int { return len(a) }
func (a alarms) Less(i, j int) bool {
	return a[i].atMs < a[j].atMs || a[i].atMs == a[j].atMs && a[i].seq < a[j].seq
}
func (a alarms) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *alarms) Push(x any)   { *a = append(*a, x.(alarm)) }
func (a *alarms) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = alarm{}
	*a = (*a)[:last]
	return x
}
