// Package store is the machine's state on top of one kv transaction: records in and out, the entries that
// are derived from them, payloads too large for a record, and the hints that a commit gives to the loops.
// It decides nothing.
//
// Records are the truth. Whoever puts a record gets its index entries for free: the store derives them from
// the record before and after, and writes the difference in the same transaction.
package store

import (
	"bytes"
	"errors"
	"fmt"

	"abide/internal/journal"
	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

// errReadOnly is a bug: a write in a read transaction.
var errReadOnly = errors.New("store: write in a read-only transaction")

// Txn is a workspace within one kv transaction. It implements machine.State, whose rules it follows.
// Make one per attempt of a closure; not safe for concurrent use.
type Txn struct {
	r     kv.Reader
	tx    kv.Tx // nil in a read transaction
	ws    string
	keys  keyspace.Keys
	cache map[string]*entry
	old   []kv.Entry // scratch of put
	new   []kv.Entry

	cause journal.Cause // see Caused
	at    int64
	entry []byte // scratch of record

	server   string // see SignedBy
	signed   signature
	hinted   int   // timer signals given
	earliest int64 // the earliest of them

	damaged []byte // see Damaged
}

// entry is one object as this transaction knows it. stored is what the store holds, which derived entries
// are compared against; it is nil if the store has none.
type entry struct {
	object *machine.Object
	stored *machine.Object
	task   machine.Task // backs stored.Task
	copied machine.Object
}

// Read is a workspace within a read transaction.
func Read(r kv.Reader, workspace string, l keyspace.Layout) *Txn {
	return &Txn{r: r, ws: workspace, keys: keyspace.For(workspace, l), cache: map[string]*entry{}}
}

// Write is a workspace within a read-write transaction.
func Write(tx kv.Tx, workspace string, l keyspace.Layout) *Txn {
	t := Read(tx, workspace, l)
	t.tx = tx
	return t
}

// Caused says why the transaction changes what it changes, and at which instant (epoch ms): its journal entries
// carry both. It returns t. Without it they carry neither.
func (t *Txn) Caused(cause journal.Cause, at int64) *Txn {
	t.cause, t.at = cause, at
	return t
}

// SignedBy makes the signals of the transaction say which server gives them. It returns t.
func (t *Txn) SignedBy(server string) *Txn {
	t.server = server
	return t
}

// Damaged is the key of the object or waiter that did not decode, which is what the transaction's last error was
// about; nil if none did.
func (t *Txn) Damaged() []byte { return t.damaged }

// Workspace is the workspace's name; Keys are its keys.
func (t *Txn) Workspace() string { return t.ws }

// Keys are the workspace's keys.
func (t *Txn) Keys() keyspace.Keys { return t.keys }

// remember keeps o as the object of this transaction, and a copy of it as what is stored.
func (t *Txn) remember(id string, o *machine.Object, stored bool) *entry {
	e := &entry{object: o}
	t.cache[id] = e
	if stored {
		e.keep()
	}
	return e
}

// keep notes that the object as it is now is what the store holds.
func (e *entry) keep() {
	e.copied = *e.object
	if e.object.Task != nil {
		e.task = *e.object.Task
		e.copied.Task = &e.task
	}
	e.stored = &e.copied
}

// Object implements machine.State.
func (t *Txn) Object(id string) (*machine.Object, error) {
	if e, ok := t.cache[id]; ok {
		return e.object, nil
	}
	b, err := t.r.Get(t.keys.Object(id))
	if err != nil {
		return nil, err
	}
	return t.decode(id, b)
}

// decode remembers the object of an id by its record, nil for no record.
func (t *Txn) decode(id string, b []byte) (*machine.Object, error) {
	if b == nil {
		t.remember(id, nil, false)
		return nil, nil
	}
	o, err := keyspace.Object(id, b)
	if err != nil {
		t.damaged = t.keys.Object(id)
		return nil, err
	}
	t.remember(id, o, true)
	return o, nil
}

// Expired lists, in no order, the promises that this transaction has met whose deadlines have passed and are not stored
// as settled.
func (t *Txn) Expired(now int64) (ids []string) {
	for id, e := range t.cache {
		if o := e.object; o != nil && o.State == protocol.Pending && o.TimeoutAt <= now {
			ids = append(ids, id)
		}
	}
	return ids
}

// Load implements machine.State: one GetMany for what is not at hand.
func (t *Txn) Load(ids []string) error {
	keys := make([][]byte, 0, len(ids))
	want := make([]string, 0, len(ids))
	asked := make(map[string]bool, len(ids))
	for _, id := range ids {
		if _, ok := t.cache[id]; !ok && !asked[id] {
			asked[id] = true
			keys = append(keys, t.keys.Object(id))
			want = append(want, id)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	values, err := t.r.GetMany(keys)
	if err != nil {
		return err
	}
	for i, id := range want {
		if _, err := t.decode(id, values[i]); err != nil {
			return err
		}
	}
	return nil
}

// Put implements machine.State: the record, its chunks if it has grown too large, and the difference of the
// derived entries, and an entry of the journal if a state or the version has changed.
func (t *Txn) Put(o *machine.Object) error {
	if t.tx == nil {
		return errReadOnly
	}
	if err := machine.CheckObject(o); err != nil {
		return fmt.Errorf("store: refused to write: %w", err)
	}
	e := t.cache[o.ID]
	if e == nil || e.object != o {
		if e == nil { // new to this transaction: what is stored decides about derived entries
			if _, err := t.Object(o.ID); err != nil {
				return err
			}
			e = t.cache[o.ID]
		}
		e.object = o
	}
	for _, side := range []keyspace.Side{keyspace.SideParam, keyspace.SideValue} {
		id := o.ID
		key := func(token string, n int64) []byte { return t.keys.Chunk(id, side, token, n) }
		if err := t.spill(payloadOf(o, side), key); err != nil {
			return err
		}
	}
	if err := t.tx.Put(t.keys.Object(o.ID), keyspace.AppendObject(nil, o)); err != nil {
		return err
	}
	t.old, t.new = t.old[:0], t.keys.Derive(t.new[:0], o)
	if e.stored != nil {
		t.old = t.keys.Derive(t.old, e.stored)
	}
	if err := t.replace(o, e.stored); err != nil {
		return err
	}
	if err := t.record(journal.Object, o.ID, journal.OfObject(e.stored), journal.OfObject(o)); err != nil {
		return err
	}
	e.keep()
	return nil
}

// record appends a journal entry if a state or a version has changed. (docs/machine.md, "Journal")
func (t *Txn) record(what journal.What, id string, from, to journal.State) error {
	if from == to {
		return nil
	}
	return t.journal(journal.Entry{What: what, ID: id, From: from, To: to})
}

func (t *Txn) journal(e journal.Entry) error {
	e.Cause, e.At = t.cause, t.at
	t.entry = keyspace.AppendEntry(t.entry[:0], &e)
	return t.tx.Append(t.keys.Partition(), t.entry)
}

func payloadOf(o *machine.Object, side keyspace.Side) *machine.Payload {
	if side == keyspace.SideParam {
		return &o.Param
	}
	return &o.Value
}

// replace writes the difference between t.old and t.new and signals what the loops want to know. o and
// stored are the object after and before, nil where no object is concerned.
func (t *Txn) replace(o, stored *machine.Object) error {
	for _, was := range t.old {
		if find(t.new, was.Key) {
			continue
		}
		if err := t.tx.Delete(was.Key); err != nil {
			return err
		}
	}
	if isPending(stored) && !isPending(o) { // whether its execute is still queued or was delivered
		t.hint(ClaimedSignal(t.ws, stored.ID, stored.Task.Version))
	}
	for _, is := range t.new {
		if find(t.old, is.Key) {
			continue
		}
		if err := t.tx.Put(is.Key, is.Value); err != nil {
			return err
		}
		switch kind, dueAt := keyspace.Classify(is.Key); kind {
		case keyspace.EntryTimer:
			t.hintTimer(dueAt)
		case keyspace.EntryExecute:
			t.hint(ExecuteSignal(t.ws, o.ID, o.Task.Version, o.Target()))
		}
	}
	return nil
}

func isPending(o *machine.Object) bool {
	return o != nil && o.Task != nil && o.Task.State == protocol.TaskPending
}

func find(entries []kv.Entry, key []byte) bool {
	for i := range entries {
		if bytes.Equal(entries[i].Key, key) {
			return true
		}
	}
	return false
}

// Waiters implements machine.State.
func (t *Txn) Waiters(awaited string, limit int) ([]machine.Waiter, error) {
	rows, err := t.r.Scan(t.keys.Waiters(awaited), limit)
	if err != nil {
		return nil, err
	}
	out := make([]machine.Waiter, 0, len(rows))
	for _, row := range rows {
		w, err := t.keys.ParseWaiter(awaited, row.Key)
		if err != nil {
			t.damaged = row.Key
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

// PutWaiter implements machine.State.
func (t *Txn) PutWaiter(w machine.Waiter) error {
	return t.tx.Put(t.keys.Waiter(w), keyspace.Marker())
}

// DeleteWaiter implements machine.State.
func (t *Txn) DeleteWaiter(w machine.Waiter) error { return t.tx.Delete(t.keys.Waiter(w)) }

// Draining implements machine.State.
func (t *Txn) Draining(id string) (bool, error) {
	b, err := t.r.Get(t.keys.Drain(id))
	if err != nil || b == nil {
		return false, err
	}
	return true, keyspace.CheckMarker("drain", b)
}

// SetDraining implements machine.State.
func (t *Txn) SetDraining(id string, draining bool) error {
	derived := t.keys.DeriveDrain(id)
	if !draining {
		if err := t.tx.Delete(t.keys.Drain(id)); err != nil {
			return err
		}
		return t.tx.Delete(derived.Key)
	}
	if err := t.tx.Put(t.keys.Drain(id), keyspace.Marker()); err != nil {
		return err
	}
	t.hintTimer(0)
	return t.tx.Put(derived.Key, derived.Value)
}

// PutUnblock implements machine.State.
func (t *Txn) PutUnblock(u machine.Unblock) error {
	key := t.keys.Unblock(u.ID, u.Address)
	if err := t.tx.Put(key, keyspace.AppendInstant(nil, u.DueAt)); err != nil {
		return err
	}
	derived := t.keys.DeriveUnblock(u.ID, u.Address)
	t.hint(UnblockSignal(t.ws, u.ID, u.Address))
	return t.tx.Put(derived.Key, derived.Value)
}

// UnblockDueAt returns when an unblock message was queued; ok is false if there is none.
func (t *Txn) UnblockDueAt(id, address string) (dueAt int64, ok bool, err error) {
	b, err := t.r.Get(t.keys.Unblock(id, address))
	if err != nil || b == nil {
		return 0, false, err
	}
	dueAt, err = keyspace.Instant("unblock", b)
	return dueAt, err == nil, err
}

// DeleteUnblock removes an unblock message: it has been delivered, or has expired.
func (t *Txn) DeleteUnblock(id, address string) error {
	if err := t.tx.Delete(t.keys.Unblock(id, address)); err != nil {
		return err
	}
	return t.tx.Delete(t.keys.DeriveUnblock(id, address).Key)
}

// Payload implements machine.State.
func (t *Txn) Payload(o *machine.Object, p *machine.Payload) (protocol.Value, error) {
	side := keyspace.SideParam
	if p == &o.Value {
		side = keyspace.SideValue
	}
	return t.assemble(p, func(n int64) []byte { return t.keys.Chunk(o.ID, side, p.Ref, n) })
}
