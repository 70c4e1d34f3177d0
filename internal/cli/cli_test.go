package cli

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"abide/protocol"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files; read the difference before committing it")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (rewrite with -update):\n%s", path, got)
	}
}

// now is 2026-11-30 15:00:00 UTC, as all golden files have it; their reader sits an hour east of Greenwich.
var now = time.Date(2026, 11, 30, 15, 0, 0, 0, time.UTC).UnixMilli()

var (
	here     = Screen{Zone: time.FixedZone("CET", 3600), NowMs: now}
	coloured = Screen{Zone: time.UTC, NowMs: now, Colour: true}
)

func base64Of(text string) *string {
	data := base64.StdEncoding.EncodeToString([]byte(text))
	return &data
}

func tagged(pairs ...string) protocol.Tags {
	var t protocol.Tags
	for i := 0; i < len(pairs); i += 2 {
		t = t.With(pairs[i], pairs[i+1])
	}
	return t
}

var (
	order = protocol.Promise{
		ID: "order-1", State: protocol.Resolved, Param: MakePayload(map[string]string{}, base64Of(`{"func":"charge","args":[1],"version":1}`)),
		Value: MakePayload(map[string]string{"trace": "abc", "a": "b"}, base64Of("first\nsecond\x1b[31m")),
		Tags:  tagged(protocol.TagTarget, "poll://any@pay", "customer", "Ünïcode \x1b[2J"), TimeoutAt: now + hourMs, CreatedAt: now - 90*minuteMs, SettledAt: now - 1500,
	}
	waiting = protocol.Promise{ID: "order-1.0\x07" + strings.Repeat("x", 80), State: protocol.Pending, TimeoutAt: math.MaxInt64, CreatedAt: now - 12_345}
	held    = protocol.Task{ID: "order-1", State: protocol.TaskAcquired, Version: 3, Resumes: 2, TTL: 60_000, PID: "worker-1"}
	hourly  = protocol.Schedule{
		ID: "report", Cron: "0 * * * *", PromiseID: "report.{{.timestamp}}", PromiseTimeout: 90_000, PromiseTags: tagged(protocol.TagTarget, "poll://any@r"),
		PromiseParam: MakePayload(nil, base64Of("\x00\x01")), CreatedAt: now - 40*dayMs, NextRunAt: now + hourMs, LastRunAt: now, HasRun: true,
	}
)

func TestRecords(t *testing.T) {
	var b strings.Builder
	show := func(title, text string) { fmt.Fprintf(&b, "== %s\n%s\n", title, text) }
	show("a promise", here.Promise(order))
	show("one that waits", here.Promise(waiting))
	show("promises", here.Promises([]protocol.Promise{order, waiting}))
	show("a task", here.Task(held))
	show("tasks", here.Tasks([]protocol.Task{held, {ID: "x", State: protocol.TaskHalted}}))
	show("a claim", here.Claim(protocol.ClaimBody{Task: held, Promise: order, Preload: []protocol.Promise{waiting}}))
	show("a schedule", here.Schedule(hourly))
	show("schedules", here.Schedules([]protocol.Schedule{hourly, {ID: "new", Cron: "@daily", NextRunAt: now + 9*hourMs, PromiseID: "new.1"}}))
	show("in colour, in UTC", coloured.Promise(order)+coloured.Tasks([]protocol.Task{held}))
	golden(t, "records", b.String())
}

func TestTrees(t *testing.T) {
	at := int64(0)
	p := func(id, parent string, state protocol.PromiseState, tags ...string) protocol.Promise {
		at++
		return protocol.Promise{ID: id, State: state, CreatedAt: at, Tags: tagged(append(tags, protocol.TagParent, parent, protocol.TagOrigin, "r")...)}
	}
	call := p("r.1", "r", protocol.Pending, protocol.TagScope, "global")
	call.Param = MakePayload(nil, base64Of(`{"func":"charge"}`))
	all := []protocol.Promise{
		p("r", "r", protocol.Pending, protocol.TagScope, "global"), call, p("r.1.1", "r.1", protocol.Resolved, protocol.TagScope, "local"),
		p("r.1.2", "r.1", protocol.RejectedTimedout, protocol.TagTimer, "true"), p("r.2", "r", protocol.Rejected), p("r.2.1", "r.2", protocol.RejectedCanceled),
		p("lost\nchild", "gone", protocol.Resolved), p("a", "b", protocol.Pending), p("b", "a", protocol.Pending),
	}
	var tree Tree
	for range 2 { // pages may overlap
		tree.Add(all...)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "== whole\n%s\n== a part\n%s\n== a circle\n%s\n== unknown\n%s\n", here.Tree(&tree, "r", true), here.Tree(&tree, "r.1", false), here.Tree(&tree, "a", false), here.Tree(&tree, "x\x1b", false))
	fmt.Fprintf(&b, "== colours\n%s\n== json\n%s\n%s", coloured.Tree(&tree, "r.1", false), tree.JSON("r.1", false), (&Tree{}).JSON("x", true))
	golden(t, "trees", b.String())
	if !tree.Pending() || (&Tree{}).Pending() {
		t.Error("Pending")
	}
}

func TestTreesAreBounded(t *testing.T) {
	var tree Tree
	chain := make([]protocol.Promise, MaxTree+1) // as deep as it may be
	for i := range chain {
		chain[i] = protocol.Promise{ID: fmt.Sprint(i), Tags: tagged(protocol.TagParent, fmt.Sprint(i-1))}
	}
	if tree.Add(chain...) {
		t.Error("it takes more than MaxTree")
	}
	if !strings.Contains(string(tree.JSON("0", true)), `"truncated":true`) || len(tree.walk("0", true)) != MaxTree {
		t.Error("not cut, or not said so")
	}
}

func TestExplanations(t *testing.T) {
	var b strings.Builder
	task := func(state protocol.TaskState) protocol.Task {
		return protocol.Task{ID: "it's", State: state, Version: 1, PID: "w", TTL: 30_000}
	}
	body := func(state protocol.TaskState, more func(*Facts)) Facts {
		f := Facts{ExplainBody: protocol.ExplainBody{Task: task(state), Promise: protocol.Pending, Target: "poll://any@pay", TimeoutAt: now + hourMs, Now: now, HasWorkers: true}}
		if more != nil {
			more(&f)
		}
		return f
	}
	pushed := func(how string, more func(*Facts)) Facts {
		f := body(protocol.TaskPending, more)
		f.Queued, f.HasWorkers, f.Target, f.Push = true, false, "https://x.example/f", how
		if how != protocol.PushUnserved {
			f.PushTo = "https://x.example"
		}
		return f
	}
	for _, f := range []Facts{
		body(protocol.TaskFulfilled, func(f *Facts) { f.Promise = protocol.Resolved }),
		body(protocol.TaskFulfilled, func(f *Facts) { f.Promise, f.TimeoutAt = protocol.RejectedTimedout, now-minuteMs }),
		body(protocol.TaskHalted, nil),
		body(protocol.TaskAcquired, func(f *Facts) { f.LeaseAt, f.ClaimedAt = now+30_000, now-1000 }),
		body(protocol.TaskAcquired, func(f *Facts) { f.LeaseAt = now - 1 }),
		body(protocol.TaskAcquired, func(f *Facts) { f.LeaseAt = math.MaxInt64 }),
		body(protocol.TaskAcquired, func(f *Facts) { f.Partly = true }),
		body(protocol.TaskSuspended, func(f *Facts) { f.Awaiting, f.Partial = []string{"a", "b\n"}, true }),
		body(protocol.TaskSuspended, nil),
		body(protocol.TaskSuspended, func(f *Facts) { f.Partly = true }),
		body(protocol.TaskPending, func(f *Facts) { f.Queued = true }),
		body(protocol.TaskPending, func(f *Facts) { f.Queued, f.Target = true, "poll://uni@pay/w1" }),
		body(protocol.TaskPending, func(f *Facts) { f.Queued, f.Workers = true, 1 }),
		body(protocol.TaskPending, func(f *Facts) { f.Queued, f.Workers = true, 2 }),
		body(protocol.TaskPending, func(f *Facts) { f.Queued, f.HasWorkers, f.Target = true, false, "https://x.example/" }),
		pushed(protocol.PushWaiting, nil),
		pushed(protocol.PushSending, func(f *Facts) { f.PushAttempts, f.PushTriedAt = 2, now-70_000 }),
		pushed(protocol.PushPaused, func(f *Facts) {
			f.PushAttempts, f.PushError, f.PushTriedAt, f.PushAt = 3, "the target answered 500", now-5000, now+8000
		}),
		pushed(protocol.PushPaused, func(f *Facts) { f.PushAttempts, f.PushError, f.PushTriedAt = 1, "the target answered 503", now-1000 }),
		pushed(protocol.PushPaused, func(f *Facts) {
			f.PushError, f.PushTriedAt, f.PushAt = "dial: connection refused", now-minuteMs, now+minuteMs
		}),
		pushed(protocol.PushPaused, func(f *Facts) { f.PushAt = now + minuteMs }),
		pushed(protocol.PushRefused, func(f *Facts) {
			f.PushAttempts, f.PushError, f.PushTriedAt, f.PushAt = 1, "refused: no rule of transports.http_push.allow covers x.example", now-1000, now+59_000
		}),
		pushed(protocol.PushFull, func(f *Facts) { f.PushOpen = 16 }),
		pushed(protocol.PushBusy, func(f *Facts) { f.PushOpen = 1024 }),
		pushed(protocol.PushElsewhere, nil),
		pushed(protocol.PushUnserved, func(f *Facts) { f.PushTo, f.PushError = "", "sending to https addresses is turned off on this server" }),
		pushed("a word of a later server", nil),
		body(protocol.TaskPending, func(f *Facts) { f.RetryAt, f.DelayAt = now+minuteMs, now+minuteMs }),
		body(protocol.TaskPending, func(f *Facts) { f.RetryAt, f.Hasty = now+400, 5 }),
		body(protocol.TaskPending, func(f *Facts) { f.RetryAt = now + 20_000 }),
		body(protocol.TaskPending, func(f *Facts) { f.RetryAt, f.Workers = now+20_000, 1 }),
		body(protocol.TaskPending, func(f *Facts) { f.RetryAt = now }),
		body(protocol.TaskPending, func(f *Facts) { f.Partly = true }),
	} {
		reason, _ := here.Why(f)
		fmt.Fprintf(&b, "== %s\n%s\n", reason, here.Explain(f))
	}
	fmt.Fprintf(&b, "== json\n%s\n", here.ExplainJSON(body(protocol.TaskHalted, nil)))
	golden(t, "explanations", b.String())
}

func TestPreviews(t *testing.T) {
	var b strings.Builder
	for _, expr := range []string{"0 * * * *", "*/15 * * * *", "30 9 * * 2-6", "0 0 13 * FRI", "0 0 31 2 *", "@daily", "0 0 0 1 1 * 2027,2028"} {
		p, err := NewPreview(expr, 3, now+1)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "== \n%s\n%s\n", here.Preview(p), p.JSON())
	}
	golden(t, "previews", b.String())
	if _, err := NewPreview("61 * * * *", 3, now); err == nil || !strings.Contains(err.Error(), "minute") {
		t.Errorf("error %v", err)
	}
}

func TestSpans(t *testing.T) {
	for ms, want := range map[int64]string{
		0: "0ms", 999: "999ms", 1000: "1s", 1250: "1.2s", 9_999: "9.9s", 10_000: "10s", 59_999: "59s", 60_000: "1m", 61_000: "1m 1s",
		3_600_000: "1h", 3_661_000: "1h 1m", 86_400_000: "1d", 90_000_000: "1d 1h", 400 * dayMs: "400d",
	} {
		if got := Span(ms); got != want {
			t.Errorf("%d: %s, want %s", ms, got, want)
		}
	}
	for ms, want := range map[int64]string{now: "now", now + 1000: "in 1s", now - 1000: "1s ago", math.MaxInt64: "never"} {
		if got := here.distance(ms); got != want {
			t.Errorf("%d: %s, want %s", ms, got, want)
		}
	}
}

func TestPayloads(t *testing.T) {
	for _, c := range []struct {
		text   string
		encode bool
		want   string
	}{
		{`{}`, true, ``},
		{`{"data":"hi"}`, true, `{"data":"aGk="}`},
		{`{"data":{"b": [1, 2]}}`, true, `{"data":"` + *base64Of(`{"b":[1,2]}`) + `"}`},
		{`{"data":null}`, true, `{"data":"` + *base64Of(`null`) + `"}`},
		{`{"data":""}`, true, `{"data":""}`},
		{`{"headers":{"b":"2","a":"1"}}`, true, `{"headers":{"a":"1","b":"2"}}`},
		{`{"headers":{},"data":"aGk="}`, false, `{"headers":{},"data":"aGk="}`},
	} {
		if v, err := Payload(c.text, c.encode); err != nil || string(v) != c.want {
			t.Errorf("%s: %s %v, want %s", c.text, v, err, c.want)
		}
	}
	for _, text := range []string{``, `5`, `[]`, `{"dat":1}`, `{"headers":{"a":1}}`, `{} {}`, `{"data":`} {
		if v, err := Payload(text, true); err == nil {
			t.Errorf("%s is read as %s", text, v)
		}
	}
	if v, err := Payload(`{"data":5}`, false); err == nil {
		t.Errorf("data that is no string is read as %s", v)
	}
	for text, want := range map[string]string{`42`: `42`, `hello`: `"hello"`, `"x"`: `"x"`, `{"a":1}`: `{"a":1}`, ``: `""`, "a\"b\n": `"a\"b\n"`} {
		content, err := base64.StdEncoding.DecodeString(Data(text))
		if err != nil || string(content) != want {
			t.Errorf("%q: %s %v, want %s", text, content, err, want)
		}
	}
}

func TestTexts(t *testing.T) {
	long := strings.Repeat("é", maxShown)
	for _, c := range []struct{ data, want string }{
		{"", ""}, {"!", "!  (not base64)"}, {*base64Of("a\tb"), "a    b"}, {*base64Of("\xff"), "1 bytes that are no text"},
		{*base64Of("x\x1b]0;y\x07"), "7 bytes that are no text"}, {*base64Of(long), strings.Repeat("é", maxShown/2) + fmt.Sprintf("… (%d bytes in all; --json shows them)", len(long))},
	} {
		if got := Text(protocol.MakeValue(nil, c.data)); got != c.want {
			t.Errorf("%.40q: %.80q, want %.80q", c.data, got, c.want)
		}
	}
}

// TestNothingControlsATerminal: whatever records hold, what is printed for a person is text and line ends.
func TestNothingControlsATerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"\x1b[2J", "a\rb", "\u202e", "\u200b", "\x9b", "\n"})).Draw(t, "text")
		p := protocol.Promise{ID: text, State: protocol.Pending, Tags: tagged(text, text, protocol.TagParent, text), Param: protocol.MakeValue(map[string]string{text: text}, Data(text))}
		var tree Tree
		tree.Add(p)
		f := Facts{ExplainBody: protocol.ExplainBody{Task: protocol.Task{ID: text, State: protocol.TaskSuspended, PID: text}, Target: text, Awaiting: []string{text}}}
		all := here.Promise(p) + here.Promises([]protocol.Promise{p}) + here.Tree(&tree, text, true) + here.Explain(f) + here.Schedule(protocol.Schedule{ID: text, Cron: text, PromiseID: text}) +
			here.Tasks([]protocol.Task{f.Task}) + here.Task(f.Task) + More(1, text)
		for _, r := range all {
			if r != '\n' && (r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' || r == '\u200b') {
				t.Fatalf("%q in %q", r, all)
			}
		}
	})
}

func TestDocuments(t *testing.T) {
	text := []byte(`{"b":{"y":1.50,"x":9007199254740993},"a":"\u003c\ud83d","c":[],"d":{}}`)
	if got, want := Pretty(text), "{\n  \"a\": \"\\u003c\\ud83d\",\n  \"b\": {\n    \"x\": 9007199254740993,\n    \"y\": 1.50\n  },\n  \"c\": [],\n  \"d\": {}\n}\n"; got != want {
		t.Errorf("pretty:\n%s\nwant\n%s", got, want)
	}
	if got, want := Line(text), `{"a":"\u003c\ud83d","b":{"x":9007199254740993,"y":1.50},"c":[],"d":{}}`+"\n"; got != want {
		t.Errorf("line: %s", got)
	}
	if !json.Valid([]byte(Pretty(text))) || Pretty([]byte("{")) != "{\n" {
		t.Error("not JSON")
	}
}

func TestMore(t *testing.T) {
	for _, c := range []struct {
		rows   int
		cursor string
		says   string
	}{{0, "", "Nothing found"}, {3, "", ""}, {3, "it's", `'it'\''s'`}, {0, "abc", "--cursor abc"}} {
		if got := More(c.rows, c.cursor); !strings.Contains(got, c.says) || (c.says == "") != (got == "") {
			t.Errorf("%d %q: %q", c.rows, c.cursor, got)
		}
	}
}
