package journal

import "fmt"

// Subject names what an entry is about, within its workspace.
type Subject struct {
	What What
	ID   string
}

// Fold follows the entries of one partition, in their order, to the states that they lead to. Its memory grows
// with the number of subjects among them: whoever has to bound it gives the subjects to several folds, one after
// the other. Not safe for concurrent use.
type Fold struct {
	origin bool
	states map[Subject]State
}

// NewFold begins a fold. origin says that the entries begin at the origin of the partition, so that nothing had a
// state before them; otherwise the first entry of a subject is believed.
func NewFold(origin bool) *Fold { return &Fold{origin: origin, states: map[Subject]State{}} }

// Apply takes the next entry. It reports an entry that does not continue the earlier one of its subject, and goes on
// from what that entry says.
func (f *Fold) Apply(e Entry) error {
	s := Subject{e.What, e.ID}
	before, known := f.states[s]
	f.states[s] = e.To
	switch {
	case e.From == State{} && e.To == State{}:
		return nil // the deletion of what did not decode
	case !known && !f.origin, before == e.From:
		return nil
	case !known:
		return fmt.Errorf("the first entry says that it was %s, and the journal is complete", e.From)
	}
	return fmt.Errorf("an entry says that it was %s, the one before that it had become %s", e.From, before)
}

// State is where the entries have led a subject. known is false if no entry is about it.
func (f *Fold) State(s Subject) (state State, known bool) {
	state, known = f.states[s]
	return state, known
}

// Forget drops what is known of a subject.
func (f *Fold) Forget(s Subject) { delete(f.states, s) }

// Subjects calls visit for every subject that an entry is about, in no order, until it returns false.
func (f *Fold) Subjects(visit func(Subject, State) bool) {
	for s, state := range f.states {
		if !visit(s, state) {
			return
		}
	}
}

// String is for people.
func (s State) String() string {
	switch {
	case s == State{}:
		return "absent"
	case s.Schedule != "" && s.HasRun:
		return fmt.Sprintf("a schedule %s for %d, last run at %d", s.Schedule, s.NextRunAt, s.LastRunAt)
	case s.Schedule != "":
		return fmt.Sprintf("a schedule %s for %d", s.Schedule, s.NextRunAt)
	case s.Task == "":
		return string(s.Promise)
	}
	return fmt.Sprintf("%s, its task %s at version %d", s.Promise, s.Task, s.Version)
}
