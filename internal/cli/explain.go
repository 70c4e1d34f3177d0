package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"abide/protocol"
)

// Reason is a word for why a task is not running, for programs.
type Reason string

// The reasons.
const (
	ReasonDone      Reason = "done"      // its promise is settled
	ReasonHalted    Reason = "halted"    // until somebody continues it
	ReasonLeased    Reason = "leased"    // it is running: a worker holds it
	ReasonAwaiting  Reason = "awaiting"  // suspended until promises settle
	ReasonNoWorker  Reason = "no_worker" // its execute is queued, and nobody is there to take it
	ReasonQueued    Reason = "queued"    // its execute is queued
	ReasonDelayed   Reason = "delayed"   // by its tag resonate:delay
	ReasonHasty     Reason = "hasty"     // its worker gives it back at once, again and again
	ReasonUnclaimed Reason = "unclaimed" // its execute was delivered, and nobody has claimed it
	ReasonDue       Reason = "due"       // it is dispatched in a moment
	ReasonPending   Reason = "pending"   // it waits for a worker; the server tells no more
)

// Facts are what an explanation is made of.
type Facts struct {
	protocol.ExplainBody
	// DelayAt is the instant of the promise's tag resonate:delay, 0 for none.
	DelayAt int64
	// Partly says that the server does not know task.explain: only the records speak.
	Partly bool
}

// hastyReleases is how many hasty releases in a row a server lets pass. (docs/machine.md, Hasty releases)
const hastyReleases = 3

// Why gives the reason as a word and as a sentence.
func (s Screen) Why(f Facts) (Reason, string) {
	id := shellQuote(f.Task.ID)
	switch f.Task.State {
	case protocol.TaskFulfilled:
		if f.Promise == protocol.RejectedTimedout {
			return ReasonDone, "Its promise timed out before it was fulfilled: " + s.Instant(f.TimeoutAt) + "."
		}
		return ReasonDone, "It is done: its promise is " + string(f.Promise) + "."
	case protocol.TaskHalted:
		return ReasonHalted, "It is halted. Nothing happens until somebody runs: abide tasks continue " + id
	case protocol.TaskAcquired:
		return ReasonLeased, s.whyLeased(f)
	case protocol.TaskSuspended:
		return ReasonAwaiting, whyAwaiting(f, id)
	}
	if f.Partly {
		return ReasonPending, "It waits for a worker of " + Printable(f.Target) + " to claim it. This server cannot say more: it does not know task.explain."
	}
	if f.Queued {
		return s.whyQueued(f)
	}
	return s.whyLater(f)
}

func (s Screen) whyLeased(f Facts) string {
	holder := "It is running: held by the worker " + Printable(f.Task.PID)
	switch {
	case f.Partly:
		return holder + ", for " + Span(f.Task.TTL) + " after its last heartbeat."
	case f.LeaseAt <= f.Now:
		return holder + ", whose lease has ended; it is dispatched to another in a moment."
	case f.LeaseAt >= f.TimeoutAt:
		return holder + " until its promise times out: " + s.Instant(f.TimeoutAt) + "."
	}
	return holder + " until " + s.Instant(f.LeaseAt) + ", and longer if it sends a heartbeat. If the worker is gone, the task is dispatched again then."
}

func whyAwaiting(f Facts, id string) string {
	switch {
	case f.Partly:
		return "It is suspended until something that it awaits settles. This server cannot say what: look at abide tree " + id
	case len(f.Awaiting) == 0:
		return "It is suspended until something that it awaits settles, none of which is in its own call tree."
	}
	return "It is suspended until one of these settles:"
}

func (s Screen) whyQueued(f Facts) (Reason, string) {
	switch {
	case f.Push != "":
		return ReasonQueued, s.whyPushed(f)
	case !f.HasWorkers:
		return ReasonQueued, "Its execute is queued for " + Printable(f.Target) + " and is sent as soon as that takes it."
	case f.Workers == 0:
		return ReasonNoWorker, "No worker is connected that it could go to: " + workersOf(f.Target) + ". It is delivered the moment one connects."
	}
	return ReasonQueued, fmt.Sprintf("Its execute is queued, and %s of %s connected: it is delivered as soon as one has room. A worker that claims nothing of what it was handed gets nothing more.",
		count(f.Workers, "worker"), Printable(f.Target)+map[bool]string{true: " is", false: " are"}[f.Workers == 1])
}

// whyPushed tells how it goes with an execute that is queued for an address that is no poll address.
func (s Screen) whyPushed(f Facts) string {
	to := Printable(f.PushTo)
	if to == "" {
		to = Printable(f.Target)
	}
	switch f.Push {
	case protocol.PushSending:
		return fmt.Sprintf("It is being sent to %s (attempt %d)%s: the request is open, and the task is not claimed yet.", to, f.PushAttempts, since(s, f))
	case protocol.PushPaused:
		return "The push to " + to + " waits" + s.whyUnsent(f) + s.nextTry(f)
	case protocol.PushRefused:
		return "The push to " + to + " is not allowed here" + s.whyUnsent(f) + s.nextTry(f) + " It waits until the settings of the server allow it, or its promise ends."
	case protocol.PushFull:
		return fmt.Sprintf("The push to %s waits for its turn: as many as may be now are on their way there, %s.", to, count(int(f.PushOpen), "message"))
	case protocol.PushBusy:
		return fmt.Sprintf("The push to %s waits for its turn: the server has as many on their way to all targets as it may, %s (transports.http_push.max_outstanding).", to, count(int(f.PushOpen), "message"))
	case protocol.PushUnserved:
		why := ""
		if f.PushError != "" {
			why = ": " + Printable(f.PushError)
		}
		return "This server sends nothing to " + Printable(f.Target) + why + ". The execute stays queued."
	case protocol.PushElsewhere:
		return "The push to " + to + " waits at another server of this store, which sends to that target; ask that one."
	}
	return "The push to " + to + " waits for its turn."
}

// since is for how long a push is being sent.
func since(s Screen, f Facts) string {
	if f.PushTriedAt == 0 {
		return ""
	}
	return " since " + s.Instant(f.PushTriedAt)
}

// whyUnsent tells of the last failure: the message's own, or that of others that went to the same place.
func (s Screen) whyUnsent(f Facts) string {
	if f.PushError == "" {
		return ", since the target has asked for a pause."
	}
	text := ": " + Printable(f.PushError)
	if f.PushTriedAt != 0 {
		text += ", at " + s.Instant(f.PushTriedAt)
	}
	switch f.PushAttempts {
	case 0:
		return text + ", to another message; this one was not sent yet."
	case 1:
		return text + ", after 1 attempt."
	}
	return text + fmt.Sprintf(", after %d attempts.", f.PushAttempts)
}

// nextTry tells when a push is tried again.
func (s Screen) nextTry(f Facts) string {
	if f.PushAt > f.Now {
		return " The next try is at " + s.Instant(f.PushAt) + "."
	}
	return " The next try comes in a moment."
}

// workersOf names the workers that an address of the scheme poll means.
func workersOf(target string) string {
	a, err := protocol.ParseAddress(target)
	if err != nil {
		return Printable(target)
	}
	if a.Cast == protocol.CastUni {
		return "worker " + Printable(a.ID) + " of group " + Printable(a.Group)
	}
	return "group " + Printable(a.Group)
}

func (s Screen) whyLater(f Facts) (Reason, string) {
	at := s.Instant(f.RetryAt)
	switch {
	case f.RetryAt <= f.Now:
		return ReasonDue, "It is due and is dispatched in a moment."
	case f.DelayAt == f.RetryAt:
		return ReasonDelayed, "It is delayed by its tag " + protocol.TagDelay + " until " + at + "."
	case f.Hasty > hastyReleases:
		return ReasonHasty, fmt.Sprintf("Its workers gave it back within a second of their claim %d times in a row; it is dispatched again at %s. Look at their logs.", f.Hasty, at)
	}
	text := "Its execute was delivered, but no worker has claimed it yet; it is sent again at " + at + "."
	if f.HasWorkers && f.Workers == 0 {
		text += " No worker is connected now: " + workersOf(f.Target) + "."
	}
	return ReasonUnclaimed, text
}

// Explain is why a task is not running, for a person: the reason, what it awaits, and the facts.
func (s Screen) Explain(f Facts) string {
	_, why := s.Why(f)
	var b strings.Builder
	b.WriteString(s.paint(bold, why) + "\n")
	if f.Task.State == protocol.TaskSuspended {
		for _, id := range f.Awaiting {
			b.WriteString("  " + Printable(id) + "\n")
		}
		if f.Partial {
			b.WriteString("  … and perhaps others\n")
		}
	}
	b.WriteByte('\n')
	d := fields{screen: s}
	d.add("task", Printable(f.Task.ID))
	d.add("state", s.paint(stateColour(string(f.Task.State)), string(f.Task.State)))
	d.add("version", fmt.Sprint(f.Task.Version))
	d.add("target", Printable(f.Target))
	if f.HasWorkers && f.Task.State == protocol.TaskPending {
		d.add("workers", fmt.Sprintf("%d connected to this server", f.Workers))
	}
	if f.ClaimedAt != 0 {
		d.add("last claim", s.Instant(f.ClaimedAt))
	}
	if f.Promise == protocol.Pending {
		d.add("timeout", s.Instant(f.TimeoutAt))
	}
	b.WriteString(d.String())
	return b.String()
}

// ExplainJSON is the same for a program: {"reason", "text", "facts"}, the last as the answer of task.explain.
func (s Screen) ExplainJSON(f Facts) []byte {
	reason, why := s.Why(f)
	text, _ := json.Marshal(struct { // strings, and JSON made here
		Reason Reason          `json:"reason"`
		Text   string          `json:"text"`
		Facts  json.RawMessage `json:"facts"`
	}{reason, why, f.ExplainBody.AppendJSON(nil)})
	return text
}
