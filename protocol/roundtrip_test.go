package protocol_test

import (
	"reflect"
	"testing"

	"abide/protocol"

	"pgregory.net/rapid"
)

// TestEveryBodyComesBack: the client reads what the server writes.
func TestEveryBodyComesBack(t *testing.T) {
	for _, c := range bodies {
		resp, err := protocol.DecodeResponse(protocol.AppendResponse(nil, "k", "c", protocol.OK(c.body)))
		if err != nil || resp.Kind != "k" || resp.CorrID != "c" || resp.Status != 200 || resp.Version != protocol.Version {
			t.Fatalf("%T: %+v, %v", c.body, resp, err)
		}
		again, err := decodeBody(c.body, resp.Data)
		if err != nil {
			t.Errorf("%T: %v", c.body, err)
			continue
		}
		if got := string(again.AppendJSON(nil)); got != c.want {
			t.Errorf("%T came back as\n     %s\nwant %s", c.body, got, c.want)
		}
	}
	resp, err := protocol.DecodeResponse(protocol.AppendResponse(nil, "k", "c", protocol.Fail(404, "not \"found\"")))
	if err != nil || resp.Status != 404 || resp.Message() != `not "found"` {
		t.Errorf("failure: %+v, %v", resp, err)
	}
}

func decodeBody(like protocol.Body, data protocol.Data) (protocol.Body, error) {
	switch like.(type) {
	case protocol.PromiseBody:
		return protocol.DecodePromiseBody(data)
	case protocol.TaskBody:
		return protocol.DecodeTaskBody(data)
	case protocol.ClaimBody:
		return protocol.DecodeClaimBody(data)
	case protocol.PreloadBody:
		return protocol.DecodePreloadBody(data)
	case protocol.FenceBody:
		f, err := protocol.DecodeFenceBody(data)
		if err != nil {
			return nil, err
		}
		reply := protocol.Reply{Status: f.Action.Status, Message: f.Action.Message()}
		if f.Action.Status == 200 {
			if reply.Body, err = protocol.DecodePromiseBody(f.Action.Data); err != nil {
				return nil, err
			}
		}
		return protocol.FenceBody{ActionKind: protocol.Kind(f.Action.Kind), CorrID: f.Action.CorrID, Action: reply, Preload: f.Preload}, nil
	case protocol.HeartbeatBody:
		return protocol.DecodeHeartbeatBody(data)
	case protocol.PromisesBody:
		return protocol.DecodePromisesBody(data)
	case protocol.TasksBody:
		return protocol.DecodeTasksBody(data)
	case protocol.ExplainBody:
		return protocol.DecodeExplainBody(data)
	case protocol.ScheduleBody:
		return protocol.DecodeScheduleBody(data)
	case protocol.SchedulesBody:
		return protocol.DecodeSchedulesBody(data)
	case protocol.SnapBody:
		return protocol.DecodeSnapBody(data)
	default:
		return like, nil
	}
}

func TestBadAnswersAreErrors(t *testing.T) {
	for _, text := range []string{``, `[]`, `{}`, `{"kind":"k"}`, `{"kind":"k","head":{"corrId":"c"},"data":{}}`,
		`{"kind":"k","head":{"corrId":"c","status":"200"},"data":{}}`, `<html>`} {
		if _, err := protocol.DecodeResponse([]byte(text)); err == nil {
			t.Errorf("answer %s accepted", text)
		}
	}
	for _, text := range []string{`{}`, `{"promise":null}`, `{"promise":{"id":"p"}}`, `{"promise":[]}`} {
		if _, err := protocol.DecodePromiseBody(protocol.Data(text)); err == nil {
			t.Errorf("body %s accepted", text)
		}
	}
	for _, text := range []string{``, `{}`, `{"kind":7}`, `{"kind":"execute"}`, `{"kind":"unblock","data":{"promise":7}}`} {
		if _, err := protocol.DecodeMessage([]byte(text)); err == nil {
			t.Errorf("message %s accepted", text)
		}
	}
	if m, err := protocol.DecodeMessage([]byte(`{"kind":"later"}`)); err != nil || m.Kind != "later" {
		t.Errorf("a message of an unknown kind: %+v, %v", m, err)
	}
}

// Generators of requests that are valid.

func drawID() *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom([]string{"r", "r.0.1", "r:0.1", "a/b", "..", "\n", "😀", `"\`}),
		rapid.StringMatching(`[^\x00]{1,40}`))
}

func drawValue() *rapid.Generator[protocol.Value] {
	return rapid.Custom(func(t *rapid.T) protocol.Value {
		if rapid.Bool().Draw(t, "empty") {
			return nil
		}
		var headers map[string]string
		if rapid.Bool().Draw(t, "headers") {
			headers = rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, "header")
		}
		return protocol.MakeValue(headers, rapid.String().Draw(t, "data"))
	})
}

func drawTags(fixed ...protocol.Tag) *rapid.Generator[protocol.Tags] {
	return rapid.Custom(func(t *rapid.T) protocol.Tags {
		var tags protocol.Tags
		text := rapid.StringMatching(`[^\x00]{0,20}`)
		for i := rapid.IntRange(0, 4).Draw(t, "tags"); i > 0; i-- {
			tags = tags.With("u"+text.Draw(t, "name"), text.Draw(t, "value"))
		}
		for _, tag := range fixed {
			tags = tags.With(tag.Name, tag.Value)
		}
		return tags
	})
}

func drawCreate(t *rapid.T, id string, tags ...protocol.Tag) protocol.PromiseCreate {
	return protocol.PromiseCreate{ID: id, TimeoutAt: rapid.Int64Min(0).Draw(t, "timeoutAt"), Param: drawValue().Draw(t, "param"),
		Tags: drawTags(tags...).Draw(t, "tags")}
}

func drawSettle(t *rapid.T, id string) protocol.PromiseSettle {
	state := rapid.SampledFrom([]protocol.PromiseState{protocol.Resolved, protocol.Rejected, protocol.RejectedCanceled}).Draw(t, "state")
	return protocol.PromiseSettle{ID: id, State: state, Value: drawValue().Draw(t, "value")}
}

func drawRequest(t *rapid.T) protocol.Request {
	id := drawID().Draw(t, "id")
	other := drawID().Filter(func(s string) bool { return s != id }).Draw(t, "other")
	version := rapid.Int64Min(0).Draw(t, "version")
	target := protocol.Tag{Name: protocol.TagTarget, Value: "poll://any@g"}
	create, settle := drawCreate(t, other), drawSettle(t, other)
	limit := rapid.IntRange(0, protocol.MaxSearchLimit).Draw(t, "limit")
	ttl := rapid.Int64Min(1).Draw(t, "ttl")
	cursor := rapid.String().Draw(t, "cursor")
	own := settle
	own.ID = id
	requests := []protocol.Request{
		&protocol.PromiseGet{ID: id}, &create, &settle,
		&protocol.PromiseRegisterCallback{Awaited: id, Awaiter: other},
		&protocol.PromiseRegisterListener{Awaited: id, Address: "http://h/" + other},
		&protocol.PromiseSearch{State: protocol.Pending, Tags: create.Tags, Limit: limit, Cursor: cursor},
		&protocol.TaskGet{ID: id},
		&protocol.TaskCreate{PID: other, TTL: ttl, Action: drawCreate(t, id, target)},
		&protocol.TaskAcquire{ID: id, Version: version, PID: other, TTL: ttl},
		&protocol.TaskFence{ID: id, Version: version, Create: &create},
		&protocol.TaskFence{ID: id, Version: version, Settle: &settle},
		&protocol.TaskHeartbeat{PID: id},
		&protocol.TaskHeartbeat{PID: id, Tasks: []protocol.TaskRef{{ID: id, Version: version}, {ID: other, Version: version}}},
		&protocol.TaskSuspend{ID: id, Version: version, Awaited: []string{other, other}},
		&protocol.TaskFulfill{ID: id, Version: version, Action: own},
		&protocol.TaskRelease{ID: id, Version: version},
		&protocol.TaskHalt{ID: id}, &protocol.TaskContinue{ID: id},
		&protocol.TaskSearch{State: protocol.TaskHalted, Limit: limit},
		&protocol.ScheduleGet{ID: id},
		&protocol.ScheduleCreate{ID: id, Cron: "0 9 * * MON-FRI", PromiseID: other, PromiseTimeout: version, PromiseParam: create.Param, PromiseTags: create.Tags},
		&protocol.ScheduleDelete{ID: id}, &protocol.ScheduleSearch{Tags: create.Tags, Cursor: cursor},
		&protocol.DebugStart{}, &protocol.DebugStop{}, &protocol.DebugReset{}, &protocol.DebugSnap{}, &protocol.DebugTick{Time: version},
	}
	return rapid.SampledFrom(requests).Draw(t, "request")
}

func TestEveryRequestComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		head := protocol.Head{CorrID: rapid.String().Draw(t, "corrId"), Auth: rapid.String().Draw(t, "auth"), Origin: rapid.String().Draw(t, "origin")}
		if rapid.Bool().Draw(t, "debug") {
			at := rapid.Int64().Draw(t, "debug time")
			head.DebugTime = &at
			head.Trace = protocol.ParseTrace(parent, "a=1")
		}
		text := protocol.AppendRequest(nil, head, req)
		env, err := protocol.DecodeEnvelope(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if env.CorrID != head.CorrID || env.Auth != head.Auth || env.Origin != head.Origin || !reflect.DeepEqual(env.DebugTime, head.DebugTime) || !reflect.DeepEqual(env.Trace, head.Trace) {
			t.Fatalf("head %+v came back as %+v", head, env)
		}
		again, err := protocol.DecodeRequest(env.Kind, env.Data)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !reflect.DeepEqual(again, req) {
			t.Fatalf("%s\n got %+v\nwant %+v", text, again, req)
		}
	})
}
