package keyspace

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"

	"abide/internal/machine"
	"abide/kv"
	"abide/kv/tuple"
)

// corrupt is the error of bytes that do not decode, with the kind of their key. To the machine, which knows no
// store, that is a record that breaks an invariant.
func corrupt(kind string, cause error) error {
	if !errors.Is(cause, machine.ErrInvariant) {
		cause = fmt.Errorf("%w: %w", machine.ErrInvariant, cause)
	}
	return &kv.Error{Is: kv.ErrCorrupt, Store: "keyspace", Op: "decode", KeyKind: kind, Err: cause}
}

// ParseObject returns the id in an object key; ok is false for a tree key of another kind.
func (k Keys) ParseObject(key []byte) (id string, ok bool, err error) {
	if len(key) < len(k.ws) {
		return "", false, corrupt("object", fmt.Errorf("key too short"))
	}
	r := tuple.NewReader(key[len(k.ws):])
	tree, err := r.NextString()
	if err != nil {
		return "", false, corrupt("tree", err)
	}
	kind, err := r.NextInt()
	if err != nil {
		return "", false, corrupt("tree", err)
	}
	if kind != treeObject {
		return tree, false, nil
	}
	rest, err := lastString(&r)
	if err == nil {
		id, err = join(tree, rest)
	}
	if err != nil {
		return "", false, corrupt("object", err)
	}
	return id, true, nil
}

// join undoes split. An id has one key of each kind: one that is cut elsewhere is damage, and taking it for the id's
// own would make a second record of it.
func join(tree, rest string) (id string, err error) {
	if id = tree + rest; len(Tree(id)) != len(tree) {
		return "", fmt.Errorf("%w: the id is not cut at the end of its tree", tuple.ErrMalformed)
	}
	return id, nil
}

func lastString(r *tuple.Reader) (string, error) {
	s, err := r.NextString()
	if err != nil {
		return "", err
	}
	return s, r.End()
}

// ParseID returns the id that a key of range r ends with, written as (tree(id), rest).
func ParseID(r kv.Range, key []byte) (string, error) {
	rd := tuple.NewReader(key[len(r.Start):])
	tree, err := rd.NextString()
	if err != nil {
		return "", corrupt(Kind(key), err)
	}
	rest, err := lastString(&rd)
	if err != nil {
		return "", corrupt(Kind(key), err)
	}
	id, err := join(tree, rest)
	if err != nil {
		return "", corrupt(Kind(key), err)
	}
	return id, nil
}

// ParseWaiter returns the waiter of a key in Waiters(awaited).
func (k Keys) ParseWaiter(awaited string, key []byte) (machine.Waiter, error) {
	r := tuple.NewReader(key[len(k.treeOf(awaited, treeWaiter)):])
	kind, err := r.NextInt()
	if err != nil {
		return machine.Waiter{}, corrupt("waiter", err)
	}
	to, err := lastString(&r)
	if err != nil {
		return machine.Waiter{}, corrupt("waiter", err)
	}
	return machine.Waiter{Awaited: awaited, Kind: machine.WaiterKind(kind), To: to}, nil
}

// ParseLast returns the string that a key of range r ends with: the id of a lease, schedule or execute
// entry (for an execute, r is the range of its shard).
func ParseLast(r kv.Range, key []byte) (string, error) {
	rd := tuple.NewReader(key[len(r.Start):])
	s, err := lastString(&rd)
	if err != nil {
		return "", corrupt(Kind(key), err)
	}
	return s, nil
}

// Timer is a parsed timer entry.
type Timer struct {
	Key       []byte
	Kind      TimerKind
	DueAt     int64
	Workspace string
	ID        string
}

// ParseTimer parses the key of a timer entry.
func ParseTimer(key []byte) (Timer, error) {
	r := tuple.NewReader(key)
	t := Timer{Key: key}
	var ns, kind, shard int64
	var err error
	step := func(f func() error) {
		if err == nil {
			err = f()
		}
	}
	next := func(p *int64) func() error {
		return func() (e error) { *p, e = r.NextInt(); return e }
	}
	step(next(&ns))
	step(next(&kind))
	step(next(&shard))
	step(next(&t.DueAt))
	step(r.NextNil)
	step(func() (e error) { t.Workspace, e = r.NextString(); return e })
	step(func() (e error) { t.ID, e = r.NextString(); return e })
	step(r.End)
	if err == nil && ns != nsTimer {
		err = fmt.Errorf("namespace %d", ns)
	}
	if err != nil {
		return t, corrupt("timer", err)
	}
	t.Kind = TimerKind(kind)
	return t, nil
}

// ParseWorkspace returns the workspace that the key of a workspace record names.
func ParseWorkspace(key []byte) (string, error) {
	r := tuple.NewReader(key)
	if _, err := r.NextInt(); err != nil {
		return "", corrupt("workspace", err)
	}
	if err := r.NextNil(); err != nil {
		return "", corrupt("workspace", err)
	}
	ws, err := lastString(&r)
	if err != nil {
		return "", corrupt("workspace", err)
	}
	return ws, nil
}

var treeKinds = map[int64]string{
	treeObject: "object", treeBranch: "branch", treeWaiter: "waiter", treeDrain: "drain",
	treeChunk: "chunk", treeUnblock: "unblock", treeOrigin: "origin",
}

var spaces = map[int64]string{
	nsTimer: "timer", nsLease: "lease", nsExecute: "execute", nsUnblock: "unblock entry",
	nsOpenTask: "open task", nsTag: "tag", nsManyTags: "many tags",
	nsFormat: "format", nsWorkspace: "workspace", nsSchedule: "schedule", nsScheduleChunk: "schedule chunk",
	nsQuarantine: "quarantine", nsServer: "server", nsDebugClock: "debug clock",
	nsMember: "member", nsRoster: "roster", nsConnection: "connection",
}

// Kind names the kind of a key, for errors and statistics; "unknown" for bytes that are no key of ours.
func Kind(key []byte) string {
	r := tuple.NewReader(key)
	if err := r.NextNil(); err == nil {
		if _, err := r.NextString(); err != nil {
			return "unknown"
		}
		if _, err := r.NextString(); err != nil {
			return "unknown"
		}
		if n, err := r.NextInt(); err == nil && treeKinds[n] != "" {
			return treeKinds[n]
		}
		return "unknown"
	}
	if n, err := r.NextInt(); err == nil && spaces[n] != "" {
		return spaces[n]
	}
	return "unknown"
}

// Placement says which storage partition a key belongs to, and whether it is an index entry that a
// partitioned engine may keep as a superset. Tree keys are placed by their tree.
func Placement(key []byte) (partition []byte, index bool) {
	r := tuple.NewReader(key)
	if r.NextNil() == nil {
		if _, err := r.NextString(); err != nil {
			return nil, false
		}
		if _, err := r.NextString(); err != nil {
			return nil, false
		}
		partition = key[:len(key)-len(r.Rest())]
		n, err := r.NextInt()
		return partition, err == nil && (n == treeBranch || n == treeOrigin)
	}
	n, err := r.NextInt()
	return nil, err == nil && n < nsFormat
}

// Register is what a store is told about these keys.
func Register() kv.KeyRegister { return kv.KeyRegister{Kind: Kind, Placement: Placement} }

// parseTree splits a tree key into its kind, its id and what follows the id.
func (k Keys) parseTree(key []byte) (kind int64, id string, r tuple.Reader, err error) {
	if len(key) < len(k.ws) {
		return 0, "", r, fmt.Errorf("key too short")
	}
	r = tuple.NewReader(key[len(k.ws):])
	tree, err := r.NextString()
	if err != nil {
		return 0, "", r, err
	}
	if kind, err = r.NextInt(); err != nil {
		return 0, "", r, err
	}
	rest, err := r.NextString()
	if err == nil {
		id, err = join(tree, rest)
	}
	return kind, id, r, err
}

// ParseDrain returns the id of a drain obligation's key; ok is false for any other key.
func (k Keys) ParseDrain(key []byte) (id string, ok bool) {
	kind, id, r, err := k.parseTree(key)
	return id, err == nil && kind == treeDrain && r.Done()
}

// ParseUnblock returns the promise and the address of a queued unblock's key; ok is false for any other key.
func (k Keys) ParseUnblock(key []byte) (id, address string, ok bool) {
	kind, id, r, err := k.parseTree(key)
	if err != nil || kind != treeUnblock {
		return "", "", false
	}
	address, err = lastString(&r)
	return id, address, err == nil
}

// UnblockEntry is a parsed entry of the unblock index.
type UnblockEntry struct {
	Workspace string
	ID        string
	Address   string
}

// ParseUnblockEntry parses an entry of the unblock index. The address in the value must be the one whose digest the
// key ends with.
func ParseUnblockEntry(key, value []byte) (u UnblockEntry, err error) {
	if err := checkVersion(value); err != nil {
		return u, corrupt("unblock entry", err)
	}
	u.Address = string(value[1:])
	r := tuple.NewReader(key)
	if _, err = r.NextInt(); err == nil {
		err = r.NextNil()
	}
	if err == nil {
		u.Workspace, err = r.NextString()
	}
	if err == nil {
		err = skipDestination(&r)
	}
	if err == nil {
		u.ID, err = r.NextString()
	}
	var digest []byte
	if err == nil {
		digest, err = r.NextBytes()
	}
	if err == nil {
		err = r.End()
	}
	if sum := sha256.Sum256(value[1:]); err == nil && !bytes.Equal(digest, sum[:16]) {
		err = errors.New("the address is not the one that the key was made with")
	}
	if err != nil {
		return u, corrupt("unblock entry", err)
	}
	return u, nil
}

func skipDestination(r *tuple.Reader) error {
	kind, err := r.NextInt()
	if err != nil {
		return err
	}
	if _, err := r.NextString(); err != nil || kind == 1 {
		return err
	}
	_, err = r.NextString()
	return err
}

// ParseAnyWaiter returns the waiter of any waiter key; ok is false for any other key.
func (k Keys) ParseAnyWaiter(key []byte) (w machine.Waiter, ok bool) {
	kind, id, r, err := k.parseTree(key)
	if err != nil || kind != treeWaiter {
		return w, false
	}
	n, err := r.NextInt()
	if err != nil {
		return w, false
	}
	to, err := lastString(&r)
	return machine.Waiter{Awaited: id, Kind: machine.WaiterKind(n), To: to}, err == nil
}
