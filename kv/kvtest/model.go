package kvtest

import (
	"maps"
	"slices"

	"abide/kv"
)

// model is the contract as simply as it can be said: a sorted map, and a list for each journal partition.
type model struct {
	entries map[string]string
	journal map[string][]modelEntry // what is retained
	floors  map[string]kv.EntryPosition
	bound   kv.Position
	// commits are the positions of the statements of the history that wrote, by their numbers.
	commits map[int]kv.Position
}

type modelEntry struct {
	at     kv.EntryPosition
	record string
}

func newModel() *model {
	return &model{entries: map[string]string{}, journal: map[string][]modelEntry{}, floors: map[string]kv.EntryPosition{}, commits: map[int]kv.Position{}}
}

// clone is what a snapshot sees from then on.
func (m *model) clone() *model {
	c := *m
	c.entries, c.journal, c.floors, c.commits = maps.Clone(m.entries), maps.Clone(m.journal), maps.Clone(m.floors), maps.Clone(m.commits)
	return &c
}

func (m *model) get(key string) string {
	if value, ok := m.entries[key]; ok {
		return value
	}
	return show(nil)
}

func (m *model) scan(start, end string, limit int) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(m.entries)) {
		if key >= start && key < end && len(out) < limit {
			out = append(out, key+"="+m.entries[key])
		}
	}
	return out
}

// position is what a reference to an entry stands for: the origin, if the statement that wrote it is gone.
func (m *model) position(r reference) kv.EntryPosition {
	commit, ok := m.commits[r.statement]
	if !ok {
		return kv.EntryPosition{}
	}
	return kv.EntryPosition{Commit: commit, Index: r.index}
}

const expired = "expired"

// read is what a page of the journal must hold.
func (m *model) read(partition string, after kv.EntryPosition, limit int) []string {
	if kv.Expired(after, m.floors[partition], m.bound) {
		return []string{expired}
	}
	var out []string
	for _, e := range m.journal[partition] {
		if e.at.Compare(after) > 0 && len(out) < limit {
			out = append(out, e.record)
		}
	}
	return out
}

// run applies the operations of a transaction and returns what its reads must say, and whether it writes.
// Appends go to the journal when the position is known; see commit.
func (m *model) run(body []operation) (results [][]string, wrote bool) {
	for _, op := range body {
		switch op.kind {
		case opPut:
			m.entries[op.key], wrote = op.value, true
		case opDelete:
			delete(m.entries, op.key)
			wrote = true
		case opAppend:
			wrote = true
		default:
			results = append(results, m.answer(op))
		}
	}
	return results, wrote
}

// answer is what a reading operation must say.
func (m *model) answer(op operation) []string {
	switch op.kind {
	case opGet:
		return []string{m.get(op.key)}
	case opGetMany:
		return []string{m.get(op.key), m.get(op.end), m.get(op.key)}
	case opScan:
		return m.scan(op.key, op.end, op.limit)
	case opJournal:
		return m.read(op.key, m.position(op.after), op.limit)
	}
	panic("kvtest: an operation that reads nothing: " + op.kind)
}

// commit gives the appends of a transaction, and the statement that it is, their position.
func (m *model) commit(statement int, body []operation, at kv.Position) {
	m.bound, m.commits[statement] = at, at
	index := uint32(0)
	for _, op := range body {
		if op.kind != opAppend {
			continue
		}
		e := modelEntry{at: kv.EntryPosition{Commit: at, Index: index}, record: op.value}
		m.journal[op.key] = append(slices.Clip(m.journal[op.key]), e)
		index++
	}
}

// compact is what one step of compaction must come to; wrote says whether it is a commit.
func (m *model) compact(partition string, target kv.EntryPosition) (floor kv.EntryPosition, more, wrote bool) {
	floor = m.floors[partition]
	if target.Compare(floor) <= 0 {
		return floor, false, false
	}
	n := 0
	for _, e := range m.journal[partition] {
		if e.at.Compare(target) <= 0 {
			n++
		}
	}
	if floor = target; n > kv.MaxCompactionEntries {
		n, more = kv.MaxCompactionEntries, true
		floor = m.journal[partition][n-1].at
	}
	m.journal[partition] = m.journal[partition][n:]
	m.floors[partition] = floor
	return floor, more, true
}
