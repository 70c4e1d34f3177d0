package batch

import (
	"bytes"
	"slices"

	"github.com/tidwall/btree"

	"abide/kv"
)

// overlay is what a batch knows on top of the committed state: the keys that its closures changed and, so
// that closures which read the same record share one read, the keys that they looked up.
//
// Closures write straight into it, and an undo list takes back what a failed closure did. Entries are never
// removed from the tree: an undone one is merely unchanged again.
//
// Journal entries are kept apart: nobody reads them before the commit.
type overlay struct {
	tree *btree.BTreeG[*entry]
	// probe is the key that lookups compare with, kept here so that they allocate nothing.
	probe entry
	slab  []entry

	undo    []undoStep
	journal []Write
	// dirty counts the entries that have ever been changed by a closure of this batch: while it is zero, a
	// scan needs no merging.
	dirty int
	// cachedBytes bounds the values that are held only because they were read.
	cachedBytes int
	// covered are the ranges that are known completely, in order and apart; see cache.go.
	covered []interval
}

// maxCachedBytes is how much a batch remembers of what it read. Beyond it, reads go to the engine again.
const maxCachedBytes = 4 << 20

// slabEntries is how many entries are allocated together. Those that a batch leaves over serve the next.
const slabEntries = 32

type change uint8

const (
	unchanged change = iota
	put
	deleted
)

// base is what is known of a key's committed state.
type base uint8

const (
	baseUnknown base = iota
	baseAbsent
	basePresent
)

// entry is one key. value belongs to change, committed to base.
type entry struct {
	key       []byte
	value     []byte
	committed []byte
	change    change
	base      base
}

// undoStep restores an entry to what it was before a closure changed it.
type undoStep struct {
	entry  *entry
	value  []byte
	change change
}

func newOverlay() *overlay {
	return &overlay{tree: btree.NewBTreeGOptions(
		func(a, b *entry) bool { return bytes.Compare(a.key, b.key) < 0 },
		btree.Options{NoLocks: true},
	)}
}

// reset empties the overlay for the next batch.
func (o *overlay) reset() {
	o.tree.Clear()
	o.undo = clearSlice(o.undo)
	o.journal = clearSlice(o.journal)
	o.covered = clearSlice(o.covered)
	o.dirty, o.cachedBytes = 0, 0
	o.probe.key = nil
}

// clearSlice empties s and lets go of what it points to, keeping the memory.
func clearSlice[T any](s []T) []T {
	clear(s)
	return s[:0]
}

// find returns the entry of key, or nil.
func (o *overlay) find(key []byte) *entry {
	o.probe.key = key
	e, _ := o.tree.Get(&o.probe)
	return e
}

// insert adds an entry for key, which has none. It copies key.
func (o *overlay) insert(key []byte) *entry {
	if len(o.slab) == 0 {
		o.slab = make([]entry, slabEntries)
	}
	e := &o.slab[0]
	o.slab = o.slab[1:]
	e.key = bytes.Clone(key)
	o.tree.Set(e)
	return e
}

// get returns the value of key for a closure: from the overlay, else from the engine.
func (o *overlay) get(d DriverReader, key []byte) ([]byte, error) {
	e := o.find(key)
	if e != nil {
		switch {
		case e.change == put:
			return e.value, nil
		case e.change == deleted || e.base == baseAbsent:
			return nil, nil
		case e.base == basePresent:
			return e.committed, nil
		}
	}
	value, err := d.Get(key)
	if err != nil {
		return nil, err
	}
	if o.cachedBytes += len(key) + len(value); o.cachedBytes > maxCachedBytes {
		return value, nil
	}
	if e == nil {
		e = o.insert(key)
	}
	if e.base = baseAbsent; value != nil {
		e.base, e.committed = basePresent, value
	}
	return value, nil
}

// set records a put (of a value that the overlay may keep) or a deletion.
func (o *overlay) set(key, value []byte, c change) {
	e := o.find(key)
	if e == nil {
		e = o.insert(key)
	}
	o.undo = append(o.undo, undoStep{entry: e, value: e.value, change: e.change})
	e.value, e.change = value, c
	o.dirty++
}

// mark is a point to which the overlay can be taken back.
type mark struct{ journal int }

// begin marks the start of a closure.
func (o *overlay) begin() mark {
	o.undo = clearSlice(o.undo)
	return mark{journal: len(o.journal)}
}

// rollback takes back everything since the mark.
func (o *overlay) rollback(m mark) {
	for _, step := range slices.Backward(o.undo) {
		step.entry.value, step.entry.change = step.value, step.change
	}
	o.undo = clearSlice(o.undo)
	clear(o.journal[m.journal:])
	o.journal = o.journal[:m.journal]
}

// scan visits the entries of r as a closure sees them, in order, until visit returns false. The slices given
// to visit may be kept.
func (o *overlay) scan(d DriverReader, r kv.Range, visit func(key, value []byte) bool) error {
	if o.dirty == 0 {
		return d.Scan(r, visit)
	}
	it := o.tree.Iter()
	defer it.Release()
	o.probe.key = r.Start
	next := nextChanged(&it, it.Seek(&o.probe), r.End)
	if next == nil {
		return d.Scan(r, visit)
	}
	going := true
	err := d.Scan(r, func(key, value []byte) bool {
		for next != nil {
			order := bytes.Compare(next.key, key)
			if order > 0 {
				break
			}
			if next.change == put && going {
				going = visit(bytes.Clone(next.key), next.value)
			}
			next = nextChanged(&it, it.Next(), r.End)
			if order == 0 {
				return going // the batch's change stands for the engine's entry
			}
			if !going {
				return false
			}
		}
		going = visit(key, value)
		return going
	})
	for err == nil && going && next != nil {
		if next.change == put {
			going = visit(bytes.Clone(next.key), next.value)
		}
		next = nextChanged(&it, it.Next(), r.End)
	}
	return err
}

// nextChanged is the iterator's entry, or the first after it, that is changed and before end; nil if none.
func nextChanged(it *btree.IterG[*entry], ok bool, end []byte) *entry {
	for ; ok; ok = it.Next() {
		e := it.Item()
		if bytes.Compare(e.key, end) >= 0 {
			return nil
		}
		if e.change != unchanged {
			return e
		}
	}
	return nil
}

// writes appends the batch's changes to dst in ascending order of keys. A put that a later deletion took
// back is a deletion still, unless the key is known to be absent: then it is nothing.
func (o *overlay) writes(dst []Write) []Write {
	if o.dirty > 0 {
		o.tree.Scan(func(e *entry) bool {
			switch {
			case e.change == put:
				dst = append(dst, Write{Key: e.key, Value: e.value})
			case e.change == deleted && e.base != baseAbsent:
				dst = append(dst, Write{Key: e.key, Delete: true})
			}
			return true
		})
	}
	if len(o.journal) == 0 {
		return dst
	}
	// Its own entries are mostly in order already. They come after every other key, but for those that
	// compaction changed.
	slices.SortFunc(o.journal, byKey)
	inOrder := len(dst) == 0 || dst[len(dst)-1].Key[0] < kv.ReservedPrefix
	dst = append(dst, o.journal...)
	if !inOrder {
		slices.SortFunc(dst, byKey)
	}
	return dst
}

func byKey(a, b Write) int { return bytes.Compare(a.Key, b.Key) }
