package auth

import (
	"slices"
	"strings"

	"abide/protocol"
)

// Policy judges what the bearer of a token may do. It is pure; the zero value is the strictest. It may be used
// from several goroutines.
//
// A token that is neither an admin's nor of the empty prefix is restricted: every id that a request names must begin
// with its prefix, wherever in the request it stands. What no prefix can bound (debug.*, kinds that this server does not
// know) is refused. What lists without naming (searches, a heartbeat without tasks) is bounded by Limit, and what an
// answer adds by itself (preloads) by Trim.
type Policy struct {
	// SharedGroups are worker groups that the bearer of every good token may listen to and address: names, or
	// beginnings followed by "*". Whoever listens to a group sees the messages of all that send to it.
	SharedGroups []string
}

// Enter judges what is known before a request's data is: its workspace and its kind. Refusals: ReasonWorkspace,
// ReasonNoPrefix, ReasonKind.
func (p Policy) Enter(c *Claims, workspace, kind string) *Refusal {
	switch {
	case !c.inWorkspace(workspace):
		return forbidden(ReasonWorkspace)
	case !c.Admin && !c.HasPrefix:
		return forbidden(ReasonNoPrefix)
	case c.Unrestricted():
		return nil
	case strings.HasPrefix(kind, "debug."), !protocol.Known(kind):
		return forbidden(ReasonKind)
	}
	return nil
}

// Request judges a valid request that Enter has let in. Refusals: ReasonKind, ReasonID, ReasonGroup.
func (p Policy) Request(c *Claims, req protocol.Request) *Refusal {
	j := judgement{policy: p, claims: c, every: c.Unrestricted()}
	j.request(req)
	return j.refusal
}

// Listen judges whether the bearer may open the stream of a worker of a group. Refusals: those of Enter, ReasonGroup.
func (p Policy) Listen(c *Claims, workspace, group string) *Refusal {
	switch {
	case !c.inWorkspace(workspace):
		return forbidden(ReasonWorkspace)
	case !c.Admin && !c.HasPrefix:
		return forbidden(ReasonNoPrefix)
	case !p.Group(c, group):
		return forbidden(ReasonGroup)
	}
	return nil
}

// Group reports whether the bearer may listen to a worker group, and have it told of settled promises. An admin may
// use every group. A token that names groups may use those; a token that does not may use the groups that begin with
// its prefix, and the group that is called like its prefix without the separators at the end. Shared groups come on
// top.
func (p Policy) Group(c *Claims, group string) bool {
	switch {
	case c.Admin, matches(p.SharedGroups, group):
		return true
	case c.HasGroups:
		return matches(c.Groups, group)
	}
	return c.HasPrefix && (strings.HasPrefix(group, c.Prefix) || group == strings.TrimRight(c.Prefix, ".:-_/"))
}

// Limit bounds a request that lists by itself to what the bearer may see: it sets Within. Call it on what Request has
// allowed, before the request is served.
func (p Policy) Limit(c *Claims, req protocol.Request) {
	if c.Unrestricted() {
		return
	}
	switch r := req.(type) {
	case *protocol.PromiseSearch:
		r.Within = c.Prefix
	case *protocol.TaskSearch:
		r.Within = c.Prefix
	case *protocol.ScheduleSearch:
		r.Within = c.Prefix
	case *protocol.TaskHeartbeat:
		r.Within = c.Prefix
	}
}

// Trim takes out of an answer what the request did not name and the bearer may not see: promises in preloads, which
// hold whatever carries the same branch tag, and the ids that a task is said to wait for.
func (p Policy) Trim(c *Claims, reply protocol.Reply) protocol.Reply {
	if c.Unrestricted() {
		return reply
	}
	switch b := reply.Body.(type) {
	case protocol.ClaimBody:
		b.Preload = within(c.Prefix, b.Preload)
		reply.Body = b
	case protocol.PreloadBody:
		b.Preload = within(c.Prefix, b.Preload)
		reply.Body = b
	case protocol.FenceBody:
		b.Preload = within(c.Prefix, b.Preload)
		reply.Body = b
	case protocol.ExplainBody:
		awaiting := len(b.Awaiting)
		b.Awaiting = slices.DeleteFunc(slices.Clone(b.Awaiting), func(id string) bool { return !strings.HasPrefix(id, c.Prefix) })
		b.Partial = b.Partial || len(b.Awaiting) < awaiting
		reply.Body = b
	}
	return reply
}

// within is the promises whose ids begin with prefix. It does not change the slice it is given.
func within(prefix string, promises []protocol.Promise) []protocol.Promise {
	kept := make([]protocol.Promise, 0, len(promises))
	for _, p := range promises {
		if strings.HasPrefix(p.ID, prefix) {
			kept = append(kept, p)
		}
	}
	return kept
}

// judgement is one request being judged.
type judgement struct {
	policy  Policy
	claims  *Claims
	every   bool // every id is allowed
	refusal *Refusal
}

func (j *judgement) refuse(reason Reason) {
	if j.refusal == nil {
		j.refusal = forbidden(reason)
	}
}

// ids refuses if one of ids is outside the prefix.
func (j *judgement) ids(ids ...string) {
	if j.every {
		return
	}
	for _, id := range ids {
		if !strings.HasPrefix(id, j.claims.Prefix) {
			j.refuse(ReasonID)
			return
		}
	}
}

// request judges one request, whatever it holds inside. A kind that is not listed is for the unrestricted alone.
func (j *judgement) request(req protocol.Request) {
	switch r := req.(type) {
	case *protocol.PromiseGet:
		j.ids(r.ID)
	case *protocol.PromiseCreate:
		j.create(r)
	case *protocol.PromiseSettle:
		j.ids(r.ID)
	case *protocol.PromiseRegisterCallback:
		j.ids(r.Awaited, r.Awaiter)
	case *protocol.PromiseRegisterListener:
		j.ids(r.Awaited)
		j.listener(r.Address)
	case *protocol.PromiseSearch, *protocol.TaskSearch, *protocol.ScheduleSearch:
		// Limit bounds them.
	default:
		if !j.task(req) && !j.schedule(req) && !j.every {
			j.refuse(ReasonKind)
		}
	}
}

// task judges the requests on tasks; false if req is none.
func (j *judgement) task(req protocol.Request) bool {
	switch r := req.(type) {
	case *protocol.TaskGet:
		j.ids(r.ID)
	case *protocol.TaskCreate:
		j.create(&r.Action)
	case *protocol.TaskAcquire:
		j.ids(r.ID)
	case *protocol.TaskFence:
		j.ids(r.ID)
		if r.Create != nil {
			j.create(r.Create)
		}
		if r.Settle != nil {
			j.ids(r.Settle.ID)
		}
	case *protocol.TaskHeartbeat:
		for _, ref := range r.Tasks {
			j.ids(ref.ID)
		}
	case *protocol.TaskSuspend:
		j.ids(r.ID)
		j.ids(r.Awaited...)
	case *protocol.TaskFulfill:
		j.ids(r.ID, r.Action.ID)
	case *protocol.TaskRelease:
		j.ids(r.ID)
	case *protocol.TaskHalt:
		j.ids(r.ID)
	case *protocol.TaskContinue:
		j.ids(r.ID)
	case *protocol.TaskExplain:
		j.ids(r.ID)
	default:
		return false
	}
	return true
}

// schedule judges the requests on schedules; false if req is none.
func (j *judgement) schedule(req protocol.Request) bool {
	switch r := req.(type) {
	case *protocol.ScheduleGet:
		j.ids(r.ID)
	case *protocol.ScheduleCreate:
		// Only what is written out before the first placeholder is sure to begin every id that is made.
		literal, _, _ := strings.Cut(r.PromiseID, "{{")
		j.ids(r.ID, literal)
		j.tags(literal, r.PromiseTags)
	case *protocol.ScheduleDelete:
		j.ids(r.ID)
	default:
		return false
	}
	return true
}

func (j *judgement) create(r *protocol.PromiseCreate) {
	j.ids(r.ID)
	j.tags(r.ID, r.Tags)
}

// tags judges the tags of a promise. Origin, branch and parent put it into the lists of another promise, which must be
// the bearer's as well, or one that the promise's own id descends from.
func (j *judgement) tags(id string, tags protocol.Tags) {
	if target, ok := tags.Get(protocol.TagTarget); ok {
		j.target(target)
	}
	for _, name := range []string{protocol.TagOrigin, protocol.TagBranch, protocol.TagParent} {
		value, ok := tags.Get(name)
		if !ok || descends(id, value) {
			continue
		}
		j.ids(value)
	}
}

// descends reports whether id is ancestor, or continues it after one of the separators of ids.
func descends(id, ancestor string) bool {
	rest, ok := strings.CutPrefix(id, ancestor)
	return ok && ancestor != "" && (rest == "" || rest[0] == '.' || rest[0] == ':')
}

// listener judges the address of a listener: where the bearer, and not somebody else, is listening. Addresses of other
// schemes than poll are the business of the transport's own lists.
func (j *judgement) listener(address string) {
	if group, ok := groupOf(address); ok && !j.policy.Group(j.claims, group) {
		j.refuse(ReasonGroup)
	}
}

// target judges where a promise's task is to run. Work may be sent to any group, since whoever takes it needs a
// token for its id, unless the token names the groups that it is good for.
func (j *judgement) target(address string) {
	if j.claims.HasGroups {
		j.listener(address)
	}
}

// groupOf is the worker group of a poll address; not ok for addresses of other schemes and for what is none.
func groupOf(address string) (group string, ok bool) {
	a, err := protocol.ParseAddress(address)
	return a.Group, err == nil && a.Scheme == protocol.SchemePoll
}
