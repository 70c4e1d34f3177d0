package workload

import (
	"encoding/json"
	"fmt"
	"strings"

	"abide/protocol"
)

// Server is what a history is run against: a server of the protocol with debug on, its timers not running or
// paused by debug.start, its retry timeout that of the model.
type Server interface {
	// Post sends a body to a path and returns the HTTP status and the body of the answer, which the caller keeps.
	Post(path string, body []byte) (status int, answer []byte, err error)
}

// Difference is where a server and the model part.
type Difference struct {
	// History is what was asked up to there, the last request included.
	History []Op
	// What says how the last answer differs.
	What string
}

// Error is the report: the requests as curl could send them, the difference last.
func (d *Difference) Error() string {
	var b strings.Builder
	for _, op := range d.History {
		fmt.Fprintln(&b, op)
	}
	fmt.Fprintf(&b, "the answer to the last of these %d requests: %s", len(d.History), d.What)
	return b.String()
}

// maxPages ends a walk that does not end by itself.
const maxPages = 100_000

// Run is one history against one server, in workspaces of its own.
type Run struct {
	server Server
	prefix string
	model  *Model
	paused map[string]bool
	past   []Op

	// Coverage is what the history has met.
	Coverage *Coverage
}

// NewRun starts a history. Its workspaces on the server begin with prefix, which no other run may use.
func NewRun(server Server, prefix string, retryMs int64) *Run {
	return &Run{server: server, prefix: prefix, model: NewModel(retryMs), paused: map[string]bool{}, Coverage: NewCoverage()}
}

// Generate asks n requests of g's, and for a snapshot of both workspaces after every snapEvery and at the end.
// The error is a *Difference, or why the server could not be asked.
func (r *Run) Generate(g *Generator, n, snapEvery int) error {
	for i := 1; i <= n; i++ {
		if err := r.Do(g.Next(r.model)); err != nil {
			return err
		}
		if i%snapEvery == 0 || i == n {
			for _, workspace := range []string{firstSpace, secondSpace} {
				if err := r.Do(Op{workspace, r.model.space(workspace).mark, &protocol.DebugSnap{}}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Do asks one request of both and compares. The error is as in Generate.
func (r *Run) Do(op Op) error {
	if !r.paused[op.Workspace] {
		if _, _, err := r.post(Op{op.Workspace, 0, &protocol.DebugStart{}}); err != nil {
			return err
		}
		r.paused[op.Workspace] = true
	}
	r.past = append(r.past, op)
	want := r.Coverage.Apply(r.model, op)
	what, err := r.ask(op, want)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if what != "" && !r.model.space(op.Workspace).draining {
		return &Difference{History: r.past, What: what}
	}
	return nil
}

func (r *Run) post(op Op) (int, []byte, error) {
	op.Workspace = r.prefix + op.Workspace
	return r.server.Post(op.Path(), op.JSON())
}

func (r *Run) ask(op Op, want Answer) (string, error) {
	if want.Status == protocol.StatusOK {
		switch op.Request.(type) {
		case *protocol.PromiseSearch, *protocol.TaskSearch, *protocol.ScheduleSearch:
			return r.walk(op, want)
		}
	}
	status, body, err := r.post(op)
	if err != nil {
		return "", err
	}
	return Compare(op, want, status, body), nil
}

// walk asks a search page by page and compares all that it finds. A cursor is also tried with another filter
// once, which must be a 400.
func (r *Run) walk(op Op, want Answer) (string, error) {
	var list string
	for name := range want.Data.(object) {
		list = name
	}
	limit := limitOf(op.Request)
	all := []any{}
	cursor := ""
	for page := 0; page < maxPages; page++ {
		status, body, err := r.post(Op{op.Workspace, op.At, withCursor(op.Request, cursor, false)})
		if err != nil {
			return "", err
		}
		var answer struct{ Data map[string]json.RawMessage }
		if status != protocol.StatusOK || json.Unmarshal(body, &answer) != nil {
			return fmt.Sprintf("page %d of the walk: status %d: %.300q", page, status, body), nil
		}
		found, err := decodeJSON(answer.Data[list])
		elements, is := found.([]any)
		if err != nil || !is || len(elements) > limit {
			return fmt.Sprintf("page %d of the walk is no list of at most %d: %.300q", page, limit, body), nil
		}
		all = append(all, elements...)
		cursor = ""
		_ = json.Unmarshal(answer.Data["cursor"], &cursor) // absent on the last page
		if cursor == "" {
			return match("the whole walk", want.Data.(object)[list], all), nil
		}
		if page == 0 {
			status, body, err := r.post(Op{op.Workspace, op.At, withCursor(op.Request, cursor, true)})
			if err != nil || status != protocol.StatusInvalid {
				return fmt.Sprintf("a cursor used with another filter: status %d, want 400: %.300q", status, body), err
			}
		}
	}
	return fmt.Sprintf("the walk has not ended after %d pages", maxPages), nil
}

func limitOf(req protocol.Request) int {
	limit, otherwise := 0, 0
	switch r := req.(type) {
	case *protocol.PromiseSearch:
		limit, otherwise = r.Limit, 100
	case *protocol.TaskSearch:
		limit, otherwise = r.Limit, 100
	case *protocol.ScheduleSearch:
		limit, otherwise = r.Limit, 10
	}
	if limit == 0 {
		return otherwise
	}
	return limit
}

// withCursor copies a search, with a cursor, and with another filter if asked to.
func withCursor(req protocol.Request, cursor string, otherFilter bool) protocol.Request {
	other := protocol.Tags{{Name: "another", Value: "filter"}}
	switch r := req.(type) {
	case *protocol.PromiseSearch:
		c := *r
		c.Cursor = cursor
		if otherFilter {
			c.Tags = other
		}
		return &c
	case *protocol.TaskSearch:
		c := *r
		c.Cursor = cursor
		if otherFilter {
			c.State = map[bool]protocol.TaskState{true: protocol.TaskPending, false: protocol.TaskHalted}[r.State != protocol.TaskPending]
		}
		return &c
	case *protocol.ScheduleSearch:
		c := *r
		c.Cursor = cursor
		if otherFilter {
			c.Tags = other
		}
		return &c
	default:
		return req
	}
}
