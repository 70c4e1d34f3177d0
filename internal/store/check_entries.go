package store

import (
	"bytes"
	"errors"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
)

// checkEntry reports a derived entry that no record calls for.
func (p *page) checkEntry(row keyspace.Row, entry kv.Entry) error {
	derived, damaged, err := p.derivedFor(row)
	if err != nil || damaged {
		return err
	}
	for _, e := range derived {
		if !bytes.Equal(e.Key, entry.Key) {
			continue
		}
		if !bytes.Equal(e.Value, entry.Value) {
			return p.bad(row, "it has another value than its record calls for")
		}
		return nil
	}
	return p.bad(row, "no record calls for it")
}

// derivedFor lists the entries of the record that an entry belongs to. damaged: that record does not decode,
// which is reported where the check meets it.
func (p *page) derivedFor(row keyspace.Row) (derived []kv.Entry, damaged bool, err error) {
	t := p.txn(row.Workspace)
	switch {
	case row.Kind == "unblock entry":
		_, queued, err := t.UnblockDueAt(row.ID, row.Address)
		if queued || errors.Is(err, kv.ErrCorrupt) {
			return []kv.Entry{t.keys.DeriveUnblock(row.ID, row.Address)}, false, nil
		}
		return nil, false, err
	case row.Kind == "timer" && row.Timer == keyspace.TimerDrain:
		if draining, err := p.draining(row.Workspace, row.ID); !draining {
			return nil, false, err
		}
		return []kv.Entry{t.keys.DeriveDrain(row.ID)}, false, nil
	case row.Kind == "timer" && row.Timer == keyspace.TimerSchedule:
		s, err := t.Schedule(row.ID)
		if errors.Is(err, kv.ErrCorrupt) {
			return nil, true, nil
		}
		if err != nil || s == nil {
			return nil, false, err
		}
		return t.keys.DeriveSchedule(nil, s), false, nil
	}
	o, damaged, err := p.stored(row.Workspace, row.ID)
	if err != nil || o == nil {
		return nil, damaged, err
	}
	return t.keys.Derive(nil, o), false, nil
}

// wakeable reports the collected suspended tasks that nothing will ever wake. Callbacks are stored with what
// they wait on, so this is a pass over all of them.
func (c *checker) wakeable() error {
	if len(c.suspended) == 0 {
		return nil
	}
	asleep := make(map[object]bool, len(c.suspended))
	for _, o := range c.suspended {
		asleep[o] = true
	}
	c.suspended = c.suspended[:0]
	err := c.pages(trees, func(p *page, entry kv.Entry) error {
		row, err := keyspace.ParseRow(entry.Key, entry.Value)
		at := object{row.Workspace, row.Waiter.To}
		if err != nil || row.Waiter.Kind != machine.WaiterCallback || !asleep[at] {
			return nil
		}
		wakes, err := p.wakes(at, row.Waiter.Awaited)
		if wakes {
			delete(asleep, at)
		}
		return err
	})
	if err != nil {
		return err
	}
	for o := range asleep {
		if err := c.reportAsleep(o); err != nil {
			return err
		}
	}
	return nil
}

// wakes reports whether a callback on awaited will wake a suspended task.
func (p *page) wakes(at object, awaited string) (bool, error) {
	o, _, err := p.stored(at.workspace, at.id)
	if err != nil || o == nil {
		return false, err
	}
	a, _, err := p.stored(at.workspace, awaited)
	if err != nil || a == nil {
		return false, err
	}
	draining, err := p.draining(at.workspace, awaited)
	if err != nil {
		return false, err
	}
	return machine.CheckSuspended(o, p.now, []*machine.Object{a}, func(string) bool { return draining }) == nil, nil
}

func (c *checker) reportAsleep(at object) error {
	var o *machine.Object
	err := c.store.View(c.ctx, func(s kv.Snapshot) (err error) {
		o, err = Read(s, at.workspace, c.layout).Object(at.id)
		return err
	})
	if err != nil || o == nil {
		return err
	}
	row := keyspace.Row{Kind: "object", Workspace: at.workspace, ID: at.id}
	return c.damage(row, machine.CheckSuspended(o, c.now, nil, nil))
}
