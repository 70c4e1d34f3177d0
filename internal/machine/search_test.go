package machine_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/protocol"
)

// create makes promises in few transactions, without a check after each.
func (w *world) create(promises ...protocol.PromiseCreate) {
	w.t.Helper()
	for batch := range slices.Chunk(promises, 200) {
		w.update(func(op *machine.Op) error {
			for i := range batch {
				if _, err := op.Apply(&batch[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// walk follows the cursors of a promise search to its end and returns the ids of every page.
func (w *world) walk(search protocol.PromiseSearch, between func()) (pages [][]string) {
	w.t.Helper()
	for range 10_000 {
		body := w.do(200, &search).Body.(protocol.PromisesBody)
		var ids []string
		for _, p := range body.Promises {
			ids = append(ids, p.ID)
		}
		pages = append(pages, ids)
		if body.Cursor == "" {
			return pages
		}
		if between != nil {
			between()
		}
		search.Cursor = body.Cursor
	}
	w.t.Fatal("the walk does not end")
	return nil
}

func (w *world) ids(search protocol.PromiseSearch) []string {
	w.t.Helper()
	return slices.Concat(w.walk(search, nil)...)
}

func TestSearchHasDefaultLimits(t *testing.T) {
	w := newWorld(t)
	var promises []protocol.PromiseCreate
	for i := range 120 {
		promises = append(promises, protocol.PromiseCreate{ID: fmt.Sprintf("p%03d", i), TimeoutAt: far, Tags: target})
	}
	w.create(promises...)
	for i := range 12 {
		w.do(200, &protocol.ScheduleCreate{ID: fmt.Sprintf("s%02d", i), Cron: "* * * * *", PromiseID: "x", PromiseTimeout: 1})
	}
	if n := len(w.do(200, &protocol.PromiseSearch{}).Body.(protocol.PromisesBody).Promises); n != protocol.DefaultPromiseSearchLimit {
		t.Errorf("promise.search without a limit: %d promises", n)
	}
	if n := len(w.do(200, &protocol.TaskSearch{}).Body.(protocol.TasksBody).Tasks); n != protocol.DefaultTaskSearchLimit {
		t.Errorf("task.search without a limit: %d tasks", n)
	}
	if n := len(w.do(200, &protocol.ScheduleSearch{}).Body.(protocol.SchedulesBody).Schedules); n != protocol.DefaultScheduleSearchLimit {
		t.Errorf("schedule.search without a limit: %d schedules", n)
	}
}

// Every access path lists in one order, by (tree, id) in bytes, whatever the size of its pages.
func TestSearchOrder(t *testing.T) {
	w := newWorld(t)
	want := []string{"10", "9", "B", "a", "a.b", "a:b", "a-b", "ä"}
	var promises []protocol.PromiseCreate
	for _, id := range []string{"a:b", "ä", "a-b", "9", "B", "a.b", "10", "a"} {
		promises = append(promises, protocol.PromiseCreate{ID: id, TimeoutAt: far, Tags: target.With("k", "v").
			With(protocol.TagOrigin, "a").With(protocol.TagBranch, "x").With(protocol.TagParent, "a").With(protocol.TagSchedule, "s")})
	}
	w.create(promises...)
	for name, filter := range map[string]protocol.Tags{
		"all": nil, "tag": tags("k", "v"), "schedule": tags(protocol.TagSchedule, "s"), "origin": tags(protocol.TagOrigin, "a"),
		"branch": tags(protocol.TagBranch, "x"), "parent": tags(protocol.TagParent, "a"),
		"several": tags("k", "v", protocol.TagOrigin, "a", protocol.TagParent, "a"),
	} {
		for limit := 1; limit <= len(want)+1; limit++ {
			if got := w.ids(protocol.PromiseSearch{Tags: filter, Limit: limit}); !slices.Equal(got, want) {
				t.Errorf("%s in pages of %d: %q, want %q", name, limit, got, want)
			}
		}
	}
	var tasks []string
	search := protocol.TaskSearch{Limit: 3}
	for more := true; more; {
		body := w.do(200, &search).Body.(protocol.TasksBody)
		for _, task := range body.Tasks {
			tasks = append(tasks, task.ID)
		}
		search.Cursor, more = body.Cursor, body.Cursor != ""
	}
	if !slices.Equal(tasks, want) {
		t.Errorf("tasks: %q, want %q", tasks, want)
	}
}

// A walk lists each object once while others are created before, at and behind it, and settled under it.
func TestWalkListsEachObjectOnce(t *testing.T) {
	for _, filter := range []protocol.Tags{nil, tags("k", "v"), tags(protocol.TagOrigin, "o"), tags(protocol.TagBranch, "o")} {
		w := newWorld(t)
		made := 0
		make := func() {
			made++
			for _, id := range []string{fmt.Sprintf("a%d", made), fmt.Sprintf("m.%d", made), fmt.Sprintf("z%d", made)} {
				w.create(protocol.PromiseCreate{ID: id, TimeoutAt: far,
					Tags: tags("k", "v", protocol.TagOrigin, "o", protocol.TagBranch, "o")})
			}
		}
		for range 8 {
			make()
		}
		first := w.ids(protocol.PromiseSearch{Tags: filter, Limit: 1000})
		pages := w.walk(protocol.PromiseSearch{Tags: filter, Limit: 3}, func() {
			if made < 20 {
				make()
				w.do(200, &protocol.PromiseSettle{ID: fmt.Sprintf("m.%d", made-3), State: protocol.Resolved})
			}
		})
		seen := map[string]int{}
		for _, id := range slices.Concat(pages...) {
			seen[id]++
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%v: %s was listed %d times", filter, id, n)
			}
		}
		for _, id := range first {
			if seen[id] != 1 {
				t.Errorf("%v: %s, there from the start, was listed %d times", filter, id, seen[id])
			}
		}
	}
}

// A promise may have more own tags than are indexed; a search by any of them finds it, and others.
func TestSearchByOneOfVeryManyTags(t *testing.T) {
	w := newWorld(t)
	var many protocol.Tags
	for i := range 40 {
		many = many.With(fmt.Sprintf("k%02d", i), "v")
	}
	w.create(protocol.PromiseCreate{ID: "many", TimeoutAt: far, Tags: many},
		protocol.PromiseCreate{ID: "few", TimeoutAt: far, Tags: tags("k39", "v")},
		protocol.PromiseCreate{ID: "zero", TimeoutAt: far, Tags: tags("k39", "other")})
	w.check()
	for name, want := range map[string][]string{"k00": {"many"}, "k31": {"many"}, "k32": {"many"}, "k39": {"few", "many"}} {
		if got := w.ids(protocol.PromiseSearch{Tags: tags(name, "v"), Limit: 1}); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Values of branch and origin may be longer than any id; such a promise is found, and its task can be claimed.
func TestBranchAndOriginLongerThanAnyID(t *testing.T) {
	for _, size := range []int{protocol.MaxIDBytes, protocol.MaxIDBytes + 1, 3000, 16_000} {
		for _, separator := range []string{"", ".", ":"} {
			w := newWorld(t)
			long := "root" + separator + strings.Repeat("x", size-4-len(separator))
			both := target.With(protocol.TagBranch, long).With(protocol.TagOrigin, long)
			w.create(protocol.PromiseCreate{ID: "a", TimeoutAt: far, Tags: both},
				protocol.PromiseCreate{ID: "root.1", TimeoutAt: far, Tags: both},
				protocol.PromiseCreate{ID: "root", TimeoutAt: far, Tags: target})
			for _, tag := range []string{protocol.TagBranch, protocol.TagOrigin} {
				if got := w.ids(protocol.PromiseSearch{Tags: tags(tag, long), Limit: 1}); !slices.Equal(got, []string{"a", "root.1"}) {
					t.Errorf("%s of %d bytes with %q: %q", tag, size, separator, got)
				}
			}
			claim := w.do(200, &protocol.TaskAcquire{ID: "a", Version: 0, PID: "w", TTL: 1000}).Body.(protocol.ClaimBody)
			if len(claim.Preload) != 1 || claim.Preload[0].ID != "root.1" {
				t.Errorf("preload by a branch of %d bytes: %d promises", size, len(claim.Preload))
			}
		}
	}
}

// A search that finds nothing among very many candidates ends its pages early and the walk at last.
func TestSearchAmongVeryManyCandidates(t *testing.T) {
	w := newQuickWorld(t)
	var promises []protocol.PromiseCreate
	for i := range 12_000 {
		promises = append(promises, protocol.PromiseCreate{ID: fmt.Sprintf("p%05d", i), TimeoutAt: far, Tags: tags("k", "v")})
	}
	promises = append(promises, protocol.PromiseCreate{ID: "q", TimeoutAt: far, Tags: tags("k", "v", "rare", "x")})
	w.create(promises...)
	for name, search := range map[string]protocol.PromiseSearch{
		"by state in key order":   {State: protocol.Resolved, Limit: 10},
		"by state under a tag":    {State: protocol.Resolved, Tags: tags("k", "v"), Limit: 10},
		"by a tag with no index":  {Tags: tags(protocol.TagParent, "x"), Limit: 10},
		"everything in big pages": {Limit: 1000},
	} {
		pages := w.walk(search, nil)
		if len(pages) < 2 {
			t.Errorf("%s: one page for 12,001 candidates", name)
		}
		if n := len(slices.Concat(pages...)); (n == 0) != (name != "everything in big pages") || (n > 0 && n != 12_001) {
			t.Errorf("%s: %d promises", name, n)
		}
	}
	if got := w.ids(protocol.PromiseSearch{Tags: tags("k", "v", "rare", "x"), Limit: 10}); !slices.Equal(got, []string{"q"}) {
		t.Errorf("the rare one: %q", got)
	}
}

// Trees hold more than objects: a walk passes over waiters, chunks and branch entries, few of many trees or many
// of one.
func TestSearchPassesOverOtherRowsOfTrees(t *testing.T) {
	w := newQuickWorld(t)
	var want []string
	var promises []protocol.PromiseCreate
	for i := range 600 {
		id := fmt.Sprintf("t%03d", i)
		want = append(want, id)
		promises = append(promises, protocol.PromiseCreate{ID: id, TimeoutAt: far, Param: payload(3000)})
	}
	w.create(promises...)
	w.update(func(op *machine.Op) error {
		for i := range 600 {
			for n := range 3 {
				if _, err := op.Apply(&protocol.PromiseRegisterListener{Awaited: fmt.Sprintf("t%03d", i), Address: fmt.Sprintf("poll://uni@g/%d", n)}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	w.update(func(op *machine.Op) error {
		for n := range 2000 {
			if _, err := op.Apply(&protocol.PromiseRegisterListener{Awaited: "t300", Address: fmt.Sprintf("poll://uni@h/%d", n)}); err != nil {
				return err
			}
		}
		return nil
	})
	// A tree that holds no object at all: a branch that nobody created.
	w.create(protocol.PromiseCreate{ID: "zz", TimeoutAt: far, Tags: tags(protocol.TagBranch, "aa")},
		protocol.PromiseCreate{ID: "zy", TimeoutAt: far, Tags: tags(protocol.TagBranch, ".")})
	want = append(want, "zy", "zz")
	for _, limit := range []int{1, 7, 100, 1000} {
		if got := w.ids(protocol.PromiseSearch{Limit: limit}); !slices.Equal(got, want) {
			t.Fatalf("pages of %d: %d promises, want %d in order", limit, len(got), len(want))
		}
	}
}

func TestCursorBelongsToItsFilter(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.do(200, &protocol.PromiseCreate{ID: fmt.Sprint("p", i), TimeoutAt: far, Tags: target.With("k", "v")})
		w.do(200, &protocol.ScheduleCreate{ID: fmt.Sprint("s", i), Cron: "* * * * *", PromiseID: "x", PromiseTags: tags("k", "v")})
	}
	promises := w.do(200, &protocol.PromiseSearch{Tags: tags("k", "v"), Limit: 1}).Body.(protocol.PromisesBody).Cursor
	tasks := w.do(200, &protocol.TaskSearch{State: protocol.TaskPending, Limit: 1}).Body.(protocol.TasksBody).Cursor
	schedules := w.do(200, &protocol.ScheduleSearch{Tags: tags("k", "v"), Limit: 1}).Body.(protocol.SchedulesBody).Cursor
	for _, search := range []protocol.Request{
		&protocol.PromiseSearch{Limit: 1, Cursor: promises},
		&protocol.PromiseSearch{Tags: tags("k", "w"), Limit: 1, Cursor: promises},
		&protocol.PromiseSearch{Tags: tags("k", "v"), State: protocol.Pending, Limit: 1, Cursor: promises},
		&protocol.PromiseSearch{Tags: tags("k", "v"), Limit: 1, Cursor: tasks},
		&protocol.TaskSearch{Limit: 1, Cursor: tasks},
		&protocol.TaskSearch{State: protocol.TaskPending, Limit: 1, Cursor: promises},
		&protocol.ScheduleSearch{Limit: 1, Cursor: schedules},
		&protocol.ScheduleSearch{Tags: tags("k", "v"), Limit: 1, Cursor: promises},
		&protocol.PromiseSearch{Limit: 1, Cursor: "nonsense"},
	} {
		w.do(400, search)
	}
	w.do(200, &protocol.PromiseSearch{Tags: tags("k", "v"), Limit: 7, Cursor: promises})
	w.do(200, &protocol.TaskSearch{State: protocol.TaskPending, Limit: 7, Cursor: tasks})
	got := w.do(200, &protocol.ScheduleSearch{Tags: tags("k", "v"), Limit: 7, Cursor: schedules}).Body.(protocol.SchedulesBody)
	if len(got.Schedules) != 2 || got.Schedules[0].ID != "s1" || got.Cursor != "" {
		t.Errorf("the rest of the schedules: %+v", got)
	}
}

// A page of promises ends when it has grown large, long before its limit.
func TestSearchPageEndsByBytes(t *testing.T) {
	w := newQuickWorld(t)
	for i := range 12 {
		w.do(200, &protocol.PromiseCreate{ID: fmt.Sprintf("p%02d", i), TimeoutAt: far, Param: payload(900_000)})
	}
	pages := w.walk(protocol.PromiseSearch{Limit: 1000}, nil)
	if len(pages) < 3 || len(slices.Concat(pages...)) != 12 {
		t.Errorf("12 promises of 0.9 MB came in %d pages", len(pages))
	}
}

// payload is a value of about that many bytes.
func payload(bytes int) protocol.Value {
	return protocol.MakeValue(nil, strings.Repeat("x", bytes))
}

// CompareIDs is the order of the searches.
func TestOrderOfIDs(t *testing.T) {
	ids := []string{"ä", "a:b", "a", "a.b", "10", "a-b", "9", "B", "a.b.c", "a:b.c", "", "."}
	slices.SortFunc(ids, keyspace.CompareIDs)
	want := []string{"", ".", "10", "9", "B", "a", "a.b", "a.b.c", "a:b", "a:b.c", "a-b", "ä"}
	if !slices.Equal(ids, want) {
		t.Errorf("%q, want %q", ids, want)
	}
}

// A cursor that a client has written itself is refused where no walk can have come to what it says, instead of making
// keys that no store takes.
func TestForgedCursors(t *testing.T) {
	w := newWorld(t)
	w.create(protocol.PromiseCreate{ID: "a", TimeoutAt: far, Tags: target}, protocol.PromiseCreate{ID: "b", TimeoutAt: far, Tags: target})
	for _, search := range []protocol.PromiseSearch{{Limit: 1}, {Limit: 1, Tags: target}} {
		own, err := base64.RawURLEncoding.DecodeString(w.do(200, &search).Body.(protocol.PromisesBody).Cursor)
		if err != nil {
			t.Fatal(err)
		}
		for after, want := range map[string]int{
			"a": 200, "a\x00": 200, "zz": 200, strings.Repeat("x", protocol.MaxIDBytes) + "\x00": 200, "\xff": 200,
			strings.Repeat("x", protocol.MaxIDBytes+1): 400, strings.Repeat("x", 100_000): 400, "\x00\x00": 400, strings.Repeat("\x00", protocol.MaxIDBytes): 400,
		} {
			search.Cursor = base64.RawURLEncoding.EncodeToString(append(own[:9:9], after...))
			w.do(want, &search)
		}
	}
}
