package protocol_test

import (
	"encoding/json"
	"strings"
	"testing"

	"abide/protocol"
)

var (
	pendingPromise = protocol.Promise{ID: "p", State: protocol.Pending, TimeoutAt: 9223372036854775807, CreatedAt: 1, SettledAt: 99}
	settledPromise = protocol.Promise{ID: "é\"\n", State: protocol.RejectedCanceled, Param: raw(`{"headers":{},"data":"\ud800"}`),
		Value: raw(`{"data":""}`), Tags: protocol.Tags{{Name: "a", Value: "😀"}, {Name: "b", Value: "\\"}}, TimeoutAt: 3, CreatedAt: 1, SettledAt: 2}
	pendingTask  = protocol.Task{ID: "t", State: protocol.TaskPending, Version: 2, Resumes: 1, TTL: 5, PID: "left over"}
	acquiredTask = protocol.Task{ID: "t", State: protocol.TaskAcquired, Version: 3, TTL: 9223372036854775807, PID: "w"}
	newSchedule  = protocol.Schedule{ID: "s", Cron: "@daily", PromiseID: "s.{{.timestamp}}", PromiseTimeout: 5, CreatedAt: 1, NextRunAt: 2, LastRunAt: 7}
	ranSchedule  = protocol.Schedule{ID: "s", Cron: "* * * * *", PromiseID: "x", PromiseParam: raw(`{"data":"x"}`),
		PromiseTags: protocol.Tags{{Name: "a", Value: "b"}}, CreatedAt: 1, NextRunAt: 3, LastRunAt: 2, HasRun: true}
)

const (
	pendingPromiseJSON = `{"id":"p","state":"pending","param":{},"value":{},"tags":{},"timeoutAt":9223372036854775807,"createdAt":1}`
	settledPromiseJSON = `{"id":"é\"\n","state":"rejected_canceled","param":{"headers":{},"data":"\ud800"},"value":{"data":""},` +
		`"tags":{"a":"😀","b":"\\"},"timeoutAt":3,"createdAt":1,"settledAt":2}`
	pendingTaskJSON  = `{"id":"t","state":"pending","version":2,"resumes":1}`
	acquiredTaskJSON = `{"id":"t","state":"acquired","version":3,"resumes":0,"ttl":9223372036854775807,"pid":"w"}`
	newScheduleJSON  = `{"id":"s","cron":"@daily","promiseId":"s.{{.timestamp}}","promiseTimeout":5,"promiseParam":{},"promiseTags":{},"createdAt":1,"nextRunAt":2}`
	ranScheduleJSON  = `{"id":"s","cron":"* * * * *","promiseId":"x","promiseTimeout":0,"promiseParam":{"data":"x"},"promiseTags":{"a":"b"},"createdAt":1,"nextRunAt":3,"lastRunAt":2}`
)

// bodies lists every body with its JSON.
var bodies = []struct {
	body protocol.Body
	want string
}{
	{protocol.EmptyBody{}, `{}`},
	{protocol.TickBody{}, `[]`},
	{protocol.PromiseBody{Promise: pendingPromise}, `{"promise":` + pendingPromiseJSON + `}`},
	{protocol.PromiseBody{Promise: settledPromise}, `{"promise":` + settledPromiseJSON + `}`},
	{protocol.TaskBody{Task: pendingTask}, `{"task":` + pendingTaskJSON + `}`},
	{protocol.TaskBody{Task: acquiredTask}, `{"task":` + acquiredTaskJSON + `}`},
	{protocol.ClaimBody{Task: acquiredTask, Promise: pendingPromise},
		`{"task":` + acquiredTaskJSON + `,"promise":` + pendingPromiseJSON + `,"preload":[]}`},
	{protocol.ClaimBody{Task: pendingTask, Promise: pendingPromise, Preload: []protocol.Promise{settledPromise, pendingPromise}},
		`{"task":` + pendingTaskJSON + `,"promise":` + pendingPromiseJSON + `,"preload":[` + settledPromiseJSON + `,` + pendingPromiseJSON + `]}`},
	{protocol.PreloadBody{}, `{"preload":[]}`},
	{protocol.PreloadBody{Preload: []protocol.Promise{settledPromise}}, `{"preload":[` + settledPromiseJSON + `]}`},
	{protocol.FenceBody{ActionKind: protocol.KindPromiseCreate, CorrID: "c", Action: protocol.OK(protocol.PromiseBody{Promise: pendingPromise})},
		`{"action":{"kind":"promise.create","head":{"corrId":"c","status":200,"version":"2026-04-01"},"data":{"promise":` + pendingPromiseJSON + `}},"preload":[]}`},
	{protocol.FenceBody{ActionKind: protocol.KindPromiseSettle, CorrID: "c", Action: protocol.Fail(404, "Promise not found")},
		`{"action":{"kind":"promise.settle","head":{"corrId":"c","status":404,"version":"2026-04-01"},"data":"Promise not found"},"preload":[]}`},
	{protocol.HeartbeatBody{}, `{}`},
	{protocol.HeartbeatBody{Lost: []string{"a", "\""}}, `{"lost":["a","\""]}`},
	{protocol.PromisesBody{}, `{"promises":[]}`},
	{protocol.PromisesBody{Promises: []protocol.Promise{pendingPromise}, Cursor: "c"}, `{"promises":[` + pendingPromiseJSON + `],"cursor":"c"}`},
	{protocol.ExplainBody{Task: pendingTask, Promise: protocol.Pending, Target: "poll://any@g", TimeoutAt: 9, Now: 4, Queued: true, HasWorkers: true},
		`{"task":` + pendingTaskJSON + `,"promise":"pending","target":"poll://any@g","timeoutAt":9,"now":4,"queued":true,"awaiting":[],"partial":false,"workers":0}`},
	{protocol.ExplainBody{Task: acquiredTask, Promise: protocol.Pending, Target: "x:y", TimeoutAt: 9, Now: 4, RetryAt: 5, LeaseAt: 6, ClaimedAt: 7, Hasty: 8, Awaiting: []string{"a", "b"}, Partial: true},
		`{"task":` + acquiredTaskJSON + `,"promise":"pending","target":"x:y","timeoutAt":9,"now":4,"queued":false,"retryAt":5,"leaseAt":6,"claimedAt":7,"hasty":8,"awaiting":["a","b"],"partial":true}`},
	{protocol.TasksBody{}, `{"tasks":[]}`},
	{protocol.TasksBody{Tasks: []protocol.Task{pendingTask, acquiredTask}, Cursor: "c"}, `{"tasks":[` + pendingTaskJSON + `,` + acquiredTaskJSON + `],"cursor":"c"}`},
	{protocol.ScheduleBody{Schedule: newSchedule}, `{"schedule":` + newScheduleJSON + `}`},
	{protocol.ScheduleBody{Schedule: ranSchedule}, `{"schedule":` + ranScheduleJSON + `}`},
	{protocol.SchedulesBody{}, `{"schedules":[]}`},
	{protocol.SchedulesBody{Schedules: []protocol.Schedule{newSchedule}, Cursor: "c"}, `{"schedules":[` + newScheduleJSON + `],"cursor":"c"}`},
	{protocol.SnapBody{}, `{"promises":[],"promiseTimeouts":[],"callbacks":[],"listeners":[],"tasks":[],"taskTimeouts":[],"messages":[]}`},
	{protocol.SnapBody{
		Promises:        []protocol.Promise{pendingPromise},
		PromiseTimeouts: []protocol.SnapTimeout{{ID: "p", Timeout: 5}},
		Callbacks:       []protocol.SnapCallback{{Awaiter: "t", Awaited: "p"}},
		Listeners:       []protocol.SnapListener{{ID: "p", Address: "poll://uni@g/w"}},
		Tasks:           []protocol.Task{acquiredTask},
		TaskTimeouts:    []protocol.SnapTaskTimeout{{ID: "t", Type: 1, Timeout: 6}, {ID: "u", Timeout: 7}},
		Messages: []protocol.SnapMessage{
			{Address: "poll://any@g", Execute: &protocol.TaskRef{ID: "t", Version: 2}},
			{Address: "poll://uni@g/w", Unblock: &settledPromise},
		},
	}, `{"promises":[` + pendingPromiseJSON + `],"promiseTimeouts":[{"id":"p","timeout":5}],"callbacks":[{"awaiter":"t","awaited":"p"}],` +
		`"listeners":[{"id":"p","address":"poll://uni@g/w"}],"tasks":[` + acquiredTaskJSON + `],` +
		`"taskTimeouts":[{"id":"t","type":1,"timeout":6},{"id":"u","type":0,"timeout":7}],"messages":[` +
		`{"address":"poll://any@g","message":{"kind":"execute","head":{},"data":{"task":{"id":"t","version":2}}}},` +
		`{"address":"poll://uni@g/w","message":{"kind":"unblock","head":{},"data":{"promise":` + settledPromiseJSON + `}}}]}`},
}

func TestBodies(t *testing.T) {
	for _, c := range bodies {
		got := string(c.body.AppendJSON([]byte("before")))
		if got != "before"+c.want {
			t.Errorf("%T\n got %s\nwant %s", c.body, got, c.want)
		}
		if !json.Valid([]byte(c.want)) {
			t.Errorf("%T: not JSON", c.body)
		}
	}
}

func TestAppendResponse(t *testing.T) {
	fence := protocol.FenceBody{ActionKind: protocol.KindPromiseSettle, Action: protocol.Fail(404, "no")}
	for _, c := range []struct {
		reply protocol.Reply
		want  string
	}{
		{protocol.OK(protocol.EmptyBody{}), `{"kind":"k\"","head":{"corrId":"é","status":200,"version":"2026-04-01"},"data":{}}`},
		{protocol.OK(nil), `{"kind":"k\"","head":{"corrId":"é","status":200,"version":"2026-04-01"},"data":{}}`},
		{protocol.OK(protocol.TickBody{}), `{"kind":"k\"","head":{"corrId":"é","status":200,"version":"2026-04-01"},"data":[]}`},
		{protocol.Reply{Status: 300, Body: protocol.PreloadBody{}}, `{"kind":"k\"","head":{"corrId":"é","status":300,"version":"2026-04-01"},"data":{"preload":[]}}`},
		{protocol.Fail(404, "Promise not found"), `{"kind":"k\"","head":{"corrId":"é","status":404,"version":"2026-04-01"},"data":"Promise not found"}`},
		{protocol.Fail(500, "bad \xff"), `{"kind":"k\"","head":{"corrId":"é","status":500,"version":"2026-04-01"},"data":"bad ` + "\ufffd" + `"}`},
		{protocol.OK(fence), `{"kind":"k\"","head":{"corrId":"é","status":200,"version":"2026-04-01"},"data":{"action":` +
			`{"kind":"promise.settle","head":{"corrId":"é","status":404,"version":"2026-04-01"},"data":"no"},"preload":[]}}`},
	} {
		if got := string(protocol.AppendResponse(nil, `k"`, "é", c.reply)); got != c.want {
			t.Errorf(" got %s\nwant %s", got, c.want)
		}
	}
}

func TestMessagesAreOneLineOfASCII(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{string(protocol.AppendExecute([]byte("é"), "http://h:8001/w/x", protocol.TaskRef{ID: "é😀\u2028\n", Version: 3})),
			"é" + `{"kind":"execute","head":{"serverUrl":"http://h:8001/w/x"},"data":{"task":{"id":"\u00e9\ud83d\ude00\u2028\n","version":3}}}`},
		{string(protocol.AppendExecute(nil, "", protocol.TaskRef{ID: "t"})), `{"kind":"execute","head":{},"data":{"task":{"id":"t","version":0}}}`},
		{string(protocol.AppendUnblock(nil, settledPromise)), `{"kind":"unblock","head":{},"data":{"promise":{"id":"\u00e9\"\n","state":"rejected_canceled",` +
			`"param":{"headers":{},"data":"\ud800"},"value":{"data":""},"tags":{"a":"\ud83d\ude00","b":"\\"},"timeoutAt":3,"createdAt":1,"settledAt":2}}}`},
	} {
		if c.got != c.want {
			t.Errorf(" got %s\nwant %s", c.got, c.want)
		}
	}
	big := protocol.AppendUnblock(nil, protocol.Promise{ID: "p", State: protocol.Resolved, Value: protocol.MakeValue(nil, strings.Repeat("ü\n😀", 10_000))})
	for _, b := range big {
		if b < 0x20 || b > 0x7e {
			t.Fatalf("byte %#x in a message", b)
		}
	}
	m, err := protocol.DecodeMessage(big)
	if data, ok := m.Promise.Value.Data(); err != nil || !ok || data != strings.Repeat("ü\n😀", 10_000) {
		t.Errorf("an escaped payload did not come back: %v", err)
	}
}

func TestMakeValue(t *testing.T) {
	for _, c := range []struct {
		headers map[string]string
		data    string
		want    string
	}{
		{nil, "", `{"data":""}`},
		{map[string]string{}, "x", `{"headers":{},"data":"x"}`},
		{map[string]string{"b": "1", "a": "\x00"}, "é", `{"headers":{"a":"\u0000","b":"1"},"data":"é"}`},
	} {
		v := protocol.MakeValue(c.headers, c.data)
		if string(v) != c.want {
			t.Errorf("got %s, want %s", v, c.want)
		}
		data, ok := v.Data()
		headers, okHeaders := v.Headers()
		if !ok || !okHeaders || data != c.data || len(headers) != len(c.headers) || headers["b"] != c.headers["b"] {
			t.Errorf("%s came back as %q %v", v, data, headers)
		}
	}
	if _, ok := protocol.Value(nil).Data(); ok {
		t.Error("an empty payload has data")
	}
	if _, ok := raw(`{"data":"\ud800"}`).Data(); ok {
		t.Error("half a surrogate pair passed for text")
	}
	if _, ok := raw(`{"headers":{"\ud800":""}}`).Headers(); ok {
		t.Error("half a surrogate pair passed for a header")
	}
}
