// Package conform checks a running server of the Distributed Async Await protocol from outside, over HTTP, as
// docs/protocol.md and docs/machine.md describe it: every kind of request and status, the order in which
// a request is judged, the messages to workers, and, where it is allowed, the debug clock.
//
// It works against any server. What only Abide promises is checked where the server has workspaces, which no
// other has. All ids begin with a prefix that the caller makes unique, and where there are workspaces the
// checks use one of their own, so that a server in use is not disturbed; what they leave is settled.
//
// A file holds the checks of one subject. probe.go is how a check asks and judges, stream.go a worker's
// message stream.
package conform

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config says what to check. Fields without a default are required.
type Config struct {
	// URL is the server's base URL, http or https. If its path names a workspace, that one is used.
	URL string
	// Token is sent with every request; empty for none.
	Token string
	// Prefix begins every id, group and workspace that is made: 1 to 32 letters, digits or "-", new for each run.
	Prefix string
	// Wait is how long a message or a timer of the server may take. Default 10 s.
	Wait time.Duration
	// NowMs is the caller's clock in epoch milliseconds. Only its pace matters: the server's own time is asked for.
	NowMs func() int64
	// HTTP does the requests; it must have no timeout. Default: one of this package's own.
	HTTP *http.Client
}

// Outcome is what became of one check.
type Outcome string

// The outcomes. A check is skipped if the server does not offer what it needs; Got says what.
const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	Skip Outcome = "skip"
)

// Result is one row of the report.
type Result struct {
	Subject  string  `json:"subject"`
	Check    string  `json:"check"`
	Outcome  Outcome `json:"outcome"`
	Expected string  `json:"expected"`
	// Got is empty if the check passed.
	Got string `json:"got,omitempty"`
}

// Report is what Run found, in the order of the checks.
type Report struct {
	URL       string   `json:"url"`
	Workspace string   `json:"workspace,omitempty"` // made for the checks; empty if the server has none, or the URL names one
	Results   []Result `json:"results"`
	// Left are the ids of the promises that stay, all of them settled.
	Left []string `json:"left"`
}

// Count returns how many results have an outcome.
func (r Report) Count(o Outcome) int {
	n := 0
	for _, result := range r.Results {
		if result.Outcome == o {
			n++
		}
	}
	return n
}

// subjects are all checks, in the order in which they are made.
var subjects = []struct {
	name string
	run  func(*probe)
}{
	{"http", checkHTTP},
	{"envelope", checkEnvelope},
	{"promise", checkPromises},
	{"promise rules", checkPromiseRules},
	{"listener", checkListeners},
	{"task", checkTasks},
	{"task order", checkTaskOrder},
	{"fence", checkFences},
	{"suspend", checkSuspends},
	{"halt", checkHalts},
	{"heartbeat", checkHeartbeats},
	{"search", checkSearches},
	{"schedule", checkSchedules},
	{"messages", checkMessages},
	{"streams", checkStreams},
	{"time", checkTime},
	{"debug", checkDebug},
}

// Run makes all checks. The error says why the server could not be asked at all; what a check finds is in
// the report, which also holds what was done before ctx ended.
func Run(ctx context.Context, c Config) (Report, error) {
	if c.Wait == 0 {
		c.Wait = 10 * time.Second
	}
	if c.HTTP == nil {
		c.HTTP = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	u, err := url.Parse(c.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return Report{}, fmt.Errorf("the server's URL %q must begin with http:// or https:// and a host", c.URL)
	}
	p := &probe{ctx: ctx, config: c, base: strings.TrimRight(c.URL, "/"), made: map[string]bool{}}
	p.report.URL = c.URL
	if err := p.reach(); err != nil {
		return p.report, err
	}
	for _, s := range subjects {
		p.subject = s.name
		s.run(p)
		if ctx.Err() != nil {
			return p.report, ctx.Err()
		}
		if p.silent >= maxSilent {
			return p.report, errSilent
		}
	}
	p.cleanUp()
	return p.report, nil
}

// reach finds out whether there is a server, whether it has workspaces and what time it has.
func (p *probe) reach() error {
	status, _, err := p.get(p.base + "/health")
	if err != nil {
		return fmt.Errorf("no server answers at %s: %w", p.base, err)
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s/health answers %d, want 200", p.base, status)
	}
	if !strings.Contains(p.base, "/w/") {
		own := p.base + "/w/verify-" + p.config.Prefix
		if status, _, err := p.get(own + "/health"); err == nil && status == http.StatusOK {
			p.base, p.own = own, true
			p.report.Workspace = "verify-" + p.config.Prefix
		}
	}
	before := p.config.NowMs() // so that an answer that is slow makes deadlines later, never earlier
	first := p.ask("promise.create", object{"id": p.id("clock"), "timeoutAt": int64(1) << 53})
	created, is := number(first.at("promise.createdAt"))
	if !is {
		return fmt.Errorf("the server refuses a plain promise.create: %s", first)
	}
	p.ahead = created - before
	return nil
}

// cleanUp settles what is pending and names what stays. Debug time, if it was used, is over by then.
func (p *probe) cleanUp() {
	for _, id := range p.order {
		answer := p.ask("promise.settle", object{"id": id, "state": "rejected_canceled", "value": object{}})
		if answer.status == http.StatusOK {
			p.report.Left = append(p.report.Left, id)
		}
	}
}
