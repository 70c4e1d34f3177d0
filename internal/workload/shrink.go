package workload

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"abide/protocol"
)

// maxReplayed bounds the work of Shrink, in requests; a server does about a thousand of them in a second.
const maxReplayed = 100_000

// Shrink looks for a shorter history that still shows a difference, whichever: it leaves out ever smaller
// parts, makes plainer what is left, and gives short names to the promises. Replay runs a history on a fresh server or in fresh workspaces and returns
// as Run.Do does.
func Shrink(found *Difference, replay func(history []Op) error) *Difference {
	s := shrinker{best: found, replay: replay, left: maxReplayed}
	for size := len(found.History) / 2; size >= 1; {
		if !s.leaveOut(size) || size > len(s.best.History)/2 {
			size /= 2
		}
	}
	for i := 0; i < len(s.best.History); i++ {
		s.simplify(i)
	}
	for s.leaveOut(1) {
	}
	s.rename()
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
	left   int // requests
}

// try replays a history and keeps it if it shows a difference.
func (s *shrinker) try(history []Op) bool {
	if s.left < len(history) {
		return false
	}
	s.left -= len(history)
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

// simplify tries plainer requests in the place of one.
func (s *shrinker) simplify(i int) {
	switch r := s.best.History[i].Request.(type) {
	case *protocol.PromiseCreate:
		for _, tag := range r.Tags {
			c := *s.best.History[i].Request.(*protocol.PromiseCreate)
			c.Tags = slices.DeleteFunc(slices.Clone(c.Tags), func(t protocol.Tag) bool { return t.Name == tag.Name })
			s.replace(i, &c)
		}
		c := *s.best.History[i].Request.(*protocol.PromiseCreate)
		c.Param = nil
		s.replace(i, &c)
	case *protocol.TaskSuspend:
		for _, awaited := range r.Awaited {
			c := *s.best.History[i].Request.(*protocol.TaskSuspend)
			c.Awaited = slices.DeleteFunc(slices.Clone(c.Awaited), func(id string) bool { return id == awaited })
			if len(c.Awaited) > 0 {
				s.replace(i, &c)
			}
		}
	}
}

// replace tries another request in the place of one. The history is not shorter afterwards, or it ends earlier
// than i and is not touched any more.
func (s *shrinker) replace(i int, req protocol.Request) {
	history := slices.Clone(s.best.History)
	history[i].Request = req
	if before := s.best; s.try(history) && len(s.best.History) <= i {
		s.best = before // the request itself is needed for what comes after
	}
}

// rename tries short names for the promises.
func (s *shrinker) rename() {
	names := map[string]string{}
	for _, op := range s.best.History {
		for _, id := range createdIn(op.Request) {
			if names[id] == "" {
				names[id] = fmt.Sprintf("id%d", len(names)+1)
			}
		}
	}
	history := slices.Clone(s.best.History)
	for i, op := range history {
		envelope, err := protocol.DecodeEnvelope(renamed(op.JSON(), names))
		if err != nil {
			return
		}
		if history[i].Request, err = protocol.DecodeRequest(envelope.Kind, envelope.Data); err != nil {
			return // it is meant to be refused
		}
	}
	s.try(history)
}

func createdIn(req protocol.Request) []string {
	switch r := req.(type) {
	case *protocol.PromiseCreate:
		return []string{r.ID}
	case *protocol.TaskCreate:
		return []string{r.Action.ID}
	}
	return nil
}

// renamed replaces texts in a request's JSON that are a promise's id.
func renamed(body []byte, names map[string]string) []byte {
	for _, id := range ids(names) {
		body = bytes.ReplaceAll(body, quoted(id), quoted(names[id]))
	}
	return body
}

// quoted is a text as the wire has it in the place of an id.
func quoted(id string) []byte {
	body := Op{Request: &protocol.PromiseGet{ID: id}}.JSON()
	_, data, _ := bytes.Cut(body, []byte(`"data":{"id":`))
	return bytes.TrimSuffix(data, []byte(`}}`))
}
