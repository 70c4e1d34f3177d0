package protocol_test

import (
	"errors"
	"strings"
	"testing"

	"abide/protocol"
)

func TestDecodeEnvelope(t *testing.T) {
	env, err := protocol.DecodeEnvelope([]byte(" {\"kind\":\"task.get\",\"extra\":{\"deep\":[1,null]},\"head\":{\"corrId\":\"c\\u0041\",\"version\":\"2026-04-01\"," +
		"\"auth\":\"token\",\"resonate:origin\":\"o\",\"resonate:debug_time\":-5,\"x\":1}, \"data\" : {\"id\":\"t\"} }\n"))
	if err != nil {
		t.Fatal(err)
	}
	if env.Kind != "task.get" || env.CorrID != "cA" || env.Version != "2026-04-01" || env.Auth != "token" || env.Origin != "o" ||
		env.DebugTime == nil || *env.DebugTime != -5 || string(env.Data) != `{"id":"t"}` {
		t.Errorf("got %+v", env)
	}
	env, err = protocol.DecodeEnvelope([]byte(`{"kind":"k","head":{"corrId":"","version":"2026-04-01","auth":null,"resonate:debug_time":null,"resonate:origin":7},"data":{}}`))
	if err != nil || env.Auth != "" || env.DebugTime != nil || env.Origin != "" {
		t.Errorf("nulls: %+v, %v", env, err)
	}
}

func TestRefusedEnvelopes(t *testing.T) {
	const head = `"head":{"corrId":"c","version":"2026-04-01"}`
	for _, c := range []struct{ name, body, kind, corrID, part string }{
		{"empty", ``, "unknown", "0", "unexpected end of JSON"},
		{"blank", " \n", "unknown", "0", "unexpected end of JSON"},
		{"text", `hello`, "unknown", "0", "Invalid request envelope: "},
		{"cut", `{"kind":"k","head":{"corr`, "unknown", "0", "unexpected end of JSON"},
		{"two values", `{"kind":"k",` + head + `,"data":{}} {}`, "unknown", "0", "text after the end"},
		{"bad UTF-8", "{\"kind\":\"k\"," + head + ",\"data\":{\"id\":\"\xff\"}}", "unknown", "0", "not valid UTF-8"},
		{"raw control character", "{\"kind\":\"k\n\"," + head + ",\"data\":{}}", "unknown", "0", "Invalid request envelope: "},
		{"comment", `{"kind":"k",` + head + `,"data":{}/**/}`, "unknown", "0", "Invalid request envelope: "},
		{"NaN", `{"kind":"k",` + head + `,"data":{"a":NaN}}`, "unknown", "0", "Invalid request envelope: "},
		{"deep", strings.Repeat("[", 100_000), "unknown", "0", "Invalid request envelope: "},
		{"deep and closed", strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000), "unknown", "0", "depth"},
		{"array", `["k",{},{}]`, "unknown", "0", "must be an object, not an array"},
		{"null", `null`, "unknown", "0", "must be an object, not null"},
		{"string", `"x"`, "unknown", "0", "must be an object, not a string"},
		{"no members", `{}`, "unknown", "0", "kind is missing; head is missing; data is missing"},
		{"no kind", `{` + head + `,"data":{}}`, "unknown", "c", "kind is missing"},
		{"kind number", `{"kind":7,` + head + `,"data":{}}`, "unknown", "c", "kind must be a string, not a number"},
		{"kind lone surrogate", `{"kind":"\ud800",` + head + `,"data":{}}`, "unknown", "c", "surrogate"},
		{"no head", `{"kind":"k","data":{}}`, "k", "0", "head is missing"},
		{"head null", `{"kind":"k","head":null,"data":{}}`, "k", "0", "head must be an object, not null"},
		{"no corrId", `{"kind":"k","head":{"version":"2026-04-01"},"data":{}}`, "k", "0", "head.corrId is missing"},
		{"corrId number", `{"kind":"k","head":{"corrId":1,"version":"2026-04-01"},"data":{}}`, "k", "0", "head.corrId must be a string"},
		{"no version", `{"kind":"k","head":{"corrId":"c"},"data":{}}`, "k", "c", "head.version is missing"},
		{"version null", `{"kind":"k","head":{"corrId":"c","version":null},"data":{}}`, "k", "c", "head.version must be a string, not null"},
		{"auth number", `{"kind":"k","head":{"corrId":"c","version":"2026-04-01","auth":1},"data":{}}`, "k", "c", "head.auth must be a string"},
		{"debug time text", `{"kind":"k","head":{"corrId":"c","version":"2026-04-01","resonate:debug_time":"1"},"data":{}}`, "k", "c", "head.resonate:debug_time must be an integer"},
		{"debug time fraction", `{"kind":"k","head":{"corrId":"c","version":"2026-04-01","resonate:debug_time":1.0},"data":{}}`, "k", "c", "must be an integer"},
		{"no data", `{"kind":"k",` + head + `}`, "k", "c", "data is missing"},
		{"duplicate kind", `{"kind":"k","kind":"l",` + head + `,"data":{}}`, "l", "c", "duplicate"},
		{"duplicate in data", `{"kind":"k",` + head + `,"data":{"id":"a","id":"b"}}`, "k", "c", "duplicate"},
		{"kind before data", `{"kind":"",` + head + `,"data":null}`, "", "c", "kind must not be empty"},
		{"data before version", `{"kind":"k","head":{"corrId":"c","version":"1"},"data":[]}`, "k", "c", "data must be an object, not an array"},
		{"data null", `{"kind":"k",` + head + `,"data":null}`, "k", "c", "data must be an object, not null"},
		{"data string", `{"kind":"k",` + head + `,"data":"{}"}`, "k", "c", "data must be an object, not a string"},
		{"version", `{"kind":"k","head":{"corrId":"c","version":"2025-01-15"},"data":{}}`, "k", "c", `"2025-01-15"; supported is 2026-04-01`},
		{"version empty", `{"kind":"k","head":{"corrId":"c","version":""},"data":{}}`, "k", "c", `""; supported is 2026-04-01`},
		{"version long", `{"kind":"k","head":{"corrId":"c","version":"` + strings.Repeat("😀", 9999) + `"},"data":{}}`, "k", "c", "supported is"},
	} {
		env, err := protocol.DecodeEnvelope([]byte(c.body))
		var refusal *protocol.RequestError
		if !errors.As(err, &refusal) {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		if env.Kind != c.kind || env.CorrID != c.corrID {
			t.Errorf("%s: echo %q %q, want %q %q", c.name, env.Kind, env.CorrID, c.kind, c.corrID)
		}
		if !strings.Contains(refusal.Message, c.part) || len(refusal.Message) > 1000 {
			t.Errorf("%s: message %.300q lacks %q", c.name, refusal.Message, c.part)
		}
	}
}

func TestCheckDebugTime(t *testing.T) {
	at := func(n int64) protocol.Envelope { return protocol.Envelope{DebugTime: &n} }
	for _, c := range []struct {
		env  protocol.Envelope
		req  protocol.Request
		part string
	}{
		{protocol.Envelope{}, &protocol.DebugTick{Time: 7}, ""},
		{at(7), &protocol.DebugTick{Time: 7}, ""},
		{at(8), &protocol.DebugTick{Time: 7}, "must equal"},
		{at(0), &protocol.PromiseGet{ID: "p"}, ""},
		{at(-1), &protocol.PromiseGet{ID: "p"}, "at least 0"},
	} {
		err := protocol.CheckDebugTime(c.env, c.req)
		if (err == nil) != (c.part == "") || err != nil && !strings.Contains(err.Error(), c.part) {
			t.Errorf("%+v: %v, want %q", c.req, err, c.part)
		}
	}
}
