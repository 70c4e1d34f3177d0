package workload

import (
	"errors"
	"fmt"
	"slices"

	"abide/protocol"
)

// maxReplays bounds the work of Shrink.
const maxReplays = 2000

// Shrink looks for a shorter history that still shows a difference, whichever: it leaves out ever smaller
// parts, then simplifies what is left. Replay runs a history on a fresh server or in fresh workspaces and returns
// as Run.Do does.
func Shrink(found *Difference, replay func(history []Op) error) *Difference {
	s := shrinker{best: found, replay: replay, left: maxReplays}
	for size := len(found.History) / 2; size >= 1; {
		if !s.leaveOut(size) || size > len(s.best.History)/2 {
			size /= 2
		}
	}
	for i := range s.best.History {
		s.simplify(i)
	}
	return s.best
}

// Replayer makes the replay of Shrink for a server with workspaces: each time others.
func Replayer(server Server, prefix string, retryMs int64) func(history []Op) error {
	n := 0
	return func(history []Op) error {
		n++
		run := NewRun(server, fmt.Sprintf("%s-%d-", prefix, n), retryMs)
		for _, op := range history {
			if err := run.Do(op); err != nil {
				return err
			}
		}
		return nil
	}
}

type shrinker struct {
	best   *Difference
	replay func(history []Op) error
	left   int
}

// try replays a history and keeps it if it shows a difference.
func (s *shrinker) try(history []Op) bool {
	if s.left == 0 {
		return false
	}
	s.left--
	var d *Difference
	if !errors.As(s.replay(history), &d) {
		return false
	}
	s.best = d
	return true
}

// leaveOut tries the history without each of its parts of a size, the last request excepted.
func (s *shrinker) leaveOut(size int) bool {
	any := false
	for start := max(0, len(s.best.History)-1-size); ; start -= size {
		start = max(0, start)
		end := min(start+size, len(s.best.History)-1)
		if start < end && s.try(slices.Delete(slices.Clone(s.best.History), start, end)) {
			any = true
		}
		if start == 0 {
			return any
		}
	}
}

// simplify tries a plainer request in the place of one.
func (s *shrinker) simplify(i int) {
	plainer := func(change func(r *protocol.PromiseCreate)) {
		if i >= len(s.best.History) {
			return
		}
		create, is := s.best.History[i].Request.(*protocol.PromiseCreate)
		if !is {
			return
		}
		c := *create
		c.Tags = slices.Clone(c.Tags)
		change(&c)
		history := slices.Clone(s.best.History)
		history[i].Request = &c
		s.try(history)
	}
	plainer(func(r *protocol.PromiseCreate) { r.Param = nil })
	if create, is := s.best.History[i].Request.(*protocol.PromiseCreate); is {
		for _, tag := range create.Tags {
			plainer(func(r *protocol.PromiseCreate) {
				r.Tags = slices.DeleteFunc(r.Tags, func(t protocol.Tag) bool { return t.Name == tag.Name })
			})
		}
	}
}
