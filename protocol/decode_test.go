package protocol_test

import (
	"encoding/json"
	"errors"
	"reflect"
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
	protocol.KindTaskExplain:  `{"id":"t"}`,
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
		protocol.KindTaskExplain:  &protocol.TaskExplain{ID: "t"},
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

// Data for the rules across members.

func createWith(tags string) string { return `{"id":"p","timeoutAt":100,"tags":` + tags + `}` }

func taskWith(tags string) string {
	return `{"pid":"w","ttl":1,"action":{"kind":"x","head":null,"data":{"id":"t","timeoutAt":100,"tags":` + tags + `}}}`
}

func fenceWith(kind, data string) string {
	return `{"id":"t","version":0,"action":{"kind":"` + kind + `","data":` + data + `}}`
}

func suspendWith(awaited, awaiter string) string {
	return `{"id":"t","version":0,"actions":[{"kind":"?","head":[],"data":{"awaited":"` + awaited + `","awaiter":"` + awaiter + `"}}]}`
}

func scheduleWith(tags string) string {
	return `{"id":"s","cron":"@daily","promiseId":"p","promiseTimeout":0,"promiseTags":` + tags + `}`
}

const target = `"resonate:target":"poll://any@g"`

// acrossMembers lists data with a part of the message that refuses it; an empty one: it is accepted.
var acrossMembers = []struct {
	kind protocol.Kind
	data string
	part string
}{
	{protocol.KindPromiseCreate, createWith(`{"resonate:target":"nope"}`), "Invalid resonate:target address"},
	{protocol.KindPromiseCreate, createWith(`{"resonate:target":""}`), "Invalid resonate:target address"},
	{protocol.KindPromiseCreate, createWith(`{"resonate:target":"poll://any@` + strings.Repeat("g", 1024) + `"}`), "MaxAddressBytes"},
	{protocol.KindPromiseCreate, createWith(`{"resonate:target":"http://h"}`), ""},
	{protocol.KindPromiseCreate, createWith(`{"resonate:target":"gcps://p/t"}`), ""},
	{protocol.KindPromiseCreate, createWith(`{"resonate:target":"bash://"}`), ""},
	{protocol.KindPromiseCreate, createWith(`{"resonate:timer":"true",` + target + `}`), ""},
	{protocol.KindPromiseCreate, createWith(`{"resonate:delay":"99",` + target + `}`), ""},
	{protocol.KindPromiseCreate, createWith(`{"resonate:delay":"0",` + target + `}`), ""},
	{protocol.KindPromiseCreate, createWith(`{"resonate:delay":"100",` + target + `}`), "must be less than timeoutAt"},
	{protocol.KindPromiseCreate, createWith(`{"resonate:delay":"-1",` + target + `}`), "instant in decimal"},
	{protocol.KindPromiseCreate, createWith(`{"resonate:delay":"1.5",` + target + `}`), "instant in decimal"},
	{protocol.KindPromiseCreate, createWith(`{"resonate:delay":"",` + target + `}`), "instant in decimal"},
	{protocol.KindPromiseCreate, createWith(`{"resonate:delay":"+1",` + target + `}`), "instant in decimal"},
	{protocol.KindPromiseCreate, createWith(`{"resonate:delay":"9223372036854775808",` + target + `}`), "instant in decimal"},
	{protocol.KindPromiseCreate, createWith(`{"resonate:delay":"1"}`), "needs the tag resonate:target"},
	// No rule relates an id to its tags, whatever separators they hold.
	{protocol.KindPromiseCreate, createWith(`{"resonate:origin":"x.y:z","resonate:parent":"q","resonate:branch":".","resonate:prefix":"a.b"}`), ""},
	{protocol.KindTaskCreate, taskWith(`{` + target + `}`), ""},
	{protocol.KindTaskCreate, taskWith(`{}`), "must carry the tag resonate:target"},
	{protocol.KindTaskCreate, taskWith(`{"resonate:target":"kafka://x"}`), "Invalid resonate:target address"},
	{protocol.KindTaskCreate, taskWith(`{"resonate:timer":"true",` + target + `}`), "must not carry the tag resonate:timer"},
	{protocol.KindTaskCreate, taskWith(`{"resonate:timer":"false",` + target + `}`), ""},
	{protocol.KindTaskCreate, taskWith(`{"resonate:delay":"1",` + target + `}`), "must not carry the tag resonate:delay"},
	{protocol.KindTaskFence, fenceWith("promise.create", `{"id":"t","timeoutAt":1}`), "must not be the task's own id"},
	{protocol.KindTaskFence, fenceWith("promise.settle", `{"id":"t","state":"resolved"}`), "must not be the task's own id"},
	{protocol.KindTaskFence, fenceWith("promise.settle", `{"id":"u","state":"resolved"}`), ""},
	{protocol.KindTaskFence, fenceWith("promise.settle", `{"id":"u","state":"pending"}`), "action.data.state must be one of"},
	{protocol.KindTaskFence, fenceWith("promise.get", `{"id":"u"}`), "action.kind must be promise.create or promise.settle"},
	{protocol.KindTaskFence, fenceWith("", `{"id":"u"}`), "action.kind must be promise.create or promise.settle"},
	{protocol.KindTaskFence, fenceWith("promise.create", `{"id":"u"}`), "action.data.timeoutAt is missing"},
	{protocol.KindTaskFence, fenceWith("promise.create", `{"id":"u","timeoutAt":1,"tags":{"resonate:target":"x"}}`), "Invalid resonate:target address"},
	{protocol.KindTaskSuspend, suspendWith("p", "t"), ""},
	{protocol.KindTaskSuspend, suspendWith("other:tree", "t"), ""},
	{protocol.KindTaskSuspend, suspendWith("p", "q"), "actions[0].data.awaiter must be the task's own id"},
	{protocol.KindTaskSuspend, suspendWith("t", "t"), "actions[0].data.awaited must not be the task's own id"},
	{protocol.KindTaskSuspend, `{"id":"t","version":0,"actions":[]}`, "actions must not be empty"},
	{protocol.KindTaskFulfill, `{"id":"t","version":0,"action":{"kind":"","head":0,"data":{"id":"u","state":"resolved"}}}`, "must be the task's own id"},
	{protocol.KindTaskHeartbeat, `{"pid":"w","tasks":[]}`, ""},
	{protocol.KindTaskHeartbeat, `{"pid":"w","tasks":[{"id":"a.1","version":0},{"id":"b:2","version":0},{"id":"a.1","version":0}]}`, ""},
	{protocol.KindPromiseRegisterCallback, `{"awaited":"p","awaiter":"p"}`, "must be different promises"},
	{protocol.KindPromiseRegisterCallback, `{"awaited":"a.1","awaiter":"b:2"}`, ""},
	{protocol.KindScheduleCreate, scheduleWith(`{}`), ""},
	{protocol.KindScheduleCreate, scheduleWith(`{"resonate:target":"nope"}`), "Invalid resonate:target address"},
	{protocol.KindScheduleCreate, scheduleWith(`{"resonate:delay":"x"}`), "instant in decimal"},
	{protocol.KindScheduleCreate, scheduleWith(`{"resonate:delay":"5"}`), ""},
	{protocol.KindPromiseSettle, `{"id":"p","state":"rejected_timedout"}`, "state must be one of resolved, rejected, rejected_canceled"},
	{protocol.KindPromiseSearch, `{}`, ""},
	{protocol.KindPromiseSearch, `{"state":"rejected_timedout","limit":1000}`, ""},
}

func TestRulesAcrossMembers(t *testing.T) {
	for _, c := range acrossMembers {
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
