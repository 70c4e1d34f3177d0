package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"abide/protocol"
)

type object = map[string]any

// maxAnswerBytes bounds what is read of one answer.
const maxAnswerBytes = 32 << 20

// requestTimeout bounds one request.
const requestTimeout = 30 * time.Second

// maxSilent is how many requests in a row may get no answer before no more are sent.
const maxSilent = 3

var errSilent = errors.New("the server has stopped to answer")

// probe is one run of the checks.
type probe struct {
	ctx     context.Context
	config  Config
	base    string // of the workspace that is used
	own     bool   // the workspace was made for the checks
	ahead   int64  // server's time minus the caller's, milliseconds
	subject string
	serial  int
	clock   *int64 // debug time of requests, if set
	report  Report
	made    map[string]bool
	silent  int      // requests in a row that got no answer at all
	order   []string // ids of promises that may exist, in the order in which they were first used
}

// id makes the id of a promise. All ids share what stands before the first dot: there are servers that
// want that of promises that wait for each other.
func (p *probe) id(name string) string {
	id := p.config.Prefix + "." + name
	if !p.made[id] {
		p.made[id] = true
		p.order = append(p.order, id)
	}
	return id
}

// now is the server's time in epoch milliseconds, about.
func (p *probe) now() int64 { return p.config.NowMs() + p.ahead }

// later is an instant at which the checks are over.
func (p *probe) later() int64 { return p.now() + 60*60*1000 }

// target makes tags that send a promise's task to a group, to which nobody may be connected.
func (p *probe) target(group string) object {
	return object{protocol.TagTarget: "poll://any@" + p.config.Prefix + group}
}

// answer is what came back for a request.
type answer struct {
	status int // of HTTP
	header http.Header
	body   []byte
	fields any // body as JSON
	err    error
}

// at finds a member of the answer's data by a path such as promise.state. Elements of lists are numbers.
func (a answer) at(path string) any {
	v := member(a.fields, "data")
	if path == "" {
		return v
	}
	for _, name := range strings.Split(path, ".") {
		v = member(v, name)
	}
	return v
}

func member(v any, name string) any {
	switch v := v.(type) {
	case object:
		return v[name]
	case []any:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(v) {
			return v[i]
		}
	}
	return nil
}

func number(v any) (int64, bool) {
	n, is := v.(json.Number)
	if !is {
		return 0, false
	}
	i, err := n.Int64()
	return i, err == nil
}

// String is for the reader of a report.
func (a answer) String() string {
	if a.err != nil {
		return "no answer: " + a.err.Error()
	}
	return fmt.Sprintf("%d %s", a.status, clip(string(a.body), 300))
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}

// ask sends a request and judges nothing.
func (p *probe) ask(kind string, data any) answer {
	p.serial++
	head := object{"corrId": fmt.Sprintf("verify-%d", p.serial), "version": protocol.Version}
	if p.config.Token != "" {
		head["auth"] = p.config.Token
	}
	if p.clock != nil {
		head["resonate:debug_time"] = *p.clock
	}
	body, err := json.Marshal(object{"kind": kind, "head": head, "data": data})
	if err != nil {
		return answer{err: err}
	}
	return p.post(body)
}

func (p *probe) post(body []byte) answer {
	ctx, cancel := context.WithTimeout(p.ctx, requestTimeout)
	defer cancel()
	a := answer{err: errSilent}
	if p.silent >= maxSilent {
		return a
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base+"/", bytes.NewReader(body))
	if err != nil {
		a.err = err
		return a
	}
	req.Header.Set("Content-Type", "application/json")
	a.status, a.header, a.body, a.err = p.do(req)
	if a.err != nil {
		p.silent++
	} else {
		p.silent = 0
		d := json.NewDecoder(bytes.NewReader(a.body))
		d.UseNumber()
		if d.Decode(&a.fields) != nil {
			a.fields = nil
		}
	}
	return a
}

func (p *probe) do(req *http.Request) (int, http.Header, []byte, error) {
	if p.config.Token != "" {
		req.Header.Set("Authorization", "Bearer "+p.config.Token)
	}
	response, err := p.config.HTTP.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	return response.StatusCode, response.Header, body, err
}

func (p *probe) get(address string) (int, []byte, error) {
	return p.method(http.MethodGet, address)
}

func (p *probe) method(method, address string) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(p.ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return 0, nil, err
	}
	status, _, body, err := p.do(req)
	return status, body, err
}

// fact is something that must hold of an answer's data.
type fact struct {
	says  string
	holds func(a answer) bool
}

// is wants a member to have a value: a string, a number, a truth value, or a whole object.
func is(path string, want any) fact {
	text, _ := json.Marshal(want)
	return fact{fmt.Sprintf("%s=%s", path, clip(string(text), 120)), func(a answer) bool {
		got, _ := json.Marshal(a.at(path))
		return string(got) == string(text)
	}}
}

// has wants a member to be there.
func has(path string) fact {
	return fact{path + " present", func(a answer) bool { return a.at(path) != nil }}
}

// lacks wants a member not to be there, not even as null.
func lacks(path string) fact {
	return fact{path + " absent", func(a answer) bool {
		parent, name := "", path
		if i := strings.LastIndexByte(path, '.'); i >= 0 {
			parent, name = path[:i], path[i+1:]
		}
		o, isObject := a.at(parent).(object)
		_, there := o[name]
		return isObject && !there
	}}
}

// that wants anything else.
func that(says string, holds func(a answer) bool) fact { return fact{says, holds} }

// expect asks and makes a row of the report: the status, the rules of every envelope, and the facts.
func (p *probe) expect(check, kind string, data any, status int, facts ...fact) answer {
	a := p.ask(kind, data)
	p.judge(check, a, kind, fmt.Sprintf("verify-%d", p.serial), status, facts...)
	return a
}

// judge makes a row of the report about an answer.
func (p *probe) judge(check string, a answer, kind, corrID string, status int, facts ...fact) {
	expected := []string{strconv.Itoa(status)}
	for _, f := range facts {
		expected = append(expected, f.says)
	}
	r := Result{Subject: p.subject, Check: check, Outcome: Pass, Expected: strings.Join(expected, ", ")}
	if wrong := envelopeFault(a, kind, corrID, status); wrong != "" {
		r.Outcome, r.Got = Fail, wrong+": "+a.String()
	} else {
		for _, f := range facts {
			if !f.holds(a) {
				r.Outcome, r.Got = Fail, "not "+f.says+": "+a.String()
				break
			}
		}
	}
	p.report.Results = append(p.report.Results, r)
}

// envelopeFault says which rule of every answer one breaks.
func envelopeFault(a answer, kind, corrID string, status int) string {
	head := member(a.fields, "head")
	inner, _ := number(member(head, "status"))
	_, isText := member(a.fields, "data").(string)
	switch {
	case a.err != nil:
		return "no answer"
	case a.status != status:
		return fmt.Sprintf("status %d", a.status)
	case a.fields == nil:
		return "not JSON"
	case inner != int64(a.status):
		return "head.status is not the HTTP status"
	case !strings.HasPrefix(a.header.Get("Content-Type"), "application/json"):
		return "Content-Type is " + a.header.Get("Content-Type")
	case member(a.fields, "kind") != kind:
		return "kind is not echoed"
	case member(head, "corrId") != corrID:
		return "head.corrId is not echoed"
	case member(head, "version") != protocol.Version:
		return "head.version is not " + protocol.Version
	case isText != (status != http.StatusOK && status != protocol.StatusPreload):
		return "data must be a text on a failure, and only there"
	}
	return ""
}

// row makes a row of the report about anything else.
func (p *probe) row(check, expected string, good bool, got string) {
	r := Result{Subject: p.subject, Check: check, Outcome: Pass, Expected: expected}
	if !good {
		r.Outcome, r.Got = Fail, clip(got, 400)
	}
	p.report.Results = append(p.report.Results, r)
}

// skip notes checks that cannot be made here.
func (p *probe) skip(check, why string) {
	p.report.Results = append(p.report.Results, Result{Subject: p.subject, Check: check, Outcome: Skip, Got: why})
}

// until asks again until a fact holds or the wait is over, and makes a row of the last answer.
func (p *probe) until(check, kind string, data any, f fact) {
	deadline := time.NewTimer(p.config.Wait)
	defer deadline.Stop()
	for {
		a := p.ask(kind, data)
		late := false
		if !f.holds(a) {
			select {
			case <-deadline.C:
				late = true
			case <-p.ctx.Done():
				late = true
			case <-time.After(50 * time.Millisecond):
				continue
			}
		}
		p.row(check, f.says+" within "+p.config.Wait.String(), !late, a.String())
		return
	}
}
