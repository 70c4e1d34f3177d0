package machine_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"abide/protocol"
)

// withinIDs have every neighbour that an order by trees, bytes and separators can get wrong.
var withinIDs = []string{
	"a", "a!", "a!x", "a-", "a.", "a.a", "a.b", "a.b-", "a.b.c", "a.b/", "a.b/c", "a.b:c", "a.c", "a/", "a/b", "a:", "a:b", "a;", "a;b", "a9", "ab", "ab.c",
	"aé", "aé.b", "aê", "b", "b.a", "\u00e9", ".", ".x", ":", ":y", "z",
}

// A search within a prefix shows exactly the ids that begin with it, in the order of searches, on every access path
// and page size, and no cursor names another id.
func TestSearchWithin(t *testing.T) {
	w := newWorld(t)
	var promises []protocol.PromiseCreate
	for _, id := range withinIDs {
		promises = append(promises, protocol.PromiseCreate{ID: id, TimeoutAt: 1 << 40, Tags: protocol.Tags{
			{Name: "color", Value: "red"}, {Name: protocol.TagBranch, Value: "a"}, {Name: protocol.TagOrigin, Value: "a"}, {Name: protocol.TagTarget, Value: "poll://any@g"}}})
	}
	w.create(promises...)
	all := w.ids(protocol.PromiseSearch{Limit: 1000})
	if len(all) != len(withinIDs) {
		t.Fatalf("%d of %d promises", len(all), len(withinIDs))
	}
	prefixes := append([]string{"a\x00", "\x00", "a.b.", "a.b:", "nothing", "zz"}, withinIDs...)
	for _, prefix := range prefixes {
		var want []string
		for _, id := range all {
			if strings.HasPrefix(id, prefix) {
				want = append(want, id)
			}
		}
		for _, tags := range []protocol.Tags{nil, {{Name: "color", Value: "red"}}, {{Name: protocol.TagBranch, Value: "a"}}, {{Name: protocol.TagOrigin, Value: "a"}}} {
			for _, limit := range []int{1, 2, 1000} {
				if got := w.ids(protocol.PromiseSearch{Within: prefix, Tags: tags, Limit: limit}); !slices.Equal(got, want) {
					t.Errorf("promises within %q, tags %v, limit %d: %q, want %q", prefix, tags, limit, got, want)
				}
				search := protocol.PromiseSearch{Within: prefix, Tags: tags, Limit: limit}
				if cursor := w.do(200, &search).Body.(protocol.PromisesBody).Cursor; cursor != "" {
					raw, _ := base64.RawURLEncoding.DecodeString(cursor)
					if !strings.HasPrefix(string(raw[9:]), prefix) {
						t.Errorf("within %q: a cursor names %q", prefix, raw[9:])
					}
				}
			}
		}
		for _, state := range []protocol.TaskState{"", protocol.TaskPending} {
			body := w.do(200, &protocol.TaskSearch{Within: prefix, State: state, Limit: 1000}).Body.(protocol.TasksBody)
			var got []string
			for _, task := range body.Tasks {
				got = append(got, task.ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s tasks within %q: %q, want %q", state, prefix, got, want)
			}
		}
	}
}

// A cursor belongs to the prefix that it was given for: no other token can go on from it, or from one of its own making
// that lies elsewhere.
func TestCursorsAreBoundToTheirPrefix(t *testing.T) {
	w := newWorld(t)
	w.create(protocol.PromiseCreate{ID: "a1", TimeoutAt: 1 << 40}, protocol.PromiseCreate{ID: "b1", TimeoutAt: 1 << 40}, protocol.PromiseCreate{ID: "b2", TimeoutAt: 1 << 40},
		protocol.PromiseCreate{ID: "b3", TimeoutAt: 1 << 40}, protocol.PromiseCreate{ID: "c1", TimeoutAt: 1 << 40})
	own := w.do(200, &protocol.PromiseSearch{Within: "b", Limit: 1}).Body.(protocol.PromisesBody).Cursor
	w.do(400, &protocol.PromiseSearch{Within: "c", Limit: 1, Cursor: own})
	w.do(400, &protocol.PromiseSearch{Limit: 1, Cursor: own})
	raw, _ := base64.RawURLEncoding.DecodeString(own)
	for _, after := range []string{"a", "a1", "c", "b3"} {
		forged := base64.RawURLEncoding.EncodeToString(append(slices.Clone(raw[:9]), after...))
		body := w.do(200, &protocol.PromiseSearch{Within: "b", Limit: 10, Cursor: forged}).Body.(protocol.PromisesBody)
		for _, p := range body.Promises {
			if p.ID[0] != 'b' {
				t.Errorf("after %q: shows %q", after, p.ID)
			}
		}
		if body.Cursor != "" {
			t.Errorf("after %q: goes on at %q", after, body.Cursor)
		}
	}
}

// Schedules are listed by the bytes of their ids, whatever separators they hold.
func TestScheduleSearchWithin(t *testing.T) {
	w := newWorld(t)
	ids := []string{"a", "a!", "a-", "a-b", "a/", "a/b", "a;", "ab", "b", "\u00e9"}
	for _, id := range ids {
		w.do(200, &protocol.ScheduleCreate{ID: id, Cron: "* * * * *", PromiseID: "p", PromiseTimeout: 1})
	}
	for _, prefix := range append([]string{"x", "a\x00"}, ids...) {
		for _, limit := range []int{1, 100} {
			var got, want []string
			for cursor, more := "", true; more; more = cursor != "" {
				body := w.do(200, &protocol.ScheduleSearch{Within: prefix, Limit: limit, Cursor: cursor}).Body.(protocol.SchedulesBody)
				for _, s := range body.Schedules {
					got = append(got, s.ID)
				}
				cursor = body.Cursor
			}
			for _, id := range ids {
				if strings.HasPrefix(id, prefix) {
					want = append(want, id)
				}
			}
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("schedules within %q, limit %d: %q, want %q", prefix, limit, got, want)
			}
		}
	}
}
