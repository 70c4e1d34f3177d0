package sim

import (
	"context"
	"slices"

	"abide/internal/deliver"
	"abide/internal/machine"
	"abide/internal/store"
	"abide/kv"
	"abide/protocol"
)

// watchedOutbox is an outbox whose calls are compared with what is stored, as long as no call was so slow that others
// have acted meanwhile.
type watchedOutbox struct {
	deliver.Outbox
	server *server
	life   int
}

// still reports whether a call that began after so many passes can be judged.
func (o watchedOutbox) still(passes int, err error) bool {
	w := o.server.world
	return err == nil && w.passes == passes && o.server.life == o.life && w.failure == nil
}

// due reports, for each of some executes, whether it is to be sent: its task is pending, at that version, and queued.
func (o watchedOutbox) due(list []deliver.Execute) []bool {
	w := o.server.world
	now := o.server.engine.Now()
	out := make([]bool, len(list))
	err := w.disk.store.View(context.Background(), func(s kv.Snapshot) error {
		for i, e := range list {
			object, err := store.Read(s, e.Workspace, layout).Object(e.ID)
			if err != nil {
				return err
			}
			out[i] = pendingAt(object, now) && object.Task.Queued && object.Task.Version == e.Version
		}
		return nil
	})
	if err != nil {
		w.fail("an execute's task cannot be read: %v", err)
	}
	return out
}

func pendingAt(o *machine.Object, now int64) bool {
	return o != nil && o.Task != nil && o.State == protocol.Pending && o.TimeoutAt > now && o.Task.State == protocol.TaskPending
}

// Executes implements deliver.Outbox.
func (o watchedOutbox) Executes(ctx context.Context, asks []deliver.Ask) ([]deliver.ExecutePage, error) {
	passes := o.server.world.passes
	pages, err := o.Outbox.Executes(ctx, asks)
	if o.still(passes, err) {
		for _, page := range pages {
			for i, due := range o.due(page.Executes) {
				if !due {
					o.server.world.fail("a scan finds %+v, which is not to be sent", page.Executes[i])
				}
			}
		}
	}
	return pages, err
}

// CheckExecutes implements deliver.Outbox.
func (o watchedOutbox) CheckExecutes(ctx context.Context, workspace string, hinted []deliver.Execute) ([]deliver.Execute, error) {
	passes := o.server.world.passes
	valid, err := o.Outbox.CheckExecutes(ctx, workspace, hinted)
	if o.still(passes, err) {
		for i, due := range o.due(hinted) {
			if due != slices.Contains(valid, hinted[i]) {
				o.server.world.fail("a check of %+v finds that it is to be sent: %t, which is not so", hinted[i], !due)
			}
		}
	}
	return valid, err
}

// ExecutesDelivered implements deliver.Outbox. Entries that have changed since are left alone.
func (o watchedOutbox) ExecutesDelivered(ctx context.Context, workspace string, delivered []deliver.Execute) error {
	passes := o.server.world.passes
	queued := make([]deliver.Execute, 0, len(delivered))
	for _, e := range delivered {
		for _, v := range []int64{e.Version + 1, e.Version + 2} {
			later := e
			later.Version = v
			if !slices.ContainsFunc(delivered, func(d deliver.Execute) bool { return d.ID == later.ID && d.Version == v }) {
				queued = append(queued, later)
			}
		}
	}
	before := o.due(queued)
	err := o.Outbox.ExecutesDelivered(ctx, workspace, delivered)
	if o.still(passes, err) {
		for i, due := range o.due(queued) {
			if due != before[i] {
				o.server.world.fail("the report of an earlier version has removed %+v", queued[i])
			}
		}
		for i, due := range o.due(delivered) {
			if due {
				o.server.world.fail("%+v is reported as delivered, and is still to be sent", delivered[i])
			}
		}
	}
	return err
}
