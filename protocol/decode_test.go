package protocol_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"abide/protocol"
)

// valid holds, for every kind, data that has every member it can have.
var valid = map[protocol.Kind]string{
	protocol.KindPromiseGet:              `{"id":"p"}`,
	protocol.KindPromiseCreate:           `{"id":"p","timeoutAt":100,"param":{"headers":{"h":"1"},"data":"ZA=="},"tags":{"a":"b"}}`,
	protocol.KindPromiseSettle:           `{"id":"p","state":"resolved","value":{"data":"ZA=="}}`,
	protocol.KindPromiseRegisterCallback: `{"awaited":"p","awaiter":"q"}`,
	protocol.KindPromiseRegisterListener: `{"awaited":"p","address":"poll://uni@g/w"}`,
	protocol.KindPromiseSearch:           `{"state":"pending","tags":{"a":"b"},"limit":7,"cursor":"c"}`,
	protocol.KindTaskGet:                 `{"id":"t"}`,
	protocol.KindTaskCreate: `{"pid":"w","ttl":5,"action":{"kind":"promise.create","head":{"corrId":"1"},` +
		`"data":{"id":"t","timeoutAt":100,"param":{"data":""},"tags":{"resonate:target":"poll://any@g"}}}}`,
	protocol.KindTaskAcquire: `{"id":"t","version":3,"pid":"w","ttl":5}`,
	protocol.KindTaskFence: `{"id":"t","version":3,"action":{"kind":"promise.create","head":{},` +
		`"data":{"id":"t.1","timeoutAt":100,"param":{},"tags":{}}}}`,
	protocol.KindTaskHeartbeat: `{"pid":"w","tasks":[{"id":"t","version":1},{"id":"u","version":2}]}`,
	protocol.KindTaskSuspend: `{"id":"t","version":3,"actions":[{"kind":"promise.register_callback","head":{},` +
		`"data":{"awaited":"p","awaiter":"t"}}]}`,
	protocol.KindTaskFulfill: `{"id":"t","version":3,"action":{"kind":"promise.settle","head":{},` +
		`"data":{"id":"t","state":"rejected","value":{"data":"eA=="}}}}`,
	protocol.KindTaskRelease:  `{"id":"t","version":3}`,
	protocol.KindTaskHalt:     `{"id":"t"}`,
	protocol.KindTaskContinue: `{"id":"t"}`,
	protocol.KindTaskSearch:   `{"state":"acquired","limit":7,"cursor":"c"}`,
	protocol.KindScheduleGet:  `{"id":"s"}`,
	protocol.KindScheduleCreate: `{"id":"s","cron":"* * * * *","promiseId":"s.{{.timestamp}}","promiseTimeout":60000,` +
		`"promiseParam":{"data":"ZA=="},"promiseTags":{"resonate:target":"poll://any@g"}}`,
	protocol.KindScheduleDelete: `{"id":"s"}`,
	protocol.KindScheduleSearch: `{"tags":{"a":"b"},"limit":7,"cursor":"c"}`,
	protocol.KindDebugStart:     `{}`,
	protocol.KindDebugStop:      `{}`,
	protocol.KindDebugReset:     `{}`,
	protocol.KindDebugSnap:      `{}`,
	protocol.KindDebugTick:      `{"time":100}`,
}

func raw(s string) protocol.Value { return protocol.Value(s) }

func TestDecodeEveryKind(t *testing.T) {
	target := protocol.Tags{{Name: protocol.TagTarget, Value: "poll://any@g"}}
	ab := protocol.Tags{{Name: "a", Value: "b"}}
	want := map[protocol.Kind]protocol.Request{
		protocol.KindPromiseGet:              &protocol.PromiseGet{ID: "p"},
		protocol.KindPromiseCreate:           &protocol.PromiseCreate{ID: "p", TimeoutAt: 100, Param: raw(`{"headers":{"h":"1"},"data":"ZA=="}`), Tags: ab},
		protocol.KindPromiseSettle:           &protocol.PromiseSettle{ID: "p", State: protocol.Resolved, Value: raw(`{"data":"ZA=="}`)},
		protocol.KindPromiseRegisterCallback: &protocol.PromiseRegisterCallback{Awaited: "p", Awaiter: "q"},
		protocol.KindPromiseRegisterListener: &protocol.PromiseRegisterListener{Awaited: "p", Address: "poll://uni@g/w"},
		protocol.KindPromiseSearch:           &protocol.PromiseSearch{State: protocol.Pending, Tags: ab, Limit: 7, Cursor: "c"},
		protocol.KindTaskGet:                 &protocol.TaskGet{ID: "t"},
		protocol.KindTaskCreate: &protocol.TaskCreate{PID: "w", TTL: 5, Action: protocol.PromiseCreate{
			ID: "t", TimeoutAt: 100, Param: raw(`{"data":""}`), Tags: target}},
		protocol.KindTaskAcquire: &protocol.TaskAcquire{ID: "t", Version: 3, PID: "w", TTL: 5},
		protocol.KindTaskFence:   &protocol.TaskFence{ID: "t", Version: 3, Create: &protocol.PromiseCreate{ID: "t.1", TimeoutAt: 100}},
		protocol.KindTaskHeartbeat: &protocol.TaskHeartbeat{PID: "w", Tasks: []protocol.TaskRef{
			{ID: "t", Version: 1}, {ID: "u", Version: 2}}},
		protocol.KindTaskSuspend: &protocol.TaskSuspend{ID: "t", Version: 3, Awaited: []string{"p"}},
		protocol.KindTaskFulfill: &protocol.TaskFulfill{ID: "t", Version: 3, Action: protocol.PromiseSettle{
			ID: "t", State: protocol.Rejected, Value: raw(`{"data":"eA=="}`)}},
		protocol.KindTaskRelease:  &protocol.TaskRelease{ID: "t", Version: 3},
		protocol.KindTaskHalt:     &protocol.TaskHalt{ID: "t"},
		protocol.KindTaskContinue: &protocol.TaskContinue{ID: "t"},
		protocol.KindTaskSearch:   &protocol.TaskSearch{State: protocol.TaskAcquired, Limit: 7, Cursor: "c"},
		protocol.KindScheduleGet:  &protocol.ScheduleGet{ID: "s"},
		protocol.KindScheduleCreate: &protocol.ScheduleCreate{ID: "s", Cron: "* * * * *", PromiseID: "s.{{.timestamp}}",
			PromiseTimeout: 60000, PromiseParam: raw(`{"data":"ZA=="}`), PromiseTags: target},
		protocol.KindScheduleDelete: &protocol.ScheduleDelete{ID: "s"},
		protocol.KindScheduleSearch: &protocol.ScheduleSearch{Tags: ab, Limit: 7, Cursor: "c"},
		protocol.KindDebugStart:     &protocol.DebugStart{},
		protocol.KindDebugStop:      &protocol.DebugStop{},
		protocol.KindDebugReset:     &protocol.DebugReset{},
		protocol.KindDebugSnap:      &protocol.DebugSnap{},
		protocol.KindDebugTick:      &protocol.DebugTick{Time: 100},
	}
	for kind, data := range valid {
		got, err := decode(kind, data)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if !reflect.DeepEqual(got, want[kind]) {
			t.Errorf("%s: got %+v, want %+v", kind, got, want[kind])
		}
		if got.Kind() != kind || !protocol.Known(string(kind)) {
			t.Errorf("%s: Kind() is %s, Known is %v", kind, got.Kind(), protocol.Known(string(kind)))
		}
	}
	if len(want) != len(valid) {
		t.Fatalf("%d kinds expected, %d tried", len(want), len(valid))
	}
}

// decode runs data through an envelope, as a server does.
func decode(kind protocol.Kind, data string) (protocol.Request, error) {
	env, err := protocol.DecodeEnvelope([]byte(`{"kind":"` + string(kind) + `","head":{"corrId":"c","version":"2026-04-01"},"data":` + data + `}`))
	if err != nil {
		return nil, err
	}
	return protocol.DecodeRequest(env.Kind, env.Data)
}

// rule is what a member must be; mutations derive from it.
type rule struct {
	path     string
	typ      string // id, pid, version, ttl, instant, limit, state, payload, tags, address, text, array, object, any
	presence string // required, optional, nullable
}

var rules = map[protocol.Kind][]rule{
	protocol.KindPromiseGet:              {{"id", "id", "required"}},
	protocol.KindPromiseCreate:           {{"id", "id", "required"}, {"timeoutAt", "instant", "required"}, {"param", "payload", "optional"}, {"tags", "tags", "optional"}},
	protocol.KindPromiseSettle:           {{"id", "id", "required"}, {"state", "state", "required"}, {"value", "payload", "optional"}},
	protocol.KindPromiseRegisterCallback: {{"awaited", "id", "required"}, {"awaiter", "id", "required"}},
	protocol.KindPromiseRegisterListener: {{"awaited", "id", "required"}, {"address", "address", "required"}},
	protocol.KindPromiseSearch:           {{"state", "state", "nullable"}, {"tags", "tags", "nullable"}, {"limit", "limit", "nullable"}, {"cursor", "text", "nullable"}},
	protocol.KindTaskGet:                 {{"id", "id", "required"}},
	protocol.KindTaskCreate: {{"pid", "pid", "required"}, {"ttl", "ttl", "required"}, {"action", "object", "required"},
		{"action.kind", "text", "required"}, {"action.head", "any", "required"}, {"action.data", "object", "required"},
		{"action.data.id", "id", "required"}, {"action.data.timeoutAt", "instant", "required"}, {"action.data.param", "payload", "optional"}},
	protocol.KindTaskAcquire: {{"id", "id", "required"}, {"version", "version", "required"}, {"pid", "pid", "required"}, {"ttl", "ttl", "required"}},
	protocol.KindTaskFence: {{"id", "id", "required"}, {"version", "version", "required"}, {"action", "object", "required"},
		{"action.kind", "text", "required"}, {"action.head", "any", "optional"}, {"action.data", "object", "required"},
		{"action.data.id", "id", "required"}, {"action.data.timeoutAt", "instant", "required"}, {"action.data.param", "payload", "optional"}, {"action.data.tags", "tags", "optional"}},
	protocol.KindTaskHeartbeat: {{"pid", "pid", "required"}, {"tasks", "array", "required"}, {"tasks.1", "object", "-"},
		{"tasks.1.id", "id", "required"}, {"tasks.1.version", "version", "required"}},
	protocol.KindTaskSuspend: {{"id", "id", "required"}, {"version", "version", "required"}, {"actions", "array", "required"},
		{"actions.0", "object", "-"}, {"actions.0.kind", "text", "required"}, {"actions.0.head", "any", "required"}, {"actions.0.data", "object", "required"},
		{"actions.0.data.awaited", "id", "required"}, {"actions.0.data.awaiter", "id", "required"}},
	protocol.KindTaskFulfill: {{"id", "id", "required"}, {"version", "version", "required"}, {"action", "object", "required"},
		{"action.kind", "text", "required"}, {"action.head", "any", "required"}, {"action.data", "object", "required"},
		{"action.data.id", "id", "required"}, {"action.data.state", "state", "required"}, {"action.data.value", "payload", "optional"}},
	protocol.KindTaskRelease:  {{"id", "id", "required"}, {"version", "version", "required"}},
	protocol.KindTaskHalt:     {{"id", "id", "required"}},
	protocol.KindTaskContinue: {{"id", "id", "required"}},
	protocol.KindTaskSearch:   {{"state", "state", "nullable"}, {"limit", "limit", "nullable"}, {"cursor", "text", "nullable"}},
	protocol.KindScheduleGet:  {{"id", "id", "required"}},
	protocol.KindScheduleCreate: {{"id", "id", "required"}, {"cron", "cron", "required"}, {"promiseId", "id", "required"},
		{"promiseTimeout", "instant", "required"}, {"promiseParam", "payload", "optional"}, {"promiseTags", "tags", "optional"}},
	protocol.KindScheduleDelete: {{"id", "id", "required"}},
	protocol.KindScheduleSearch: {{"tags", "tags", "nullable"}, {"limit", "limit", "nullable"}, {"cursor", "text", "nullable"}},
	protocol.KindDebugTick:      {{"time", "instant", "required"}},
}

// faults lists, for a type, texts that a member of that type must not be, with a part of the message.
func faults(typ string) map[string]string {
	f := map[string]string{}
	types := map[string]string{"true": "boolean", "7": "number", `"x"`: "string", "[]": "array", "{}": "object"}
	except := func(own string) {
		for text, name := range types {
			if text != own {
				f[text] = name
			}
		}
	}
	number := func(least int64) {
		except("7")
		for _, text := range []string{"1.0", "1e3", "1.5", "9223372036854775808", "-9223372036854775809", "1e400", strings.Repeat("9", 400)} {
			f[text] = "must be an integer"
		}
		f[strconv.FormatInt(least-1, 10)] = fmt.Sprintf("must be at least %d", least)
		f["-9223372036854775808"] = "must be at least"
	}
	name := func(limit int) {
		except(`"x"`)
		f[`""`] = "must not be empty"
		f[`"`+strings.Repeat("x", limit+1)+`"`] = fmt.Sprintf("is %d bytes long, the limit is %d", limit+1, limit)
		f[`"`+strings.Repeat("é", limit/2+1)+`"`] = "bytes long"
		f[`"a\u0000b"`] = "NUL"
		f[`"\ud800"`] = "surrogate"
		f[`"x\udc00y"`] = "surrogate"
	}
	switch typ {
	case "id":
		name(protocol.MaxIDBytes)
	case "pid":
		name(protocol.MaxPIDBytes)
	case "cron":
		name(protocol.MaxCronBytes)
		f[`"* * *"`] = "Invalid cron expression: it has 3 fields"
		f[`"61 * * * *"`] = "minute"
	case "version", "instant":
		number(0)
	case "ttl":
		number(1)
	case "limit":
		number(1)
		f["1001"] = "must be at most 1000"
	case "state":
		except(`"x"`)
		f[`"nope"`], f[`"RESOLVED"`], f[`""`] = "must be one of", "must be one of", "must be one of"
	case "payload":
		except("{}")
		f[`{"data":7}`], f[`{"data":{}}`] = "data must be a string", "data must be a string"
		f[`{"headers":[]}`], f[`{"headers":{"a":1}}`] = "headers must be an object of strings", "headers must be an object of strings"
		f[`{"headers":{"a":null}}`] = "headers must be an object of strings"
	case "tags":
		except("{}")
		f[`{"a":1}`], f[`{"a":null}`], f[`{"a":{}}`] = "must be an object of strings", "must be an object of strings", "must be an object of strings"
		f[`{"a\u0000":"b"}`], f[`{"a":"\u0000"}`] = "NUL", "NUL"
		f[`{"a":"\ud83d"}`], f[`{"\ude00":"a"}`] = "surrogate", "surrogate"
		f[`{"a":"`+strings.Repeat("x", protocol.MaxTagsBytes)+`"}`] = "the limit is 32768 (MaxTagsBytes)"
	case "address":
		except(`"x"`)
		f[`"default"`], f[`""`], f[`"poll://g"`], f[`"\ud800"`] = "Invalid listener address", "Invalid listener address", "Invalid listener address", "surrogate"
		f[`"poll://any@`+strings.Repeat("g", protocol.MaxAddressBytes)+`"`] = "MaxAddressBytes"
	case "text":
		except(`"x"`)
		f[`"\ud800"`] = "surrogate"
	case "array":
		except("[]")
	case "object":
		except("{}")
	}
	return f
}

// TestEveryMemberRefusesEveryFault breaks one member of one kind at a time.
func TestEveryMemberRefusesEveryFault(t *testing.T) {
	tried := 0
	for kind, members := range rules {
		for _, m := range members {
			for text, part := range faults(m.typ) {
				tried++
				refuses(t, kind, replace(t, valid[kind], m.path, text), part)
			}
			if m.typ != "any" && m.presence != "nullable" {
				refuses(t, kind, replace(t, valid[kind], m.path, "null"), "null")
			}
			missing := replace(t, valid[kind], m.path, "")
			switch m.presence {
			case "required":
				refuses(t, kind, missing, jsonPath(m.path)+" is missing")
			case "nullable":
				accepts(t, kind, missing)
				accepts(t, kind, replace(t, valid[kind], m.path, "null"))
			case "optional":
				accepts(t, kind, missing)
			}
		}
	}
	if tried < 500 {
		t.Fatalf("only %d faults tried", tried)
	}
}

func refuses(t *testing.T, kind protocol.Kind, data, part string) {
	t.Helper()
	req, err := decode(kind, data)
	var refusal *protocol.RequestError
	if !errors.As(err, &refusal) {
		t.Errorf("%s accepted %.200s", kind, data)
		return
	}
	if req != nil || !strings.Contains(refusal.Message, part) || !strings.HasPrefix(refusal.Message, "Invalid request: ") {
		t.Errorf("%s with %.200s: message %q lacks %q", kind, data, refusal.Message, part)
	}
	if len(refusal.Message) > 2000 {
		t.Errorf("%s: message of %d bytes", kind, len(refusal.Message))
	}
}

func accepts(t *testing.T, kind protocol.Kind, data string) protocol.Request {
	t.Helper()
	req, err := decode(kind, data)
	if err != nil {
		t.Errorf("%s refused %.200s: %v", kind, data, err)
	}
	return req
}

// jsonPath writes a path as messages do.
func jsonPath(path string) string {
	parts := strings.Split(path, ".")
	out := parts[0]
	for _, p := range parts[1:] {
		if _, err := strconv.Atoi(p); err == nil {
			out += "[" + p + "]"
		} else {
			out += "." + p
		}
	}
	return out
}

// replace puts text at path in data, whatever the text is; an empty one removes the member.
func replace(t *testing.T, data, path, text string) string {
	t.Helper()
	const mark = "@mark@"
	var tree any
	if err := json.Unmarshal([]byte(data), &tree); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(path, ".")
	at := tree
	for i, p := range parts {
		last := i == len(parts)-1
		switch node := at.(type) {
		case map[string]any:
			if last && text == "" {
				delete(node, p)
			} else if last {
				node[p] = mark
			}
			at = node[p]
		case []any:
			n, _ := strconv.Atoi(p)
			if last {
				node[n] = mark
			}
			at = node[n]
		}
	}
	out, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(string(out), `"`+mark+`"`, text, 1)
}

func TestRulesAcrossMembers(t *testing.T) {
	create := func(tags string) string { return `{"id":"p","timeoutAt":100,"tags":` + tags + `}` }
	task := func(tags string) string {
		return `{"pid":"w","ttl":1,"action":{"kind":"x","head":null,"data":{"id":"t","timeoutAt":100,"tags":` + tags + `}}}`
	}
	fence := func(kind, data string) string {
		return `{"id":"t","version":0,"action":{"kind":"` + kind + `","data":` + data + `}}`
	}
	suspend := func(awaited, awaiter string) string {
		return `{"id":"t","version":0,"actions":[{"kind":"?","head":[],"data":{"awaited":"` + awaited + `","awaiter":"` + awaiter + `"}}]}`
	}
	schedule := func(tags string) string {
		return `{"id":"s","cron":"@daily","promiseId":"p","promiseTimeout":0,"promiseTags":` + tags + `}`
	}
	const target = `"resonate:target":"poll://any@g"`
	for _, c := range []struct {
		kind protocol.Kind
		data string
		part string // of the message; empty: accepted
	}{
		{protocol.KindPromiseCreate, create(`{"resonate:target":"nope"}`), "Invalid resonate:target address"},
		{protocol.KindPromiseCreate, create(`{"resonate:target":""}`), "Invalid resonate:target address"},
		{protocol.KindPromiseCreate, create(`{"resonate:target":"poll://any@` + strings.Repeat("g", 1024) + `"}`), "MaxAddressBytes"},
		{protocol.KindPromiseCreate, create(`{"resonate:target":"http://h"}`), ""},
		{protocol.KindPromiseCreate, create(`{"resonate:target":"gcps://p/t"}`), ""},
		{protocol.KindPromiseCreate, create(`{"resonate:target":"bash://"}`), ""},
		{protocol.KindPromiseCreate, create(`{"resonate:timer":"true",` + target + `}`), ""},
		{protocol.KindPromiseCreate, create(`{"resonate:delay":"99",` + target + `}`), ""},
		{protocol.KindPromiseCreate, create(`{"resonate:delay":"0",` + target + `}`), ""},
		{protocol.KindPromiseCreate, create(`{"resonate:delay":"100",` + target + `}`), "must be less than timeoutAt"},
		{protocol.KindPromiseCreate, create(`{"resonate:delay":"-1",` + target + `}`), "instant in decimal"},
		{protocol.KindPromiseCreate, create(`{"resonate:delay":"1.5",` + target + `}`), "instant in decimal"},
		{protocol.KindPromiseCreate, create(`{"resonate:delay":"",` + target + `}`), "instant in decimal"},
		{protocol.KindPromiseCreate, create(`{"resonate:delay":"+1",` + target + `}`), "instant in decimal"},
		{protocol.KindPromiseCreate, create(`{"resonate:delay":"9223372036854775808",` + target + `}`), "instant in decimal"},
		{protocol.KindPromiseCreate, create(`{"resonate:delay":"1"}`), "needs the tag resonate:target"},
		// No rule relates an id to its tags, whatever separators they hold.
		{protocol.KindPromiseCreate, create(`{"resonate:origin":"x.y:z","resonate:parent":"q","resonate:branch":".","resonate:prefix":"a.b"}`), ""},
		{protocol.KindTaskCreate, task(`{` + target + `}`), ""},
		{protocol.KindTaskCreate, task(`{}`), "must carry the tag resonate:target"},
		{protocol.KindTaskCreate, task(`{"resonate:target":"kafka://x"}`), "Invalid resonate:target address"},
		{protocol.KindTaskCreate, task(`{"resonate:timer":"true",` + target + `}`), "must not carry the tag resonate:timer"},
		{protocol.KindTaskCreate, task(`{"resonate:timer":"false",` + target + `}`), ""},
		{protocol.KindTaskCreate, task(`{"resonate:delay":"1",` + target + `}`), "must not carry the tag resonate:delay"},
		{protocol.KindTaskFence, fence("promise.create", `{"id":"t","timeoutAt":1}`), "must not be the task's own id"},
		{protocol.KindTaskFence, fence("promise.settle", `{"id":"t","state":"resolved"}`), "must not be the task's own id"},
		{protocol.KindTaskFence, fence("promise.settle", `{"id":"u","state":"resolved"}`), ""},
		{protocol.KindTaskFence, fence("promise.settle", `{"id":"u","state":"pending"}`), "action.data.state must be one of"},
		{protocol.KindTaskFence, fence("promise.get", `{"id":"u"}`), "action.kind must be promise.create or promise.settle"},
		{protocol.KindTaskFence, fence("", `{"id":"u"}`), "action.kind must be promise.create or promise.settle"},
		{protocol.KindTaskFence, fence("promise.create", `{"id":"u"}`), "action.data.timeoutAt is missing"},
		{protocol.KindTaskFence, fence("promise.create", `{"id":"u","timeoutAt":1,"tags":{"resonate:target":"x"}}`), "Invalid resonate:target address"},
		{protocol.KindTaskSuspend, suspend("p", "t"), ""},
		{protocol.KindTaskSuspend, suspend("other:tree", "t"), ""},
		{protocol.KindTaskSuspend, suspend("p", "q"), "actions[0].data.awaiter must be the task's own id"},
		{protocol.KindTaskSuspend, suspend("t", "t"), "actions[0].data.awaited must not be the task's own id"},
		{protocol.KindTaskSuspend, `{"id":"t","version":0,"actions":[]}`, "actions must not be empty"},
		{protocol.KindTaskFulfill, `{"id":"t","version":0,"action":{"kind":"","head":0,"data":{"id":"u","state":"resolved"}}}`, "must be the task's own id"},
		{protocol.KindTaskHeartbeat, `{"pid":"w","tasks":[]}`, ""},
		{protocol.KindTaskHeartbeat, `{"pid":"w","tasks":[{"id":"a.1","version":0},{"id":"b:2","version":0},{"id":"a.1","version":0}]}`, ""},
		{protocol.KindPromiseRegisterCallback, `{"awaited":"p","awaiter":"p"}`, "must be different promises"},
		{protocol.KindPromiseRegisterCallback, `{"awaited":"a.1","awaiter":"b:2"}`, ""},
		{protocol.KindScheduleCreate, schedule(`{}`), ""},
		{protocol.KindScheduleCreate, schedule(`{"resonate:target":"nope"}`), "Invalid resonate:target address"},
		{protocol.KindScheduleCreate, schedule(`{"resonate:delay":"x"}`), "instant in decimal"},
		{protocol.KindScheduleCreate, schedule(`{"resonate:delay":"5"}`), ""},
		{protocol.KindPromiseSettle, `{"id":"p","state":"rejected_timedout"}`, "state must be one of resolved, rejected, rejected_canceled"},
		{protocol.KindPromiseSearch, `{}`, ""},
		{protocol.KindPromiseSearch, `{"state":"rejected_timedout","limit":1000}`, ""},
	} {
		if c.part == "" {
			accepts(t, c.kind, c.data)
		} else {
			refuses(t, c.kind, c.data, c.part)
		}
	}
}

func TestViolationsAreJoinedAndBounded(t *testing.T) {
	_, err := decode(protocol.KindTaskAcquire, `{"id":"","version":-1,"pid":"","ttl":0}`)
	want := "Invalid request: id must not be empty; version must be at least 0, not -1; pid must not be empty; ttl must be at least 1, not 0"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	_, err = decode(protocol.KindTaskHeartbeat, `{"pid":"w","tasks":[`+strings.Repeat(`{"id":""},`, 5000)+`{}]}`)
	if err == nil || len(err.Error()) > 1000 || !strings.Contains(err.Error(), "more") {
		t.Errorf("the message of many violations is %v", err)
	}
}

func TestLimitsOfLists(t *testing.T) {
	suspend := func(n int) string {
		one := `{"kind":"","head":0,"data":{"awaited":"p","awaiter":"t"}}`
		return `{"id":"t","version":0,"actions":[` + strings.Repeat(one+",", n-1) + one + `]}`
	}
	accepts(t, protocol.KindTaskSuspend, suspend(protocol.MaxSuspendActions))
	refuses(t, protocol.KindTaskSuspend, suspend(protocol.MaxSuspendActions+1), "more than 2000 elements, the limit (MaxSuspendActions)")
	heartbeat := func(n int) string {
		one := `{"id":"t","version":0}`
		return `{"pid":"w","tasks":[` + strings.Repeat(one+",", n-1) + one + `]}`
	}
	accepts(t, protocol.KindTaskHeartbeat, heartbeat(protocol.MaxHeartbeatTasks))
	refuses(t, protocol.KindTaskHeartbeat, heartbeat(protocol.MaxHeartbeatTasks+1), "more than 10000 elements, the limit (MaxHeartbeatTasks)")
}

func TestIDsAreOpaque(t *testing.T) {
	for _, id := range []string{"a/b", "a%2Fb", "a b", "a?b#c", "é", "e\u0301", "😀", "..", ".", "a\nb", "r.0.1", "r:0.1", "\u2028", "\x7f", `"`, `\`,
		strings.Repeat("x", protocol.MaxIDBytes), strings.Repeat("😀", protocol.MaxIDBytes/4)} {
		text, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		if got := accepts(t, protocol.KindPromiseGet, `{"id":`+string(text)+`}`); got != nil && got.(*protocol.PromiseGet).ID != id {
			t.Errorf("id %q came out as %q", id, got.(*protocol.PromiseGet).ID)
		}
	}
	// The same id, escaped in another way; and a name that is escaped.
	got := accepts(t, protocol.KindPromiseGet, `{"\u0069d":"\ud83d\ude00\u0041"}`)
	if got.(*protocol.PromiseGet).ID != "😀A" {
		t.Errorf("escapes came out as %q", got.(*protocol.PromiseGet).ID)
	}
}

func TestIntegersOfEverySize(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "-0": 0, "9007199254740991": 1<<53 - 1, "1125899906842624": 1 << 50, "9223372036854775807": 1<<63 - 1} {
		got := accepts(t, protocol.KindPromiseCreate, `{"id":"p","timeoutAt":`+text+`}`)
		if got != nil && got.(*protocol.PromiseCreate).TimeoutAt != want {
			t.Errorf("%s came out as %d", text, got.(*protocol.PromiseCreate).TimeoutAt)
		}
	}
}

// TestPayloadsAreKeptAsWritten: scenario I3.
func TestPayloadsAreKeptAsWritten(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                           ``,
		`{"data":null,"headers":null}`: ``,
		`{"other":1}`:                  ``,
		`{"data":""}`:                  `{"data":""}`,
		`{"headers":{}}`:               `{"headers":{}}`,
		`{"data":"\u0000"}`:            `{"data":"\u0000"}`,
		`{"data":"\ud800","x":[1,{}]}`: `{"data":"\ud800"}`,
		`{"data":"\uDC00 \u00e9 é 😀"}`: `{"data":"\uDC00 \u00e9 é 😀"}`,
		`{"data":"=not base64="}`:      `{"data":"=not base64="}`,
		`{"data":"\/\"\\"}`:            `{"data":"\/\"\\"}`,
		`{"d\u0061ta":"x"}`:            `{"data":"x"}`,
		"{ \"data\" :\n\t\" a  b \" }": `{"data":" a  b "}`,
		`{"data":"1","headers":{}}`:    `{"headers":{},"data":"1"}`,
		"{\"headers\" : { \"a\" :\r\n\"1\" , \"\\ud800\" : \"\\u0000\" } }": `{"headers":{"a":"1","\ud800":"\u0000"}}`,
	} {
		got := accepts(t, protocol.KindPromiseCreate, `{"id":"p","timeoutAt":1,"param":`+in+`}`)
		if got == nil {
			continue
		}
		param := got.(*protocol.PromiseCreate).Param
		if string(param) != want || (want == "") != (param == nil) {
			t.Errorf("%s was kept as %s, want %s", in, param, want)
		}
	}
}

func TestTagsAreSorted(t *testing.T) {
	got := accepts(t, protocol.KindPromiseCreate, `{"id":"p","timeoutAt":1,"tags":{"z":"1","a":"2","resonate:origin":"o","é":"","":"x","B":"3"}}`)
	want := protocol.Tags{{Name: "", Value: "x"}, {Name: "B", Value: "3"}, {Name: "a", Value: "2"}, {Name: "resonate:origin", Value: "o"}, {Name: "z", Value: "1"}, {Name: "é", Value: ""}}
	if tags := got.(*protocol.PromiseCreate).Tags; !reflect.DeepEqual(tags, want) {
		t.Errorf("tags %v, want %v", tags, want)
	}
}

func TestReasons(t *testing.T) {
	for _, c := range []struct {
		kind, data string
		want       protocol.Reason
	}{
		{"promise.nope", `{}`, protocol.UnknownKind},
		{"PROMISE.GET", `{}`, protocol.UnknownKind},
		{"promise.get", `{}`, protocol.Malformed},
		{"promise.get", `{"id":1}`, protocol.Malformed},
		{"promise.get", `{"id":""}`, protocol.Invalid},
	} {
		_, err := protocol.DecodeRequest(c.kind, protocol.Data(c.data))
		var refusal *protocol.RequestError
		if !errors.As(err, &refusal) || refusal.Reason != c.want {
			t.Errorf("%s %s: %v, want reason %d", c.kind, c.data, err, c.want)
		}
	}
	_, err := protocol.DecodeRequest(strings.Repeat("k", 5000), protocol.Data(`{}`))
	if err == nil || len(err.Error()) > 200 || !strings.HasPrefix(err.Error(), "Unknown operation: kkk") {
		t.Errorf("unknown kind: %v", err)
	}
}

// TestDecodedRequestsShareNothing: a server reuses the body's memory.
func TestDecodedRequestsShareNothing(t *testing.T) {
	for kind, data := range valid {
		body := []byte(data)
		before, err := protocol.DecodeRequest(string(kind), protocol.Data(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := range body {
			body[i] = '#'
		}
		after, err := protocol.DecodeRequest(string(kind), protocol.Data(data))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%s: the request changed with the body: %+v", kind, before)
		}
	}
}
