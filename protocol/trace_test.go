package protocol_test

import (
	"reflect"
	"strings"
	"testing"

	"abide/protocol"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// What is a traceparent, by the examples and rules of W3C Trace Context, 3.2.2 and 4.3.
func TestParseTraceParent(t *testing.T) {
	for text, want := range map[string]string{
		parent: parent,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00":      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff":      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03", // unknown flags are not passed on
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":      parent,                                                    // a later version
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what": parent,
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.what": "",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what": "",
		"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":      "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":      "",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01":      "",
		"00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01":      "",
		"00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01":      "",
		"00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01":      "",
		"0-00af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":      "",
		"00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01":      "",
		" 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":     "",
		parent[:54]:                          "",
		"":                                   "",
		"00-":                                "",
		strings.Repeat("0", 1<<20):           "",
		strings.Repeat("é", 28)[:55]:         "",
		parent + "\n":                        "",
		strings.Replace(parent, "7", ".", 1): "",
	} {
		got := ""
		if trace := protocol.ParseTrace(text, ""); trace != nil {
			got = string(trace.AppendParent(nil))
			if trace.Sampled() != (got[54]&1 == 1) {
				t.Errorf("%.60q: sampled is %v", text, trace.Sampled())
			}
		}
		if got != want {
			t.Errorf("%.60q is %q, want %q", text, got, want)
		}
	}
	if (*protocol.Trace)(nil).Sampled() {
		t.Error("no trace is sampled")
	}
}

// A tracestate that is none, or too long, is dropped; its traceparent is kept.
func TestParseTraceState(t *testing.T) {
	longest := "a=" + strings.Repeat("x", protocol.MaxTraceStateBytes-2)
	for state, kept := range map[string]bool{
		"":                                true,
		"rojo=00f067aa0ba902b7":           true,
		"rojo=1,congo=t61rcWkgMzE":        true,
		"a=1 , b=2,, c@d=3":               true,
		strings.Repeat("a=1,", 31) + "b=": true,
		strings.Repeat("a=1,", 33):        false,
		longest:                           true,
		longest + "x":                     false,
		"a":                               false,
		"=1":                              false,
		"a=é":                             false,
		"a=\x00":                          false,
		"a=1\r\nX-Evil: 1":                false,
	} {
		trace := protocol.ParseTrace(parent, state)
		switch {
		case trace == nil:
			t.Errorf("%.60q took its traceparent with it", state)
		case kept && trace.State != state, !kept && trace.State != "":
			t.Errorf("%.60q: kept is %q", state, trace.State)
		}
	}
}

// A head says the trace of a request, and what is no trace there is ignored, whatever it is.
func TestEnvelopesSayTheirTrace(t *testing.T) {
	for head, want := range map[string]*protocol.Trace{
		`"traceparent":"` + parent + `"`:                       protocol.ParseTrace(parent, ""),
		`"traceparent":"` + parent + `","tracestate":"a=1"`:    protocol.ParseTrace(parent, "a=1"),
		`"tracestate":"a=1","traceparent":"` + parent + `"`:    protocol.ParseTrace(parent, "a=1"),
		`"traceparent":"` + parent + `","tracestate":null`:     protocol.ParseTrace(parent, ""),
		`"traceparent":"` + parent + `","tracestate":7`:        protocol.ParseTrace(parent, ""),
		`"traceparent":null`:                                   nil,
		`"traceparent":7`:                                      nil,
		`"traceparent":{"a":[]}`:                               nil,
		`"traceparent":"nonsense","tracestate":"a=1"`:          nil,
		`"traceparent":"` + strings.Repeat("0", 100_000) + `"`: nil,
		`"tracestate":"a=1"`:                                   nil,
	} {
		body := `{"kind":"promise.get","head":{"corrId":"1","version":"` + protocol.Version + `",` + head + `},"data":{"id":"p"}}`
		env, err := protocol.DecodeEnvelope([]byte(body))
		if err != nil || !reflect.DeepEqual(env.Trace, want) {
			t.Errorf("%.100s: %+v, %v; want %+v", head, env.Trace, err, want)
		}
	}
}

// The head of an execute says its trace, in ASCII, and what is read back is what was said.
func TestExecutesSayTheirTrace(t *testing.T) {
	for _, c := range []struct {
		url, state, want string
	}{
		{"http://h", "", `{"kind":"execute","head":{"serverUrl":"http://h","traceparent":"` + parent + `"},"data":{"task":{"id":"t","version":2}}}`},
		{"", "", `{"kind":"execute","head":{"traceparent":"` + parent + `"},"data":{"task":{"id":"t","version":2}}}`},
		{"http://h", `a="\`, `{"kind":"execute","head":{"serverUrl":"http://h","traceparent":"` + parent + `","tracestate":"a=\"\\"},"data":{"task":{"id":"t","version":2}}}`},
	} {
		trace := protocol.ParseTrace(parent, c.state)
		got := protocol.AppendTracedExecute(nil, c.url, protocol.TaskRef{ID: "t", Version: 2}, trace)
		if string(got) != c.want {
			t.Errorf(" got %s\nwant %s", got, c.want)
		}
		m, err := protocol.DecodeMessage(got)
		if err != nil || !reflect.DeepEqual(m.Trace, trace) || m.ServerURL != c.url || m.Task.Version != 2 {
			t.Errorf("%s came back as %+v, %v", got, m, err)
		}
	}
}

// Only what creates a promise keeps a trace.
func TestCreates(t *testing.T) {
	create := &protocol.PromiseCreate{ID: "p"}
	fence := &protocol.TaskFence{Create: create}
	task := &protocol.TaskCreate{}
	for _, c := range []struct {
		req  protocol.Request
		want *protocol.PromiseCreate
	}{
		{create, create}, {fence, create}, {task, &task.Action},
		{&protocol.TaskFence{Settle: &protocol.PromiseSettle{}}, nil}, {&protocol.PromiseGet{}, nil}, {&protocol.ScheduleCreate{}, nil},
	} {
		if got := protocol.Creates(c.req); got != c.want {
			t.Errorf("%s creates %v", c.req.Kind(), got)
		}
	}
}
