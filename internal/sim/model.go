package sim

import (
	"context"
	"strings"
	"time"

	"abide/internal/engine"
	"abide/internal/journal"
	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/internal/store"
	"abide/internal/workload"
	"abide/kv"
	"abide/protocol"
)

// follower reads the journal as it grows: it folds it, and tells the reference model of the steps that the server has
// done by itself. It sees every commit, and so knows the order in which things have happened.
type follower struct {
	commits int // the number of commits when it last looked
	cursor  kv.EntryPosition
	fold    *journal.Fold
	model   *workload.Model // nil for none
	latest  int64           // the instant of the last operation that changed something
}

func newFollower(withModel bool) *follower {
	f := &follower{fold: journal.NewFold(true)}
	if withModel {
		f.model = workload.NewModel(retryTimeout.Milliseconds())
	}
	return f
}

// follow takes in what has been appended to the journal since the last call.
func (w *world) follow() {
	f := w.follower
	if f.commits == w.stats.Commits {
		return
	}
	f.commits = w.stats.Commits
	partition := keyspace.For(protocol.DefaultWorkspace, layout).Partition()
	var entries []kv.JournalEntry
	err := w.disk.store.View(context.Background(), func(s kv.Snapshot) (err error) {
		entries, err = s.Journal(partition, f.cursor, kv.MaxScanRows)
		return err
	})
	if err != nil {
		w.fail("the journal cannot be read: %v", err)
		return
	}
	for _, j := range entries {
		f.cursor = j.Position
		e, err := keyspace.Entry(j.Record)
		if err != nil {
			w.fail("an entry of the journal does not decode: %v", err)
			return
		}
		if err := f.fold.Apply(e); err != nil {
			w.fail("the journal of %s %q does not fold: %v", e.What, e.ID, err)
		}
		if v := e.To.Version - e.From.Version; v != 0 && (v != 1 || e.To.Task != protocol.TaskAcquired) {
			w.fail("a version changes other than by a claim: %q from %s to %s, by %s", e.ID, e.From, e.To, e.Cause)
		}
		if e.At < f.latest-w.apart {
			w.fail("the server's time goes back: %s of %q at %d, after %d", e.Cause, e.ID, e.At, f.latest)
		}
		f.latest = max(f.latest, e.At)
		w.timely(e)
		if e.Cause == journal.CauseLease && e.From.Task == protocol.TaskAcquired {
			w.ledger.leaseEnds(e.ID, e.From.Version, e.At)
		}
		f.step(e)
	}
}

// lateMsMax is how late a timer may fire, in the server's time, when all is well with server, store and clock: the loop
// looks once in a poll interval even if nothing wakes it.
const lateMsMax = int64(pollInterval/time.Millisecond) + 200

// timely checks that a deadline, or a schedule's run, has not waited for longer than it may.
func (w *world) timely(e journal.Entry) {
	dueAt := e.From.NextRunAt
	switch {
	case w.now < w.troubleUntil:
		return
	case e.Cause == journal.CauseSchedule && e.What == journal.Schedule:
	case e.Cause == journal.CauseTimeout && e.From.Promise == protocol.Pending && e.To.Promise != protocol.Pending:
		f := w.ledger.fact(e.ID)
		if !f.known || !machine.IsExternal(f.born.Tags) { // nobody may have armed it
			return
		}
		dueAt = f.born.TimeoutAt
	default:
		return
	}
	if late := e.At - dueAt; late > lateMsMax+w.lateMs() {
		w.fail("%s of %q comes %d ms late, although nothing is wrong but hints that get lost", e.Cause, e.ID, late)
	}
}

// trouble notes that something is, or was, wrong with a server, its store or its clock for so long.
func (w *world) trouble(d time.Duration) { w.troubleUntil = max(w.troubleUntil, w.now+d+troubleAfter) }

// troubleAfter is how long it takes a server to be on time again.
const troubleAfter = 3 * time.Second

// step tells the model of one step.
func (f *follower) step(e journal.Entry) {
	if f.model == nil {
		return
	}
	switch {
	case e.Cause == journal.CauseTimeout && e.From.Promise == protocol.Pending && e.To.Promise != protocol.Pending:
		f.model.Expire(protocol.DefaultWorkspace, e.At, e.ID)
	case e.Cause == journal.CauseLease:
		f.model.EndLease(protocol.DefaultWorkspace, e.At, e.ID)
	case e.Cause == journal.CauseSchedule && e.What == journal.Schedule:
		f.model.Occur(protocol.DefaultWorkspace, e.At, e.ID, e.To.LastRunAt)
	}
}

// asked is a request while the server is at it.
type asked struct {
	server *server
	engine *engine.Engine
	handle *handle
	req    protocol.Request
	began  int64 // the server's time when it began
	passes int   // how often time has passed in slow calls until it began
}

func (w *world) asks(s *server, req protocol.Request) asked {
	w.compareClocks()
	w.follow()
	return asked{s, s.engine, s.handle, req, s.engine.Now(), w.passes}
}

// answered judges an answer by what has become of its transaction, and compares it with the model's. died: the server
// died over it, and there is no answer.
func (w *world) answered(a asked, reply protocol.Reply, died bool) {
	m := w.follower.model
	reads, beat := !machine.Writes(a.req.Kind()), a.req.Kind() == protocol.KindTaskHeartbeat
	if died || reply.Status >= protocol.StatusInternal {
		w.follow()
		// The very first commit makes the workspace: it may have been that one.
		hidden := !reads && a.handle.hidden && w.follower.cursor != kv.EntryPosition{}
		if hidden && !died && !beat && reply.Status == protocol.StatusUnavailable {
			w.fail("the answer says that nothing was changed, and it was committed: %s", show(a.req))
		}
		if hidden && m != nil {
			m.Apply(protocol.DefaultWorkspace, a.engine.Now(), a.req)
		}
		return
	}
	if now := a.engine.Now(); now < a.server.served {
		w.fail("the server's time goes back: %s is answered at %d, after an answer at %d", show(a.req), now, a.server.served)
	} else if a.passes == w.passes {
		a.server.served = now
	}
	if m == nil || w.failure != nil {
		return
	}
	// A read is at the instant at which it began; if others have acted since then, the model is past that.
	if slow := a.passes != w.passes; slow && (reads || beat) {
		return
	}
	op := workload.Op{Workspace: protocol.DefaultWorkspace, At: a.engine.Now(), Request: a.req}
	want := m.Apply(op.Workspace, op.At, a.req)
	if paged(a.req, reply) {
		return // the model knows no pages
	}
	body := protocol.AppendResponse(nil, string(a.req.Kind()), "c", reply)
	if diff := workload.Compare(op, want, reply.Status, body); diff != "" {
		w.fail("the model answers otherwise: %s: %s", show(a.req), strings.TrimSpace(diff))
	}
}

// paged reports whether an answer is one page of several.
func paged(req protocol.Request, reply protocol.Reply) bool {
	switch r := req.(type) {
	case *protocol.PromiseSearch:
		body, ok := reply.Body.(protocol.PromisesBody)
		return r.Cursor != "" || (ok && body.Cursor != "")
	case *protocol.TaskSearch:
		body, ok := reply.Body.(protocol.TasksBody)
		return r.Cursor != "" || (ok && body.Cursor != "")
	}
	return false
}

// compareFold checks that the journal has led to the states that are stored.
func (w *world) compareFold() {
	w.follow()
	err := w.disk.store.View(context.Background(), func(s kv.Snapshot) error {
		txn := store.Read(s, protocol.DefaultWorkspace, layout)
		for _, f := range w.ledger.order {
			o, err := txn.Object(f.id)
			if err != nil {
				return err
			}
			folded, _ := w.follower.fold.State(journal.Subject{What: journal.Object, ID: f.id})
			if stored := journal.OfObject(o); stored != folded {
				w.fail("the journal leads %q to %s, and it is %s", f.id, folded, stored)
			}
		}
		return nil
	})
	if err != nil {
		w.fail("a record cannot be read: %v", err)
	}
}
