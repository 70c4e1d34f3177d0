package store

import (
	"fmt"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

// Enumerate implements machine.State.
func (t *Txn) Enumerate(p machine.Path, after string, limit int) (machine.Page, error) {
	switch p.Kind {
	case machine.PathAll:
		return t.allObjects(after, limit)
	case machine.PathOpenTasks:
		return t.candidates(after, limit, t.indexed(t.keys.OpenTasks()))
	case machine.PathTag:
		return t.candidates(after, limit, t.indexed(t.keys.Tagged(p.Name, p.Value)), t.indexed(t.keys.ManyTags()))
	case machine.PathBranch:
		return t.candidates(after, limit, t.orObjects(t.keys.Branch(p.Value), p.Value, single)...)
	case machine.PathOrigin:
		return t.candidates(after, limit, t.orObjects(t.keys.Origin(p.Value), p.Value, t.treeObjects)...)
	}
	return machine.Page{}, fmt.Errorf("store: unknown access path %d", p.Kind)
}

// adopt is the object of a row that a scan has met: the transaction's own if it has one already.
func (t *Txn) adopt(id string, record []byte) (*machine.Object, error) {
	if e, ok := t.cache[id]; ok && e.object != nil {
		return e.object, nil
	}
	return t.decode(id, record)
}

// orObjects are the streams of an index and of the objects that the index leaves out because a tag's value says
// where they are. No id, and so no such object, is longer than protocol.MaxIDBytes.
func (t *Txn) orObjects(all kv.Range, value string, objects func(value string) stream) []stream {
	streams := []stream{t.indexed(all)}
	if len(value) <= protocol.MaxIDBytes {
		streams = append(streams, objects(value))
	}
	return streams
}

// firstScan is how many rows a walk over objects reads at first and after a jump: what is read of a tree's other
// rows is read for nothing, and chunks are large.
const firstScan = 32

// allObjects walks the objects of the workspace in key order. Within a tree they come first; the rest of the
// tree is passed over, or jumped over where it is long.
func (t *Txn) allObjects(after string, limit int) (machine.Page, error) {
	r := t.keys.All()
	if after != "" {
		r = keyspace.After(r, t.keys.Object(after))
	}
	page := machine.Page{}
	for batch := firstScan; page.Scanned < limit; {
		want := min(batch, limit-page.Scanned)
		rows, err := t.r.Scan(r, want)
		if err != nil {
			return page, err
		}
		page.Scanned += len(rows)
		tree, past := "", false // past: the scan has come to the other rows of tree
		for _, row := range rows {
			id, isObject, err := t.keys.ParseObject(row.Key)
			if err != nil {
				return page, err
			}
			if !isObject {
				// To continue after the whole tree: no id holds a NUL, so this stands before the next tree.
				tree, past, page.Next = id, true, id+"\x00"
				continue
			}
			o, err := t.adopt(id, row.Value)
			if err != nil {
				return page, err
			}
			page.Objects = append(page.Objects, o)
			past, page.Next = false, id
		}
		if len(rows) < want {
			page.Next = ""
			return page, nil
		}
		if past {
			batch, r.Start = firstScan, t.keys.TreeEnd(tree)
		} else {
			batch, r = 2*batch, keyspace.After(r, rows[len(rows)-1].Key)
		}
	}
	return page, nil
}

// stream yields ids in (tree, id) order strictly after an id, at most limit; more says whether there may be
// others.
type stream func(after string, limit int) (ids []string, more bool, err error)

// indexed streams the ids of index entries whose keys end with (tree, rest).
func (t *Txn) indexed(all kv.Range) stream {
	return func(after string, limit int) ([]string, bool, error) {
		rows, err := t.r.Scan(keyspace.AfterID(all, after), limit)
		if err != nil {
			return nil, false, err
		}
		ids := make([]string, 0, len(rows))
		for _, row := range rows {
			id, err := keyspace.ParseID(all, row.Key)
			if err != nil {
				return nil, false, err
			}
			ids = append(ids, id)
		}
		return ids, len(rows) == limit, nil
	}
}

// treeObjects streams the objects of tree(id).
func (t *Txn) treeObjects(id string) stream {
	all := t.keys.TreeObjects(id)
	tree := keyspace.Tree(id)
	return func(after string, limit int) ([]string, bool, error) {
		r := all
		if after != "" {
			switch c := keyspace.CompareIDs(after, tree); {
			case c >= 0 && keyspace.Tree(after) != tree:
				return nil, false, nil // past the whole tree
			case c >= 0:
				r = keyspace.After(all, t.keys.Object(after))
			}
		}
		rows, err := t.r.Scan(r, limit)
		if err != nil {
			return nil, false, err
		}
		ids := make([]string, 0, len(rows))
		for _, row := range rows {
			id, _, err := t.keys.ParseObject(row.Key)
			if err != nil {
				return nil, false, err
			}
			if _, err := t.adopt(id, row.Value); err != nil {
				return nil, false, err
			}
			ids = append(ids, id)
		}
		return ids, len(rows) == limit, nil
	}
}

// single streams one id, which may be that of no object.
func single(id string) stream {
	return func(after string, _ int) ([]string, bool, error) {
		if after != "" && keyspace.CompareIDs(id, after) <= 0 {
			return nil, false, nil
		}
		return []string{id}, false, nil
	}
}

// candidates merges streams into one page of objects.
func (t *Txn) candidates(after string, limit int, streams ...stream) (machine.Page, error) {
	heads := make([][]string, len(streams))
	more := make([]bool, len(streams))
	read := 0
	for i, next := range streams {
		var err error
		if heads[i], more[i], err = next(after, limit); err != nil {
			return machine.Page{}, err
		}
		read += len(heads[i])
	}
	ids := make([]string, 0, limit)
	ended := false
	for len(ids) < limit {
		least := -1
		for i, h := range heads {
			if len(h) > 0 && (least < 0 || keyspace.CompareIDs(h[0], heads[least][0]) < 0) {
				least = i
			}
		}
		if least < 0 {
			ended = true
			break
		}
		id := heads[least][0]
		heads[least] = heads[least][1:]
		if n := len(ids); n == 0 || ids[n-1] != id {
			ids = append(ids, id)
		}
		if len(heads[least]) == 0 && more[least] {
			break // what comes next in that stream is not known: end the page here
		}
	}
	if err := t.Load(ids); err != nil {
		return machine.Page{}, err
	}
	page := machine.Page{Scanned: read + len(ids)}
	for _, id := range ids {
		if o := t.cache[id].object; o != nil { // an index may be a superset
			page.Objects = append(page.Objects, o)
		}
	}
	if !ended && len(ids) > 0 {
		page.Next = ids[len(ids)-1]
	}
	return page, nil
}
