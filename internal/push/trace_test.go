package push

import (
	"context"
	"strings"
	"testing"

	"abide/internal/deliver"
	"abide/protocol"
)

// keeping is a transport that keeps what it is given.
type keeping struct{ got []Message }

func (k *keeping) Lane(protocol.Address, string) (string, error) { return "lane", nil }
func (k *keeping) Send(_ context.Context, m Message) error       { k.got = append(k.got, m); return nil }
func (k *keeping) Concurrency(string) int                        { return 8 }
func (k *keeping) Close(context.Context) error                   { return nil }

// A message carries the trace of its task, in what the transport is given and in its body; the others carry none.
func TestMessagesCarryTheTraceOfTheirTask(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	transport := &keeping{}
	c := NewCore(Limits{}, []Served{{Name: "http", Schemes: []string{protocol.SchemeHTTP}, Transport: transport}})
	traced := deliver.Execute{Workspace: "w", ID: "traced", Address: "http://h/"}
	plain := deliver.Execute{Workspace: "w", ID: "plain", Address: "http://h/"}
	c.HintExecute(1, traced)
	c.HintExecute(1, plain)
	job := c.Take(1, CheckExecutes)
	if job == nil {
		t.Fatal("nothing is checked")
	}
	traced.Trace = protocol.ParseTrace(parent, "a=1")
	c.Done(1, job, Result{Executes: []deliver.Execute{plain, traced}})
	p := &Pusher{options: Options{ServerURL: func(string) string { return "http://server" }}}
	for _, s := range c.TakeSends() {
		if err := p.try(s); err != nil {
			t.Fatal(err)
		}
	}
	if len(transport.got) != 2 {
		t.Fatalf("%d messages", len(transport.got))
	}
	for _, m := range transport.got {
		want := m.Task.ID == "traced"
		if (m.Trace != nil) != want || strings.Contains(string(m.Body), `"traceparent":"`+parent+`","tracestate":"a=1"`) != want {
			t.Errorf("%s: %+v, %s", m.Task.ID, m.Trace, m.Body)
		}
	}
}
