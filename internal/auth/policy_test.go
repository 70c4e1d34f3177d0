package auth

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"abide/protocol"
)

// The bearers of the table.
var bearers = map[string]*Claims{
	"admin":                {Admin: true},
	"admin of a prefix":    {Admin: true, Prefix: "a.", HasPrefix: true},
	"empty prefix":         {HasPrefix: true},
	"prefix":               {HasPrefix: true, Prefix: "a."},
	"no prefix":            {},
	"prefix, other groups": {HasPrefix: true, Prefix: "a.", HasGroups: true, Groups: []string{"x", "y-*"}},
	"empty prefix, groups": {HasPrefix: true, HasGroups: true, Groups: []string{"x", "y-*"}},
	"no groups at all":     {HasPrefix: true, HasGroups: true},
}

func targeted(id string, pairs ...string) protocol.PromiseCreate {
	tags := protocol.Tags{}.With(protocol.TagTarget, "poll://any@workers")
	for i := 0; i < len(pairs); i += 2 {
		tags = tags.With(pairs[i], pairs[i+1])
	}
	return protocol.PromiseCreate{ID: id, Tags: tags}
}

// named is a request that names ids, made of those it is given: one request for every place in which an id can stand.
type named struct {
	kind protocol.Kind
	ids  int // how many it needs
	make func(ids []string) protocol.Request
}

var namedRequests = []named{
	{protocol.KindPromiseGet, 1, func(i []string) protocol.Request { return &protocol.PromiseGet{ID: i[0]} }},
	{protocol.KindPromiseCreate, 1, func(i []string) protocol.Request { return &protocol.PromiseCreate{ID: i[0]} }},
	{protocol.KindPromiseCreate, 4, func(i []string) protocol.Request {
		c := targeted(i[0], protocol.TagOrigin, i[1], protocol.TagBranch, i[2], protocol.TagParent, i[3])
		return &c
	}},
	{protocol.KindPromiseSettle, 1, func(i []string) protocol.Request { return &protocol.PromiseSettle{ID: i[0]} }},
	{protocol.KindPromiseRegisterCallback, 2, func(i []string) protocol.Request {
		return &protocol.PromiseRegisterCallback{Awaited: i[0], Awaiter: i[1]}
	}},
	{protocol.KindPromiseRegisterListener, 1, func(i []string) protocol.Request {
		return &protocol.PromiseRegisterListener{Awaited: i[0], Address: "https://example.com/hook"}
	}},
	{protocol.KindTaskGet, 1, func(i []string) protocol.Request { return &protocol.TaskGet{ID: i[0]} }},
	{protocol.KindTaskCreate, 3, func(i []string) protocol.Request {
		return &protocol.TaskCreate{PID: "p", Action: targeted(i[0], protocol.TagOrigin, i[1], protocol.TagParent, i[2])}
	}},
	{protocol.KindTaskAcquire, 1, func(i []string) protocol.Request { return &protocol.TaskAcquire{ID: i[0]} }},
	{protocol.KindTaskFence, 3, func(i []string) protocol.Request {
		c := targeted(i[1], protocol.TagBranch, i[2])
		return &protocol.TaskFence{ID: i[0], Create: &c}
	}},
	{protocol.KindTaskFence, 2, func(i []string) protocol.Request {
		return &protocol.TaskFence{ID: i[0], Settle: &protocol.PromiseSettle{ID: i[1]}}
	}},
	{protocol.KindTaskHeartbeat, 3, func(i []string) protocol.Request {
		return &protocol.TaskHeartbeat{PID: "p", Tasks: []protocol.TaskRef{{ID: i[0]}, {ID: i[1]}, {ID: i[2]}}}
	}},
	{protocol.KindTaskSuspend, 3, func(i []string) protocol.Request {
		return &protocol.TaskSuspend{ID: i[0], Awaited: []string{i[1], i[2]}}
	}},
	{protocol.KindTaskFulfill, 2, func(i []string) protocol.Request {
		return &protocol.TaskFulfill{ID: i[0], Action: protocol.PromiseSettle{ID: i[1]}}
	}},
	{protocol.KindTaskRelease, 1, func(i []string) protocol.Request { return &protocol.TaskRelease{ID: i[0]} }},
	{protocol.KindTaskHalt, 1, func(i []string) protocol.Request { return &protocol.TaskHalt{ID: i[0]} }},
	{protocol.KindTaskContinue, 1, func(i []string) protocol.Request { return &protocol.TaskContinue{ID: i[0]} }},
	{protocol.KindTaskExplain, 1, func(i []string) protocol.Request { return &protocol.TaskExplain{ID: i[0]} }},
	{protocol.KindScheduleGet, 1, func(i []string) protocol.Request { return &protocol.ScheduleGet{ID: i[0]} }},
	{protocol.KindScheduleCreate, 3, func(i []string) protocol.Request {
		return &protocol.ScheduleCreate{ID: i[0], PromiseID: i[1] + "{{.timestamp}}", PromiseTags: protocol.Tags{}.With(protocol.TagOrigin, i[2])}
	}},
	{protocol.KindScheduleDelete, 1, func(i []string) protocol.Request { return &protocol.ScheduleDelete{ID: i[0]} }},
}

// listing are the requests that name no id.
var listing = []protocol.Request{
	&protocol.PromiseSearch{}, &protocol.TaskSearch{}, &protocol.ScheduleSearch{}, &protocol.TaskHeartbeat{PID: "p"},
}

var debugging = []protocol.Request{
	&protocol.DebugStart{}, &protocol.DebugStop{}, &protocol.DebugReset{}, &protocol.DebugSnap{}, &protocol.DebugTick{},
}

// judge is what the API does: Enter, then Request.
func judge(p Policy, c *Claims, workspace string, req protocol.Request) *Refusal {
	if r := p.Enter(c, workspace, string(req.Kind())); r != nil {
		return r
	}
	return p.Request(c, req)
}

func reason(r *Refusal) Reason {
	if r == nil {
		return ""
	}
	return r.Reason
}

// Every kind, with every id inside the prefix and with a foreign one in each of its places, for every bearer.
func TestEveryKindRoleAndPrefix(t *testing.T) {
	own, foreign := []string{"a.1", "a.2", "a.", "a.x:y"}, "b.1"
	for name, c := range bearers {
		restricted := name == "prefix"
		for _, n := range namedRequests {
			inside := n.make(own[:n.ids])
			want := Reason("")
			if name == "no prefix" {
				want = ReasonNoPrefix
			}
			if strings.Contains(name, "groups") {
				continue // TestGroups
			}
			if got := reason(judge(Policy{}, c, "default", inside)); got != want {
				t.Errorf("%s: %s of own ids: %q, want %q", name, n.kind, got, want)
			}
			for place := range n.ids {
				ids := slices.Clone(own[:n.ids])
				ids[place] = foreign
				want := want
				if restricted {
					want = ReasonID
				}
				if got := reason(judge(Policy{}, c, "default", n.make(ids))); got != want {
					t.Errorf("%s: %s with a foreign id in place %d: %q, want %q", name, n.kind, place, got, want)
				}
			}
		}
		for _, req := range debugging {
			want := map[string]Reason{"prefix": ReasonKind, "prefix, other groups": ReasonKind, "no prefix": ReasonNoPrefix}[name]
			if got := reason(judge(Policy{}, c, "default", req)); got != want {
				t.Errorf("%s: %s: %q, want %q", name, req.Kind(), got, want)
			}
		}
		for _, req := range listing {
			want := map[string]Reason{"no prefix": ReasonNoPrefix}[name]
			if got := reason(judge(Policy{}, c, "default", req)); got != want {
				t.Errorf("%s: %s: %q, want %q", name, req.Kind(), got, want)
			}
		}
		for _, kind := range []string{"promise.destroy", "debug.unheard", "", "PROMISE.GET"} {
			want := map[string]Reason{"prefix": ReasonKind, "prefix, other groups": ReasonKind, "no prefix": ReasonNoPrefix}[name]
			if got := reason(Policy{}.Enter(c, "default", kind)); got != want {
				t.Errorf("%s: unknown kind %q: %q, want %q", name, kind, got, want)
			}
		}
	}
}

// unheard is a request of a kind that the policy does not know.
type unheard struct{}

func (unheard) Kind() protocol.Kind { return protocol.KindPromiseGet }

// A kind that is added to the protocol and forgotten here is refused to whoever may not touch everything.
func TestKindsThatAreNotListedAreRefused(t *testing.T) {
	for name, want := range map[string]Reason{"admin": "", "empty prefix": "", "prefix": ReasonKind} {
		if got := reason(Policy{}.Request(bearers[name], unheard{})); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// The table above has every kind there is.
func TestTheTableHasEveryKind(t *testing.T) {
	listed := map[protocol.Kind]bool{}
	for _, n := range namedRequests {
		listed[n.kind] = true
	}
	for _, req := range slices.Concat(listing, debugging) {
		listed[req.Kind()] = true
	}
	for _, kind := range []protocol.Kind{
		protocol.KindPromiseGet, protocol.KindPromiseCreate, protocol.KindPromiseSettle, protocol.KindPromiseRegisterCallback,
		protocol.KindPromiseRegisterListener, protocol.KindPromiseSearch, protocol.KindTaskGet, protocol.KindTaskCreate, protocol.KindTaskAcquire,
		protocol.KindTaskFence, protocol.KindTaskHeartbeat, protocol.KindTaskSuspend, protocol.KindTaskFulfill, protocol.KindTaskRelease,
		protocol.KindTaskHalt, protocol.KindTaskContinue, protocol.KindTaskSearch, protocol.KindScheduleGet, protocol.KindScheduleCreate,
		protocol.KindScheduleDelete, protocol.KindScheduleSearch, protocol.KindDebugStart, protocol.KindDebugStop, protocol.KindDebugReset,
		protocol.KindDebugSnap, protocol.KindDebugTick, protocol.KindTaskExplain,
	} {
		if !listed[kind] || !protocol.Known(string(kind)) {
			t.Errorf("%s is not in the table", kind)
		}
	}
}

func TestTags(t *testing.T) {
	c := &Claims{HasPrefix: true, Prefix: "a.b"}
	for _, x := range []struct {
		id, tag, value string
		want           Reason
	}{
		{"a.b.c", protocol.TagOrigin, "a", ""}, // an ancestor, as SDKs write them
		{"a.b.c", protocol.TagParent, "a.b", ""},
		{"a.b:c", protocol.TagBranch, "a.b", ""},
		{"a.b.c", protocol.TagBranch, "a.b.c", ""},
		{"a.bc", protocol.TagOrigin, "a", ""},
		{"a.b.c", protocol.TagOrigin, "a.", ReasonID},
		{"a.b.c", protocol.TagOrigin, "", ReasonID},
		{"a.b.c", protocol.TagBranch, "a.c", ReasonID},
		{"a.b.c", protocol.TagParent, "aa", ReasonID},
		{"a.b.c", protocol.TagParent, "A", ReasonID},
		{"a.b.c", protocol.TagScope, "anything", ""},
		{"a.b.c", protocol.TagPrefix, "anything", ""},
		{"a.b.c", "color", "anything", ""},
	} {
		create := protocol.PromiseCreate{ID: x.id, Tags: protocol.Tags{}.With(x.tag, x.value)}
		if got := reason(Policy{}.Request(c, &create)); got != x.want {
			t.Errorf("%s with %s=%q: %q, want %q", x.id, x.tag, x.value, got, x.want)
		}
	}
}

// Only what is written out in front of the first placeholder counts.
func TestScheduleTemplates(t *testing.T) {
	c := &Claims{HasPrefix: true, Prefix: "a."}
	for template, want := range map[string]Reason{
		"a.{{.timestamp}}": "", "a.x-{{.id}}-{{.timestamp}}": "", "a.": "", "{{.id}}": ReasonID, "a{{.id}}": ReasonID, "{{.id}}a.": ReasonID, "b.a.{{.id}}": ReasonID,
	} {
		if got := reason(Policy{}.Request(c, &protocol.ScheduleCreate{ID: "a.s", PromiseID: template})); got != want {
			t.Errorf("%s: %q, want %q", template, got, want)
		}
	}
	odd := &Claims{HasPrefix: true, Prefix: "{{.id}}"}
	if got := reason(Policy{}.Request(odd, &protocol.ScheduleCreate{ID: "{{.id}}", PromiseID: "{{.id}}"})); got != ReasonID {
		t.Errorf("a prefix that looks like a placeholder: %q", got)
	}
}

func TestGroups(t *testing.T) {
	prefixed := &Claims{HasPrefix: true, Prefix: "team-a."}
	groups := &Claims{HasPrefix: true, Prefix: "team-a.", HasGroups: true, Groups: []string{"x", "y-*"}}
	for _, x := range []struct {
		who    *Claims
		policy Policy
		group  string
		want   bool
	}{
		{prefixed, Policy{}, "team-a.workers", true},
		{prefixed, Policy{}, "team-a", true},
		{prefixed, Policy{}, "team-a-b", false},
		{prefixed, Policy{}, "team-b", false},
		{prefixed, Policy{}, "default", false},
		{prefixed, Policy{SharedGroups: []string{"default"}}, "default", true},
		{prefixed, Policy{SharedGroups: []string{"default"}}, "defaults", false},
		{prefixed, Policy{SharedGroups: []string{"*"}}, "anything", true},
		{groups, Policy{}, "x", true},
		{groups, Policy{}, "xx", false},
		{groups, Policy{}, "y-1", true},
		{groups, Policy{}, "team-a", false},
		{groups, Policy{SharedGroups: []string{"default"}}, "default", true},
		{bearers["no groups at all"], Policy{}, "x", false},
		{bearers["empty prefix"], Policy{}, "anything", true},
		{bearers["admin"], Policy{}, "anything", true},
		{&Claims{Admin: true, HasGroups: true}, Policy{}, "anything", true},
		{bearers["empty prefix, groups"], Policy{}, "anything", false},
		{&Claims{}, Policy{SharedGroups: []string{"*"}}, "anything", true},
	} {
		if got := x.policy.Group(x.who, x.group); got != x.want {
			t.Errorf("%+v, shared %q: group %q: %v", x.who, x.policy.SharedGroups, x.group, got)
		}
		for _, address := range []string{"poll://any@%s", "poll://uni@%s/pid", "POLL://any@%s/pid"} {
			address = fmt.Sprintf(address, x.group)
			if !x.who.HasPrefix && !x.who.Admin {
				continue
			}
			listener := &protocol.PromiseRegisterListener{Awaited: x.who.Prefix + "1", Address: address}
			if got := reason(x.policy.Request(x.who, listener)); (got == "") != x.want || (got != "" && got != ReasonGroup) {
				t.Errorf("%+v: listener at %s: %q", x.who, address, got)
			}
			create := protocol.PromiseCreate{ID: x.who.Prefix + "1", Tags: protocol.Tags{}.With(protocol.TagTarget, address)}
			want := x.want || !x.who.HasGroups || x.who.Admin
			for _, req := range []protocol.Request{&create, &protocol.TaskCreate{Action: create}, &protocol.TaskFence{ID: x.who.Prefix + "2", Create: &create},
				&protocol.ScheduleCreate{ID: x.who.Prefix + "s", PromiseID: x.who.Prefix, PromiseTags: create.Tags}} {
				if got := reason(x.policy.Request(x.who, req)); (got == "") != want {
					t.Errorf("%+v: %s with target %s: %q", x.who, req.Kind(), address, got)
				}
			}
		}
	}
}

func TestListen(t *testing.T) {
	for _, x := range []struct {
		who              *Claims
		workspace, group string
		want             Reason
	}{
		{bearers["admin"], "default", "g", ""},
		{bearers["admin"], "other", "g", ReasonWorkspace},
		{bearers["empty prefix"], "default", "g", ""},
		{bearers["no prefix"], "default", "g", ReasonNoPrefix},
		{bearers["prefix"], "default", "a", ""},
		{bearers["prefix"], "default", "g", ReasonGroup},
	} {
		if got := reason(Policy{}.Listen(x.who, x.workspace, x.group)); got != x.want {
			t.Errorf("%+v in %s at %s: %q, want %q", x.who, x.workspace, x.group, got, x.want)
		}
	}
}

func TestWorkspaces(t *testing.T) {
	for _, x := range []struct {
		claimed   []string
		workspace string
		want      bool
	}{
		{nil, "default", true}, {nil, "w", false}, {[]string{"w"}, "w", true}, {[]string{"w"}, "default", false}, {[]string{"w"}, "W", false}, {[]string{"w"}, "w2", false},
		{[]string{"w*"}, "w2", true}, {[]string{"w*"}, "w", true}, {[]string{"*"}, "anything", true}, {[]string{"a", "b"}, "b", true}, {[]string{""}, "default", false},
	} {
		c := &Claims{Admin: true, Workspaces: x.claimed}
		if got := (Policy{}).Enter(c, x.workspace, "promise.get") == nil; got != x.want {
			t.Errorf("%q in %q: %v", x.claimed, x.workspace, got)
		}
	}
}

// What lists without naming is bounded, for the restricted alone.
func TestLimit(t *testing.T) {
	withins := func(c *Claims) []string {
		p, s, w, h := &protocol.PromiseSearch{}, &protocol.TaskSearch{}, &protocol.ScheduleSearch{}, &protocol.TaskHeartbeat{}
		for _, req := range []protocol.Request{p, s, w, h, &protocol.PromiseGet{}} {
			Policy{}.Limit(c, req)
		}
		return []string{p.Within, s.Within, w.Within, h.Within}
	}
	if got := withins(bearers["prefix"]); !slices.Equal(got, []string{"a.", "a.", "a.", "a."}) {
		t.Errorf("prefix: %q", got)
	}
	for _, name := range []string{"admin", "admin of a prefix", "empty prefix"} {
		if got := withins(bearers[name]); !slices.Equal(got, []string{"", "", "", ""}) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestTrim(t *testing.T) {
	preload := []protocol.Promise{{ID: "a.1"}, {ID: "b.1"}, {ID: "a"}, {ID: "a.2"}}
	for _, reply := range []protocol.Reply{
		protocol.OK(protocol.ClaimBody{Preload: preload}), {Status: 300, Body: protocol.PreloadBody{Preload: preload}}, protocol.OK(protocol.FenceBody{Preload: preload}),
	} {
		for name, want := range map[string]int{"prefix": 2, "admin": 4, "empty prefix": 4} {
			got := Policy{}.Trim(bearers[name], reply)
			var left []protocol.Promise
			switch b := got.Body.(type) {
			case protocol.ClaimBody:
				left = b.Preload
			case protocol.PreloadBody:
				left = b.Preload
			case protocol.FenceBody:
				left = b.Preload
			}
			if len(left) != want || got.Status != reply.Status {
				t.Errorf("%s: %T: %d promises, want %d", name, reply.Body, len(left), want)
			}
		}
	}
	explain := protocol.ExplainBody{Awaiting: []string{"b.1", "a.1", "b.2"}}
	if got := (Policy{}).Trim(bearers["prefix"], protocol.OK(explain)).Body.(protocol.ExplainBody); !slices.Equal(got.Awaiting, []string{"a.1"}) || !got.Partial {
		t.Errorf("explained: %+v", got)
	}
	if got := (Policy{}).Trim(bearers["admin"], protocol.OK(explain)).Body.(protocol.ExplainBody); len(got.Awaiting) != 3 || got.Partial {
		t.Errorf("explained to an admin: %+v", got)
	}
	if preload[1].ID != "b.1" || explain.Awaiting[0] != "b.1" {
		t.Error("the reply's own list was changed")
	}
}
