package store

import (
	"bytes"

	"abide/internal/keyspace"
	"abide/kv"
)

// journals checks every journal partition as a sequence: entries decode, follow one another, stand above the floor and
// at or before the last commit, and belong to a workspace. What they say is for Replay.
func (c *checker) journals() error {
	var last kv.EntryPosition
	var of []byte
	err := c.pages(kv.AllEntries(), func(p *page, row kv.Entry) error {
		partition, at, err := kv.ParseJournalKey(row.Key)
		entry := keyspace.Row{Kind: kv.KindEntry}
		c.tally[entry.Kind]++
		if err != nil {
			return c.damage(entry, err)
		}
		if entry.Workspace, err = c.partition(p, entry.Kind, partition); err != nil {
			return err
		}
		if !bytes.Equal(partition, of) {
			of, last = bytes.Clone(partition), kv.EntryPosition{}
		}
		if at.Compare(last) <= 0 {
			return c.bad(entry, "it stands at %v, the entry before it at %v", at, last)
		}
		last = at
		return p.checkJournalEntry(entry, partition, at, row.Value)
	})
	if err != nil {
		return err
	}
	return c.pages(kv.AllFloors(), func(p *page, row kv.Entry) error {
		floor := keyspace.Row{Kind: kv.KindFloor}
		c.tally[floor.Kind]++
		partition, err := kv.ParseFloorKey(row.Key)
		if err != nil {
			return c.damage(floor, err)
		}
		if floor.Workspace, err = c.partition(p, floor.Kind, partition); err != nil {
			return err
		}
		at, err := kv.ParseFloor(row.Value)
		if err != nil {
			return c.damage(floor, err)
		}
		if at.Commit.Compare(p.bound) > 0 {
			return c.bad(floor, "it stands at %v, after the last commit, %v", at, p.bound)
		}
		return nil
	})
}

// partition is the workspace of a journal partition. One that is not of any is reported.
func (c *checker) partition(p *page, kind string, partition []byte) (workspace string, err error) {
	workspace, err = keyspace.ParsePartition(partition)
	if err != nil {
		return "", c.damage(keyspace.Row{Kind: kind}, err)
	}
	return workspace, p.checkWorkspace(keyspace.Row{Kind: kind, Workspace: workspace})
}

func (p *page) checkJournalEntry(row keyspace.Row, partition []byte, at kv.EntryPosition, record []byte) error {
	if at.Commit.Compare(p.bound) > 0 {
		_ = p.bad(row, "it stands at %v, after the last commit, %v", at, p.bound)
	}
	floor, known := p.floors[string(partition)]
	if !known {
		var err error
		if floor, err = kv.Floor(p.r, partition); err != nil {
			return p.damage(keyspace.Row{Kind: kv.KindFloor, Workspace: row.Workspace}, err)
		}
		p.floors[string(partition)] = floor
	}
	if at.Compare(floor) <= 0 {
		_ = p.bad(row, "it stands at %v, which is not above the floor of its partition, %v", at, floor)
	}
	e, err := keyspace.Entry(record)
	if err != nil {
		return p.damage(row, err)
	}
	if e.At < 0 {
		row.ID = e.ID
		return p.bad(row, "its instant is %d", e.At)
	}
	return nil
}
