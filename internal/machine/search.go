package machine

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"abide/protocol"
)

// The searches (docs/machine.md section 6): bounded pages in (tree, id) order, state judged on the
// projection. A page ends at its limit, at searchBytes or after searchReads; a cursor means that the
// scan did not reach the end, so a page may be short, even empty.

// badCursor refuses a cursor that this server did not make for this filter.
var badCursor = protocol.Fail(protocol.StatusInvalid,
	"Invalid cursor: pass the cursor of the previous page, with the same filter")

// cursorFor makes the cursor that continues after an id under a filter. The filter travels as a digest.
func cursorFor(after string, filter [8]byte) string {
	return base64.RawURLEncoding.EncodeToString(append(append([]byte{cursorVersion}, filter[:]...), after...))
}

const cursorVersion = 1

// canFollow tells whether a walk may continue after an id: any that a promise can have, with a NUL behind it where the
// walk jumps over the rest of a tree. Others, which only a client can have put into a cursor, might not fit into a key.
func canFollow(id string) bool {
	id = strings.TrimSuffix(id, "\x00")
	return len(id) <= protocol.MaxIDBytes && strings.IndexByte(id, 0) < 0
}

// parseCursor is the inverse of cursorFor; an empty cursor starts at the beginning.
func parseCursor(cursor string, filter [8]byte) (after string, ok bool) {
	if cursor == "" {
		return "", true
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) <= 9 || raw[0] != cursorVersion || [8]byte(raw[1:9]) != filter {
		return "", false
	}
	if after = string(raw[9:]); !canFollow(after) {
		return "", false
	}
	return after, true
}

// filterDigest identifies a filter: kind, state and tags.
func filterDigest(kind protocol.Kind, state string, tags protocol.Tags) [8]byte {
	var b strings.Builder
	for _, s := range []string{string(kind), state} {
		b.WriteString(s)
		b.WriteByte(0)
	}
	for _, t := range tags {
		b.WriteString(t.Name)
		b.WriteByte(0)
		b.WriteString(t.Value)
		b.WriteByte(0)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return [8]byte(sum[:8])
}

// IsIndexed reports whether a tag has an index entry of its own, so that a search by it reads candidates
// instead of everything: the user's tags, and resonate:schedule.
func IsIndexed(name string) bool {
	return name == protocol.TagSchedule || !strings.HasPrefix(name, "resonate:")
}

// searchPath picks the narrowest access path that covers the filter.
func searchPath(tags protocol.Tags) Path {
	for _, t := range tags {
		if IsIndexed(t.Name) {
			return Path{Kind: PathTag, Name: t.Name, Value: t.Value}
		}
	}
	if v, ok := tags.Get(protocol.TagBranch); ok {
		return Path{Kind: PathBranch, Value: v}
	}
	if v, ok := tags.Get(protocol.TagOrigin); ok {
		return Path{Kind: PathOrigin, Value: v}
	}
	return Path{Kind: PathAll}
}

func hasAll(have, want protocol.Tags) bool {
	for _, t := range want {
		if v, ok := have.Get(t.Name); !ok || v != t.Value {
			return false
		}
	}
	return true
}

// pageLimit is the limit of a search's page: the request's, or the default where it has none.
func pageLimit(limit, byDefault int) int {
	if limit == 0 {
		return byDefault
	}
	return limit
}

// walk enumerates a path after an id and calls take for each object until take declines, the bounds of a
// page are reached or the path ends. It returns the id to continue after, empty at the end.
func (op *Op) walk(path Path, after string, take func(*Object) (more bool, err error)) (next string, err error) {
	for scanned := 0; scanned < searchReads; {
		page, err := op.State.Enumerate(path, after, searchStep)
		if err != nil {
			return "", err
		}
		for i, o := range page.Objects {
			more, err := take(o)
			if err != nil {
				return "", err
			}
			if !more {
				if i == len(page.Objects)-1 && page.Next == "" {
					return "", nil // that was the very last one
				}
				return o.ID, nil
			}
		}
		if page.Next == "" {
			return "", nil
		}
		after = page.Next
		scanned += max(page.Scanned, 1)
	}
	return after, nil
}

func (op *Op) promiseSearch(r *protocol.PromiseSearch) (protocol.Reply, error) {
	ids := within(r.Within)
	filter := filterDigest(r.Kind(), ids.filter(string(r.State)), r.Tags)
	after, ok := parseCursor(r.Cursor, filter)
	if !ok {
		return badCursor, nil
	}
	body := protocol.PromisesBody{}
	limit, bytes := pageLimit(r.Limit, protocol.DefaultPromiseSearchLimit), int64(0)
	next, err := op.walk(searchPath(r.Tags), ids.start(after), func(o *Object) (bool, error) {
		if !ids.has(o.ID) {
			return false, nil
		}
		state := o.State
		if expired(o, op.Now) {
			op.Projected = true
			state = timeoutState(o.Tags)
		}
		if (r.State != "" && state != r.State) || !hasAll(o.Tags, r.Tags) {
			return true, nil
		}
		p, err := op.promise(o)
		if err != nil {
			return false, err
		}
		body.Promises = append(body.Promises, p)
		bytes += o.recordBytes() + o.Param.Size + o.Value.Size
		return len(body.Promises) < limit && bytes < searchBytes, nil
	})
	body.Cursor = ids.cursor(next, filter)
	return protocol.OK(body), err
}

func (op *Op) taskSearch(r *protocol.TaskSearch) (protocol.Reply, error) {
	ids := within(r.Within)
	filter := filterDigest(r.Kind(), ids.filter(string(r.State)), nil)
	after, ok := parseCursor(r.Cursor, filter)
	if !ok {
		return badCursor, nil
	}
	path := Path{Kind: PathOpenTasks}
	if r.State == "" || r.State == protocol.TaskFulfilled {
		path.Kind = PathAll // fulfilled tasks have no index entry: indexes hold open work
	}
	body := protocol.TasksBody{}
	limit, bytes := pageLimit(r.Limit, protocol.DefaultTaskSearchLimit), int64(0)
	next, err := op.walk(path, ids.start(after), func(o *Object) (bool, error) {
		if !ids.has(o.ID) {
			return false, nil
		}
		if o.Task == nil || (r.State != "" && op.taskState(o) != r.State) {
			return true, nil
		}
		t := op.task(o)
		body.Tasks = append(body.Tasks, t)
		bytes += int64(len(t.ID) + len(t.PID) + 100)
		return len(body.Tasks) < limit && bytes < searchBytes, nil
	})
	body.Cursor = ids.cursor(next, filter)
	return protocol.OK(body), err
}

func (op *Op) scheduleSearch(r *protocol.ScheduleSearch) (protocol.Reply, error) {
	ids := within(r.Within)
	filter := filterDigest(r.Kind(), ids.filter(""), r.Tags)
	after, ok := parseCursor(r.Cursor, filter)
	if !ok {
		return badCursor, nil
	}
	after = ids.startBytes(after)
	body := protocol.SchedulesBody{}
	limit, bytes := pageLimit(r.Limit, protocol.DefaultScheduleSearchLimit), int64(0)
	for scanned := 0; scanned < searchReads; scanned += searchStep {
		page, err := op.State.Schedules(after, searchStep)
		if err != nil {
			return protocol.Reply{}, err
		}
		for i, s := range page {
			after = s.ID
			if !ids.has(s.ID) {
				return protocol.OK(body), nil
			}
			if !hasAll(s.PromiseTags, r.Tags) {
				continue
			}
			record, err := op.schedule(s)
			if err != nil {
				return protocol.Reply{}, err
			}
			body.Schedules = append(body.Schedules, record)
			bytes += s.PromiseParam.Size + int64(len(s.ID)) + 200
			if len(body.Schedules) == limit || bytes >= searchBytes {
				if i < len(page)-1 || len(page) == searchStep {
					body.Cursor = ids.cursor(after, filter)
				}
				return protocol.OK(body), nil
			}
		}
		if len(page) < searchStep {
			return protocol.OK(body), nil
		}
	}
	body.Cursor = ids.cursor(after, filter)
	return protocol.OK(body), nil
}
