package sim

import (
	"context"
	"errors"

	"abide/internal/deliver"
	"abide/internal/loops"
	"abide/internal/push"
	"abide/protocol"
)

// pushWatch judges what the push of one life of a server does, by docs/push.md alone. It knows what the queues have shown,
// what was claimed, and what the targets have answered.
type pushWatch struct {
	world    *world
	open     int                    // requests without an answer
	checked  map[pushKey]bool       // found to be queued, and neither sent nor claimed since
	flying   map[pushKey]*pushState // with their targets
	rests    map[pushKey]pushState  // not accepted the last time
	accepted map[pushKey]bool       // and not reported
	lanes    map[string]*laneWatch
}

// pushKey names a message; the version of an unblock is 0, the address of an execute empty.
type pushKey struct {
	kind    push.Kind
	id      string
	version int64
	address string
}

func executeKey(id string, version int64) pushKey { return pushKey{push.KindExecute, id, version, ""} }

func unblockKey(id, address string) pushKey { return pushKey{push.KindUnblock, id, 0, address} }

func keyOfSend(s *push.Send) pushKey {
	if s.Kind == push.KindExecute {
		return executeKey(s.ID, s.Version)
	}
	return unblockKey(s.ID, s.Address)
}

// pushState is how it stands with one message.
type pushState struct {
	attempt int
	claimed bool  // while it was with its target
	untilMs int64 // of a message that was not accepted: nobody sends it before
}

// laneWatch is how it stands with one host.
type laneWatch struct {
	open     int
	failures int // in a row
	worked   bool
	troubles int // of them, those after which it pauses
	fromMs   int64
	untilMs  int64 // nothing is sent to it before
	askedMs  int64 // the same, as it has asked for itself
}

func newPushWatch(w *world) *pushWatch {
	return &pushWatch{
		world: w, checked: map[pushKey]bool{}, flying: map[pushKey]*pushState{}, rests: map[pushKey]pushState{},
		accepted: map[pushKey]bool{}, lanes: map[string]*laneWatch{},
	}
}

func (x *pushWatch) lane(address string) *laneWatch {
	name := hostOf(address)
	l := x.lanes[name]
	if l == nil {
		l = &laneWatch{}
		x.lanes[name] = l
	}
	return l
}

const (
	// checkGrace is how long a message may have been on its way through the last check when its host begins to pause, if
	// nothing is wrong with the store.
	checkGrace = 20
	// rowOfFailures is after how many failures in a row a host pauses, whose window is as small as it is here, and
	// firstFailures if it has accepted nothing yet.
	rowOfFailures = 3
	firstFailures = 4
)

// begins judges that a message is sent.
func (x *pushWatch) begins(p *pusher, s *push.Send) {
	w, now, key := x.world, p.server.nowMs(), keyOfSend(s)
	l := x.lane(s.Address)
	l.open++
	x.open++
	switch {
	case p.stopped:
		w.fail("the %s of %q is pushed by a server that takes its leave", s.Kind, s.ID)
	case x.flying[key] != nil:
		w.fail("the %s of %q, version %d, is pushed while it is with its target", s.Kind, s.ID, s.Version)
	case !x.checked[key]:
		w.fail("the %s of %q, version %d, is pushed without a look at whether it is still queued", s.Kind, s.ID, s.Version)
	case l.open > w.pushing.concurrency:
		w.fail("%d requests at once to %s, which takes %d", l.open, s.Address, w.pushing.concurrency)
	case w.pushing.outstanding > 0 && x.open > w.pushing.outstanding:
		w.fail("%d requests at once, of at most %d", x.open, w.pushing.outstanding)
	case now < l.untilMs && now > l.fromMs+checkGrace && w.now >= w.troubleUntil:
		w.fail("the %s of %q is pushed to %s %d ms before its pause ends", s.Kind, s.ID, s.Address, l.untilMs-now)
	}
	// A message for which there is no room in memory any more is forgotten, and what has failed with it.
	if rest, ok := x.rests[key]; ok && w.pushing.flights == 0 && !w.halted(s.ID) {
		switch {
		case now < rest.untilMs:
			w.fail("the %s of %q is pushed again %d ms too early, after %d attempts", s.Kind, s.ID, rest.untilMs-now, rest.attempt)
		case s.Attempt != rest.attempt+1 && !w.shared():
			w.fail("attempt %d at the %s of %q follows attempt %d", s.Attempt, s.Kind, s.ID, rest.attempt)
		}
	}
	delete(x.checked, key)
	delete(x.rests, key)
	x.flying[key] = &pushState{attempt: s.Attempt}
}

// halted reports whether somebody may have halted a task and continued it: then it is queued anew at its version.
func (w *world) halted(id string) bool {
	for _, root := range w.program.Roots {
		if root.ID == id {
			return root.HaltAt > 0
		}
	}
	return false
}

// ends takes in what came of a send.
func (x *pushWatch) ends(now int64, r *request, err error) {
	s := r.send
	key, l := keyOfSend(s), x.lane(s.Address)
	state := x.flying[key]
	delete(x.flying, key)
	l.open--
	x.open--
	switch {
	case state == nil:
	case err == nil:
		x.accepted[key] = true
		l.works()
	case errors.Is(err, push.ErrRefused): // nothing is wrong with the host
		x.rests[key] = pushState{attempt: state.attempt, untilMs: now + pushRetryMax.Milliseconds()}
	case !state.claimed:
		pauseMs := atLeast(state.attempt)
		var later *push.LaterError
		if errors.As(err, &later) {
			pauseMs = max(pauseMs, later.AfterMs)
			l.askedMs = max(l.askedMs, now+later.AfterMs)
			l.pause(now, l.askedMs)
		}
		x.rests[key] = pushState{attempt: state.attempt, untilMs: now + pauseMs}
		row := rowOfFailures
		if !l.worked && l.troubles == 0 {
			row = firstFailures
		}
		if l.failures++; l.failures >= row {
			l.troubles++
			l.pause(now, now+atLeast(l.troubles))
		}
	}
}

// atLeast is the shortest pause after so many failures, ms: up to half is taken off by chance.
func atLeast(failures int) int64 {
	return loops.Doubled(failures, pushRetryFirst.Milliseconds(), pushRetryMax.Milliseconds()) / 2
}

// pause takes in that a host is left alone until an instant.
func (l *laneWatch) pause(now, untilMs int64) {
	if untilMs > l.untilMs {
		l.fromMs, l.untilMs = now, untilMs
	}
}

// works takes in that a host has accepted a message, or that the task of one was claimed. What it has asked for stays.
func (l *laneWatch) works() { l.worked, l.failures, l.troubles, l.untilMs = true, 0, 0, l.askedMs }

// claimed takes in that the server has heard that a task is pending no longer at a version, or one before.
func (x *pushWatch) claimed(id string, version int64) {
	f := x.world.ledger.fact(id)
	address, _ := f.born.Tags.Get(protocol.TagTarget)
	for v := version; v >= 0; v-- {
		key := executeKey(id, v)
		delete(x.checked, key)
		if state := x.flying[key]; state != nil && !state.claimed {
			state.claimed = true
			x.lane(address).works()
		}
	}
}

// pushOutbox is the queues by address, watched: what a check has found, and what is reported.
type pushOutbox struct {
	push.Outbox
	watched watchedOutbox
	watch   *pushWatch
}

// CheckExecutes implements push.Outbox.
func (o pushOutbox) CheckExecutes(ctx context.Context, workspace string, asked []deliver.Execute) ([]deliver.Execute, error) {
	found, err := o.watched.CheckExecutes(ctx, workspace, asked)
	if err == nil {
		for _, e := range found {
			o.watch.checked[executeKey(e.ID, e.Version)] = true
		}
	}
	return found, err
}

// CheckUnblocks implements push.Outbox.
func (o pushOutbox) CheckUnblocks(ctx context.Context, workspace string, asked []deliver.UnblockRef) ([]deliver.Unblock, error) {
	found, err := o.Outbox.CheckUnblocks(ctx, workspace, asked)
	if err == nil {
		for _, u := range found {
			o.watch.checked[unblockKey(u.ID, u.Address)] = true
		}
	}
	return found, err
}

// ExecutesDelivered implements push.Outbox.
func (o pushOutbox) ExecutesDelivered(ctx context.Context, workspace string, delivered []deliver.Execute) error {
	return report(o.watch, delivered, func(e deliver.Execute) pushKey { return executeKey(e.ID, e.Version) },
		func() error { return o.watched.ExecutesDelivered(ctx, workspace, delivered) })
}

// UnblocksDelivered implements push.Outbox.
func (o pushOutbox) UnblocksDelivered(ctx context.Context, workspace string, delivered []deliver.UnblockRef) error {
	return report(o.watch, delivered, func(u deliver.UnblockRef) pushKey { return unblockKey(u.ID, u.Address) },
		func() error { return o.Outbox.UnblocksDelivered(ctx, workspace, delivered) })
}

// report judges messages that leave the outbox by send, and forgets that they were accepted once they have left it.
func report[M any](x *pushWatch, delivered []M, key func(M) pushKey, send func() error) error {
	for _, m := range delivered {
		x.reported(key(m))
	}
	err := send()
	if err == nil {
		for _, m := range delivered {
			delete(x.accepted, key(m))
		}
	}
	return err
}

// reported judges that a message leaves the outbox.
func (x *pushWatch) reported(key pushKey) {
	if !x.accepted[key] {
		x.world.fail("the %s of %q, version %d, is reported as delivered, and no target has accepted it", key.kind, key.id, key.version)
	}
}
