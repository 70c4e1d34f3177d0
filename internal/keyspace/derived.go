package keyspace

import (
	"crypto/sha256"
	"encoding/binary"

	"abide/internal/machine"
	"abide/kv"
	"abide/kv/tuple"
	"abide/protocol"
)

// DerivationVersion is the version of the rules in this file. It stands in a store's format record; a
// server writes exactly that set, and raising it is a rebuild.
const DerivationVersion = 1

// marker is the value of an entry that says everything by its key.
var marker = []byte{recordVersion}

// Marker is the value of a row that says everything by its key: a waiter, a drain obligation.
func Marker() []byte { return marker }

// Destination is one queue of the outbox. For poll addresses it is a group, and for a message that only
// one worker may take that worker's pid; for every other scheme it is the address itself. A poll destination
// without a group is the whole workspace.
type Destination struct {
	Poll  bool
	Group string // poll
	PID   string // poll, unicast
	Other string // any other scheme
}

// Destination is the queue that messages to an address wait in.
//
// The TypeScript SDK takes its own group and pid from the first two segments of its poll URL's path. Under
// /w/NAME those are not what it polls as, and its addresses come out as poll://any@NAME/poll and
// poll://uni@NAME/poll: in the workspace NAME they stand for whoever is connected to it.
func (k Keys) Destination(address string) Destination {
	a, err := protocol.ParseAddress(address)
	if err != nil || a.Scheme != protocol.SchemePoll {
		return Destination{Other: address}
	}
	if a.ID == "poll" && a.Group == k.name && k.name != protocol.DefaultWorkspace {
		return Destination{Poll: true}
	}
	d := Destination{Poll: true, Group: a.Group}
	if a.Cast == protocol.CastUni {
		d.PID = a.ID
		if d.PID == "" {
			return Destination{Other: address} // can reach nobody: keep it out of everybody's way
		}
	}
	return d
}

func (d Destination) append(b []byte) []byte {
	if !d.Poll {
		return tuple.AppendString(tuple.AppendInt(b, 1), d.Other)
	}
	b = tuple.AppendString(tuple.AppendInt(b, 0), d.Group)
	return tuple.AppendString(b, d.PID)
}

// Executes is the index range of one destination and shard.
func (k Keys) Executes(d Destination, shard int64) kv.Range {
	return Prefix(k.executes(d, shard))
}

func (k Keys) executes(d Destination, shard int64) []byte {
	return tuple.AppendInt(d.append(k.space(nsExecute)), shard)
}

// Unblocks is the index range of one destination's unblock messages; AllUnblocks that of all.
func (k Keys) Unblocks(d Destination) kv.Range { return Prefix(d.append(k.space(nsUnblock))) }

// AllUnblocks is the index range of the unblock messages of all workspaces.
func AllUnblocks() kv.Range { return Prefix(tuple.AppendInt(nil, nsUnblock)) }

// shard places an id in one of the shards of a sharded index.
func (k Keys) shard(id string) int64 {
	if k.Layout.Shards <= 1 {
		return 0
	}
	h := sha256.New()
	h.Write(k.ws)
	h.Write([]byte(id))
	var sum [sha256.Size]byte
	return int64(binary.BigEndian.Uint64(h.Sum(sum[:0])) % uint64(k.Layout.Shards))
}

func (k Keys) timer(kind TimerKind, dueAt int64, id string) []byte {
	b := tuple.AppendInt(timers(kind, k.shard(id)), dueAt)
	return tuple.AppendString(append(b, k.ws...), id)
}

// Derive appends to dst the entries that an object calls for: which timer, lease, execute, open task, tag,
// branch and origin rows must exist while it is as it is. A pure function of the record; the store writes
// the difference between before and after, and a checker recomputes it.
func (k Keys) Derive(dst []kv.Entry, o *machine.Object) []kv.Entry {
	add := func(key []byte) { dst = append(dst, kv.Entry{Key: key, Value: marker}) }
	if o.Armed() {
		add(k.timer(TimerPromise, o.TimeoutAt, o.ID))
	}
	if t := o.Task; t != nil && t.State != protocol.TaskFulfilled {
		add(appendID(k.space(nsOpenTask), o.ID))
		switch {
		case t.State == protocol.TaskAcquired:
			add(k.timer(TimerLease, t.ArmedAt, o.ID))
			add(tuple.AppendString(tuple.AppendString(k.space(nsLease), t.PID), o.ID))
		case t.State == protocol.TaskPending && t.Queued:
			add(tuple.AppendString(k.executes(k.Destination(o.Target()), k.shard(o.ID)), o.ID))
		case t.State == protocol.TaskPending:
			add(k.timer(TimerRetry, t.RetryAt, o.ID))
		}
	}
	return k.deriveTags(dst, o)
}

// deriveTags appends the entries that an object's tags call for. Tags never change, so these never do.
func (k Keys) deriveTags(dst []kv.Entry, o *machine.Object) []kv.Entry {
	indexed := 0
	for _, t := range o.Tags {
		switch {
		case t.Name == protocol.TagBranch:
			if t.Value != o.ID {
				key := appendID(k.treeOf(bounded(t.Value), treeBranch), o.ID)
				dst = append(dst, kv.Entry{Key: key, Value: marker})
			}
		case t.Name == protocol.TagOrigin:
			if len(t.Value) > protocol.MaxIDBytes || Tree(t.Value) != Tree(o.ID) {
				key := appendID(k.treeOf(bounded(t.Value), treeOrigin), o.ID)
				dst = append(dst, kv.Entry{Key: key, Value: marker})
			}
		case machine.IsIndexed(t.Name):
			if indexed++; indexed <= MaxIndexedTags {
				dst = append(dst, kv.Entry{Key: appendID(k.tagged(t.Name, t.Value), o.ID), Value: marker})
			}
		}
	}
	if indexed > MaxIndexedTags {
		dst = append(dst, kv.Entry{Key: appendID(k.space(nsManyTags), o.ID), Value: marker})
	}
	return dst
}

// DeriveUnblock is the entry that an unblock row calls for. Its value holds the address.
func (k Keys) DeriveUnblock(id, address string) kv.Entry {
	sum := sha256.Sum256([]byte(address))
	key := tuple.AppendString(k.Unblocks(k.Destination(address)).Start, id)
	return kv.Entry{Key: tuple.AppendBytes(key, sum[:16]), Value: append([]byte{recordVersion}, address...)}
}

// DeriveDrain is the timer that a drain obligation calls for: due at once.
func (k Keys) DeriveDrain(id string) kv.Entry {
	return kv.Entry{Key: k.timer(TimerDrain, 0, id), Value: marker}
}

// DeriveSchedule appends the timer that a schedule calls for, unless it is disarmed.
func (k Keys) DeriveSchedule(dst []kv.Entry, s *machine.Schedule) []kv.Entry {
	if s.Disarmed {
		return dst
	}
	return append(dst, kv.Entry{Key: k.timer(TimerSchedule, s.NextRunAt, s.ID), Value: marker})
}

// EntryKind says which index an entry belongs to, as far as somebody wants to be woken for it.
type EntryKind int

// What a change of an entry means to the loops.
const (
	EntryOther   EntryKind = iota
	EntryTimer             // a timer armed
	EntryExecute           // an execute queued
)

// Classify says what a derived entry is, and for a timer when it is due.
func Classify(key []byte) (kind EntryKind, dueAt int64) {
	r := tuple.NewReader(key)
	ns, err := r.NextInt()
	if err != nil {
		return EntryOther, 0
	}
	switch ns {
	case nsExecute:
		return EntryExecute, 0
	case nsTimer:
		r.NextInt() // kind and shard do not matter; a malformed key gives due 0: look at once
		r.NextInt()
		dueAt, _ = r.NextInt()
		return EntryTimer, dueAt
	}
	return EntryOther, 0
}
