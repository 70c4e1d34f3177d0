package api

import (
	"container/list"
	"net/http"
	"sync"

	"abide/protocol"
)

// budget bounds the memory of bodies above firstBuffer, from their first byte to the answers of their requests: a store
// that stalls must not make them pile up. One workspace may have half of it. Safe for concurrent use.
type budget struct {
	limit int64

	mu   sync.Mutex
	used int64
	by   map[string]int64 // workspaces that have any
}

// charge is what one request has taken of a budget.
type charge struct {
	workspace string
	bytes     int64
}

// take adds n bytes to c if there are as many.
func (b *budget) take(c *charge, n int64) refused {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.used+n > b.limit:
		return allFull
	case b.by[c.workspace]+n > max(b.limit/2, 2*protocol.MaxBodyBytes):
		return shareFull
	}
	if b.by == nil {
		b.by = map[string]int64{}
	}
	b.used += n
	b.by[c.workspace] += n
	c.bytes += n
	return letIn
}

// give returns n bytes of c.
func (b *budget) give(c *charge, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.bytes -= n
	b.used -= n
	if b.by[c.workspace] -= n; b.by[c.workspace] == 0 {
		delete(b.by, c.workspace)
	}
}

// answers bounds the memory of answers above firstBuffer that are being written. An answer cannot be refused, since its
// request has had its effect; when there is no room for a new one, the one that has been longest at it is cut off, and its
// client sees its connection end. Who reads is done in milliseconds, so it is one who does not. Safe for concurrent use.
type answers struct {
	limit int64

	mu      sync.Mutex
	used    int64
	writing list.List // of *answer, the oldest first
	crowded bool      // one was cut, and there is little room still
}

// answer is one that is being written.
type answer struct {
	bytes int64
	rc    *http.ResponseController
}

// begin counts an answer that is about to be written. first is whether others had to be cut for it, for the first time in a
// while. The caller calls end with written afterwards, before its handler returns.
func (a *answers) begin(w http.ResponseWriter, bytes int64) (written *list.Element, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used += bytes
	written = a.writing.PushBack(&answer{bytes, http.NewResponseController(w)})
	for oldest := a.writing.Front(); a.used > a.limit && oldest != written; oldest = a.writing.Front() {
		a.remove(oldest)
		// Without deadlines there is nobody that is slow.
		_ = oldest.Value.(*answer).rc.SetWriteDeadline(longAgo)
		first, a.crowded = first || !a.crowded, true
	}
	return written, first
}

// end tells that an answer was written, or could not be.
func (a *answers) end(written *list.Element) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.remove(written)
	a.crowded = a.crowded && a.used > a.limit/2
}

// remove takes an answer out that is in. The caller holds mu.
func (a *answers) remove(e *list.Element) {
	one := e.Value.(*answer)
	a.used -= one.bytes
	one.bytes = 0 // it may be removed twice
	a.writing.Remove(e)
}
