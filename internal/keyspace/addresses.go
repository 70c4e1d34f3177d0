package keyspace

import (
	"abide/kv"
	"abide/kv/tuple"
)

// Waiting is a queue of the outbox, as one of its entries shows it.
type Waiting struct {
	Workspace string
	To        Destination

	next []byte // where the next queue that matters begins
}

// ParseWaiting returns the queue of an entry of the execute or unblock index.
func ParseWaiting(key []byte) (w Waiting, err error) {
	r := tuple.NewReader(key)
	ns, err := r.NextInt()
	if err == nil && ns != nsExecute && ns != nsUnblock {
		return w, corrupt(Kind(key), tuple.ErrMalformed)
	}
	if err == nil {
		err = r.NextNil()
	}
	if err == nil {
		w.Workspace, err = r.NextString()
	}
	space := len(key) - len(r.Rest())
	var kind int64
	if err == nil {
		kind, err = r.NextInt()
	}
	var name string
	if err == nil {
		name, err = r.NextString()
	}
	if err == nil && kind == 0 {
		w.To = Destination{Poll: true, Group: name}
		w.To.PID, err = r.NextString()
	} else {
		w.To.Other = name
	}
	if err != nil {
		return w, corrupt(Kind(key), err)
	}
	if w.To.Poll { // those of a workspace lie before its other queues
		w.next = tuple.AppendInt(append([]byte(nil), key[:space]...), 1)
	} else {
		w.next = tuple.PrefixEnd(append([]byte(nil), key[:len(key)-len(r.Rest())]...))
	}
	return w, nil
}

// Rest is what of r comes after the queue; after one of a poll address, also after all others of its workspace.
func (w Waiting) Rest(r kv.Range) kv.Range { return kv.Range{Start: w.next, End: r.End} }
