package deliver

import "abide/protocol"

// kind says which of the two messages a flight, lane or job is about.
type kind int

const (
	kindExecute kind = iota
	kindUnblock
	kinds // how many there are
)

// flightState is where a message stands between its hint (or its page) and the end of its delivery.
type flightState int

const (
	waiting   flightState = iota // hinted, in the queue of checks
	checking                     // its check is with the store
	buffered                     // handed to a connection, not yet taken by its writer
	taken                        // being written
	flushed                      // written, in the window
	delivered                    // past the window, in the queue of reports
	reporting                    // its report is with the store
	held                         // an execute that was reported and is not claimed
	gone                         // claimed, delivered or given up; a job that still names it ignores it
)

// flight is one message on its way. The outbox entry stays where it is until the report; a flight is only
// the memory that keeps a scan from sending the same message again, and a connection from being handed
// more than its worker claims.
type flight struct {
	kind      kind
	workspace string
	id        string
	address   string
	version   int64           // of an execute
	trace     *protocol.Trace // of an execute, from its check or page
	target    target
	state     flightState

	promise  *protocol.Promise // of an unblock, from its check or page until it is taken
	bytes    int               // about what its frame takes
	conn     *conn             // whose slot it holds; nil before, and once that connection is gone
	untilMs  int64             // end of its window, then of its hold
	attempts int               // reports that failed
	reported bool              // the store has had a report: that its entry is gone does not mean a claim
	hinted   bool              // its hint has come: another one is about a new dispatch
	again    bool              // check once more, if the check says no or when the window ends
	copy     bool              // only in a connection's buffer, known to nobody else, gone once it is taken

	// A flight is in at most one queue and in at most one connection's list of what it holds.
	links [2]link
}

// key is what a flight is known by: an execute by its task, an unblock by promise and address.
func (f *flight) key() flightKey {
	if f.kind == kindExecute {
		return flightKey{f.workspace, f.id, ""}
	}
	return flightKey{f.workspace, f.id, f.address}
}

// execute names f to the store.
func (f *flight) execute() Execute {
	return Execute{Workspace: f.workspace, ID: f.id, Version: f.version, Address: f.address}
}

type flightKey struct{ workspace, id, address string }

// The two lists that a flight can be in at the same time.
const (
	linkQueue = iota
	linkConn
)

type link struct {
	prev, next *flight
	list       *flightList
}

// flightList is an intrusive doubly linked list: a claim takes a flight out of the middle at no cost.
type flightList struct {
	slot        int // linkQueue or linkConn
	front, back *flight
	n           int
}

func (l *flightList) pushBack(f *flight) {
	k := &f.links[l.slot]
	k.prev, k.next, k.list = l.back, nil, l
	if l.back == nil {
		l.front = f
	} else {
		l.back.links[l.slot].next = f
	}
	l.back = f
	l.n++
}

func (l *flightList) popFront() *flight {
	f := l.front
	if f != nil {
		f.unlink(l.slot)
	}
	return f
}

// unlink takes f out of the list that it is in, if any.
func (f *flight) unlink(slot int) {
	k := &f.links[slot]
	l := k.list
	if l == nil {
		return
	}
	if k.prev == nil {
		l.front = k.next
	} else {
		k.prev.links[slot].next = k.next
	}
	if k.next == nil {
		l.back = k.prev
	} else {
		k.next.links[slot].prev = k.prev
	}
	l.n--
	*k = link{}
}

// workQueue holds flights that wait for a call to the store, by workspace, because one call is about one
// workspace. Workspaces take turns.
type workQueue struct {
	byWorkspace map[string]*flightList
	turn        []string // workspaces with a list, the next one first
	n           int
}

func newWorkQueue() workQueue { return workQueue{byWorkspace: map[string]*flightList{}} }

func (q *workQueue) push(f *flight) {
	l := q.byWorkspace[f.workspace]
	if l == nil {
		l = &flightList{slot: linkQueue}
		q.byWorkspace[f.workspace] = l
		q.turn = append(q.turn, f.workspace)
	}
	l.pushBack(f)
	q.n++
}

func (q *workQueue) remove(f *flight) {
	f.unlink(linkQueue)
	q.n--
}

// take removes flights of the workspace whose turn it is, as many as the strictest of them allows by
// limitOf; none only if the queue is empty.
func (q *workQueue) take(limitOf func(*flight) int) (workspace string, out []*flight) {
	for len(q.turn) > 0 && len(out) == 0 {
		workspace = q.turn[0]
		l := q.byWorkspace[workspace]
		limit := MaxPage
		for l.front != nil {
			if limit = min(limit, limitOf(l.front)); len(out) >= limit {
				break
			}
			out = append(out, l.popFront())
		}
		q.n -= len(out)
		q.turn = q.turn[1:]
		if l.front == nil {
			delete(q.byWorkspace, workspace)
		} else {
			q.turn = append(q.turn, workspace)
		}
	}
	return workspace, out
}
