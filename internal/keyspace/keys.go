// Package keyspace is the register of every key that Abide stores, the encoding of every record, and
// derived(record): which index entries a record calls for. Nothing else in the tree builds a key or knows
// what a value looks like.
//
// There are three families of keys.
//
//	tree    (tenant, workspace, tree(id), kind, ...)   everything about one call tree, side by side
//	index   (namespace, ..., tenant, workspace, ...)   derived from records; nobody writes one by hand
//	record  (namespace, tenant, workspace, ...)        records that belong to no call tree
//
// The tenant is nil today: one byte, reserved. A tree key therefore begins with 00, all others with an
// integer. In a tree key the id that names the tree is written as what follows tree(id), so that the
// longest key is a workspace and two ids; keys order by (tree, id), the order of every search.
//
// Source: ARCHITECTURE.md, "Keys".
package keyspace

import (
	"crypto/sha256"
	"strings"

	"abide/internal/machine"
	"abide/kv"
	"abide/kv/tuple"
	"abide/protocol"
)

// Kinds of tree key. Numbers are stored: a retired one stays reserved.
const (
	treeObject  = 0 // rest                               -> object: a promise with its task
	treeBranch  = 1 // rest of branch, tree(id), rest      -> marker; under tree(branch), unless the branch is the id
	treeWaiter  = 2 // rest of awaited, kind, to           -> marker
	treeDrain   = 3 // rest                               -> marker: a drain obligation
	treeChunk   = 4 // rest, side, token, n                -> piece of a large param or value
	treeUnblock = 5 // rest, address                      -> unblock: a listener turned due
	treeOrigin  = 6 // rest of origin, tree(id), rest      -> marker; under tree(origin), where tree(id) differs
)

// Namespaces of index and record keys. Numbers are stored: a retired one stays reserved.
const (
	nsTimer    = 1 // kind, shard, due, tenant, workspace, id
	nsLease    = 2 // tenant, workspace, pid, id
	nsExecute  = 3 // tenant, workspace, destination, shard, id
	nsUnblock  = 4 // tenant, workspace, destination, id, hash of address -> address
	nsOpenTask = 5 // tenant, workspace, tree(id), rest
	nsTag      = 6 // tenant, workspace, hash of (name, value), tree(id), rest
	nsManyTags = 7 // tenant, workspace, tree(id), rest: objects with more tags than are indexed

	nsFormat        = 16 // -> format: what rules the entries of this store were derived by
	nsWorkspace     = 17 // tenant, workspace
	nsSchedule      = 18 // tenant, workspace, id
	nsScheduleChunk = 19 // tenant, workspace, id, token, n
	nsQuarantine    = 20 // the moved key
	nsServer        = 21 // server id -> the ceiling of its clock; without an id, that of all whose rows are gone
	nsDebugClock    = 22 // tenant, workspace -> the largest debug instant
	nsMember        = 23 // server id -> a running server, where several share the store
	nsRoster        = 24 // -> the number of the last change of who is connected where
	nsConnection    = 25 // tenant, workspace, group, pid -> the server that the worker is connected to
)

// TimerKind says what a timer entry is for.
type TimerKind int64

// The kinds of timer, in the order of one pass. Numbers are stored.
const (
	TimerDrain    TimerKind = 0
	TimerPromise  TimerKind = 1
	TimerRetry    TimerKind = 2
	TimerLease    TimerKind = 3
	TimerSchedule TimerKind = 4
)

// TimerKinds lists them in the order of one pass.
var TimerKinds = []TimerKind{TimerDrain, TimerPromise, TimerRetry, TimerLease, TimerSchedule}

// MaxIndexedTags is how many of a promise's own tags have an index entry each; a promise with more is
// listed in one further entry and filtered.
const MaxIndexedTags = 32

// Tree is the part of an id before its first '.' or ':'. Calls that an SDK builds share it, so their rows
// lie side by side. It is for locality and placement only: no rule relates ids by it.
func Tree(id string) string {
	if i := strings.IndexAny(id, ".:"); i >= 0 {
		return id[:i]
	}
	return id
}

// split cuts an id into its tree and the rest.
func split(id string) (tree, rest string) {
	tree = Tree(id)
	return tree, id[len(tree):]
}

// bounded is s itself, or the first 16 bytes of its SHA-256 if s is too long for a key. Whoever reads an
// entry made with it checks the candidate's record again.
func bounded(s string) string {
	if len(s) <= protocol.MaxIDBytes {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return string(sum[:16])
}

// Keys builds the keys of one workspace. Every method returns a fresh slice. Safe for concurrent use.
type Keys struct {
	name   string
	ws     []byte // tenant, workspace
	Layout Layout
}

// Layout is what a store's format record fixes about keys.
type Layout struct {
	// Shards is the number of shards of the timer and execute indexes, at least 1.
	Shards int64
}

// For returns the keys of a workspace.
func For(workspace string, l Layout) Keys {
	return Keys{name: workspace, ws: tuple.AppendString(tuple.AppendNil(nil), workspace), Layout: l}
}

// keyRoom is the capacity of a fresh key: most fit without growing.
const keyRoom = 96

func (k Keys) tree(tree string, kind int64) []byte {
	b := make([]byte, 0, keyRoom)
	b = append(b, k.ws...)
	b = tuple.AppendString(b, tree)
	return tuple.AppendInt(b, kind)
}

func (k Keys) treeOf(id string, kind int64) []byte {
	tree, rest := split(id)
	return tuple.AppendString(k.tree(tree, kind), rest)
}

func (k Keys) space(ns int64) []byte {
	b := make([]byte, 0, keyRoom)
	return append(tuple.AppendInt(b, ns), k.ws...)
}

// appendID appends (tree(id), rest), which orders as searches do.
func appendID(b []byte, id string) []byte {
	tree, rest := split(id)
	return tuple.AppendString(tuple.AppendString(b, tree), rest)
}

// Object is the key of a promise with its task.
func (k Keys) Object(id string) []byte { return k.treeOf(id, treeObject) }

// Waiter is the key of one waiter; Waiters is the range of a promise's waiters, callbacks first.
func (k Keys) Waiter(w machine.Waiter) []byte {
	b := tuple.AppendInt(k.treeOf(w.Awaited, treeWaiter), int64(w.Kind))
	return tuple.AppendString(b, w.To)
}

// Waiters is the range of the waiters of one promise.
func (k Keys) Waiters(awaited string) kv.Range { return Prefix(k.treeOf(awaited, treeWaiter)) }

// Drain is the key of a drain obligation.
func (k Keys) Drain(id string) []byte { return k.treeOf(id, treeDrain) }

// Unblock is the key of a queued unblock message.
func (k Keys) Unblock(id, address string) []byte {
	return tuple.AppendString(k.treeOf(id, treeUnblock), address)
}

// Side says which payload of a promise a chunk belongs to. Numbers are stored.
type Side int64

// The two sides.
const (
	SideParam Side = 0
	SideValue Side = 1
)

// Chunk is the key of the n-th piece of a payload under a token.
func (k Keys) Chunk(id string, side Side, token string, n int64) []byte {
	b := tuple.AppendInt(k.treeOf(id, treeChunk), int64(side))
	b = tuple.AppendBytes(b, []byte(token))
	return tuple.AppendInt(b, n)
}

// Schedule is the key of a schedule; Schedules is the range of all of them.
func (k Keys) Schedule(id string) []byte { return tuple.AppendString(k.space(nsSchedule), id) }

// Schedules is the range of the workspace's schedules.
func (k Keys) Schedules() kv.Range { return Prefix(k.space(nsSchedule)) }

// ScheduleChunk is the key of the n-th piece of a schedule's promiseParam.
func (k Keys) ScheduleChunk(id, token string, n int64) []byte {
	b := tuple.AppendString(k.space(nsScheduleChunk), id)
	return tuple.AppendInt(tuple.AppendBytes(b, []byte(token)), n)
}

// ScheduleChunks is the range of all pieces of a schedule.
func (k Keys) ScheduleChunks(id string) kv.Range {
	return Prefix(tuple.AppendString(k.space(nsScheduleChunk), id))
}

// Workspace is the key of the workspace's own record; DebugClock that of its largest debug instant.
func (k Keys) Workspace() []byte { return k.space(nsWorkspace) }

// DebugClock is the key of the workspace's largest debug instant.
func (k Keys) DebugClock() []byte { return k.space(nsDebugClock) }

// All is every tree key of the workspace.
func (k Keys) All() kv.Range { return Prefix(append([]byte(nil), k.ws...)) }

// TreeEnd is the first key after every key of tree(id): where a walk over objects goes on.
func (k Keys) TreeEnd(id string) []byte {
	return tuple.PrefixEnd(tuple.AppendString(append([]byte(nil), k.ws...), Tree(id)))
}

// OpenTasks is the index range of the workspace's tasks that are not fulfilled.
func (k Keys) OpenTasks() kv.Range { return Prefix(k.space(nsOpenTask)) }

// Tagged is the index range of the objects with an indexed tag.
func (k Keys) Tagged(name, value string) kv.Range { return Prefix(k.tagged(name, value)) }

func (k Keys) tagged(name, value string) []byte {
	h := sha256.New()
	h.Write([]byte(name))
	h.Write([]byte{0}) // tag names hold no NUL
	h.Write([]byte(value))
	var sum [sha256.Size]byte
	return tuple.AppendBytes(k.space(nsTag), h.Sum(sum[:0])[:16])
}

// ManyTags is the index range of the objects that have more tags than are indexed.
func (k Keys) ManyTags() kv.Range { return Prefix(k.space(nsManyTags)) }

// Branch is the range of the objects under a branch, except the one whose id is the branch.
func (k Keys) Branch(branch string) kv.Range { return Prefix(k.treeOf(bounded(branch), treeBranch)) }

// Origin is the range of the objects with an origin of another tree than theirs.
func (k Keys) Origin(origin string) kv.Range { return Prefix(k.treeOf(bounded(origin), treeOrigin)) }

// TreeObjects is the range of the objects of tree(id).
func (k Keys) TreeObjects(id string) kv.Range { return Prefix(k.tree(Tree(id), treeObject)) }

// Leases is the index range of the tasks that a pid holds.
func (k Keys) Leases(pid string) kv.Range {
	return Prefix(tuple.AppendString(k.space(nsLease), pid))
}

// Timers is the index range of one kind and shard up to and including an instant, of all workspaces.
func Timers(kind TimerKind, shard, untilMs int64) kv.Range {
	b := timers(kind, shard)
	start := append([]byte(nil), b...)
	return kv.Range{Start: start, End: tuple.PrefixEnd(tuple.AppendInt(b, untilMs))}
}

func timers(kind TimerKind, shard int64) []byte {
	b := tuple.AppendInt(make([]byte, 0, keyRoom), nsTimer)
	return tuple.AppendInt(tuple.AppendInt(b, int64(kind)), shard)
}

// Server is the key of a server's row.
func Server(id string) []byte { return tuple.AppendString(tuple.AppendInt(nil, nsServer), id) }

// Format is the key of the store's format record.
func Format() []byte { return tuple.AppendInt(nil, nsFormat) }

// Quarantined is the key under which a row is set aside; Quarantine is the range of all of them.
func Quarantined(key []byte) []byte {
	return tuple.AppendBytes(tuple.AppendInt(nil, nsQuarantine), key)
}

// Quarantine is the range of all rows that were set aside.
func Quarantine() kv.Range { return Prefix(tuple.AppendInt(nil, nsQuarantine)) }

// Workspaces is the range of all workspace records.
func Workspaces() kv.Range { return Prefix(tuple.AppendInt(nil, nsWorkspace)) }

// Prefix is the range of all keys that begin with p.
func Prefix(p []byte) kv.Range { return kv.Range{Start: p, End: tuple.PrefixEnd(p)} }

// After is the rest of a range after one of its keys.
func After(r kv.Range, key []byte) kv.Range {
	start := make([]byte, 0, len(key)+1)
	return kv.Range{Start: append(append(start, key...), 0), End: r.End}
}

// AfterID is the rest of a range whose keys continue with (tree(id), rest), after an id; all of it for "".
func AfterID(r kv.Range, id string) kv.Range {
	if id == "" {
		return r
	}
	return After(r, appendID(append([]byte(nil), r.Start...), id))
}

// CompareIDs orders ids as their keys order: by (tree, id), each by bytes.
func CompareIDs(a, b string) int {
	ta, ra := split(a)
	tb, rb := split(b)
	if c := strings.Compare(ta, tb); c != 0 {
		return c
	}
	return strings.Compare(ra, rb)
}
