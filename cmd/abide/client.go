package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"abide/client"
	"abide/internal/cli"
	"abide/protocol"
)

// Further exit codes of the commands that wait for a promise.
const (
	exitRejected = 3 // it was rejected, canceled, or timed out
	exitPending  = 4 // it is still pending after the time that was given
)

// clientCommands are the commands that speak to a server. Names, flags and exit codes are those of the reference's, and
// more. (docs/cli.md)
type clientCommands struct {
	Promises   promisesCommand   `cmd:"" aliases:"promise" help:"Get, create, settle and search promises."`
	Tasks      tasksCommand      `cmd:"" aliases:"task" help:"Look at tasks, ask why one does not run, and do what workers do."`
	Schedules  schedulesCommand  `cmd:"" aliases:"schedule" help:"Get, create, delete and search schedules, and preview when one would run."`
	Invoke     invokeCommand     `cmd:"" help:"Call a function: create the promise that a worker executes, and wait for it if asked."`
	Wait       waitCommand       `cmd:"" help:"Wait until a promise is settled."`
	Tree       treeCommand       `cmd:"" help:"Show a promise and everything that was called below it."`
	MCP        mcpCommand        `cmd:"" name:"mcp" help:"Let assistants work with promises: serve the Model Context Protocol."`
	Completion completionCommand `cmd:"" help:"Print a script that completes this command's words in a shell."`
	Complete   completeCommand   `cmd:"" name:"__complete" hidden:""`
}

// serverFlags are on every command that speaks to a server.
type serverFlags struct {
	Server   string   `short:"S" setting:"url" default:"http://localhost:8001" placeholder:"URL" help:"The server, with /w/NAME at its end for a workspace."`
	Token    string   `short:"T" setting:"token" placeholder:"TOKEN" help:"Sent with every request. In the variable, other users of this machine do not see it."`
	Deadline duration `default:"30s" placeholder:"DURATION" help:"How long one request may take, its repeats included."`
	JSON     *bool    `name:"json" negatable:"" help:"Print JSON, or with --no-json do not. By default, JSON where the output is no terminal."`
	UTC      bool     `name:"utc" help:"Show times in UTC alone."`
}

// duration is a span of time of the client commands: units are required, as the reference does, so that nobody writes
// seconds and gets milliseconds. An empty one is zero.
type duration int64 // milliseconds

// UnmarshalText parses a span; kong calls it.
func (d *duration) UnmarshalText(text []byte) error {
	s := string(text)
	if s == "" {
		*d = 0
		return nil
	}
	ms, err := parseMilliseconds(s)
	switch {
	case err != nil:
		return err
	case strings.Trim(s, "0123456789") == "":
		return fmt.Errorf("%q has no unit: write %ss or %sms", s, s, s)
	case ms == 0:
		return fmt.Errorf("%q is no time at all", s)
	}
	*d = duration(ms)
	return nil
}

// after is the instant that lies d after nowMs, in epoch milliseconds.
func (d duration) after(nowMs int64) int64 { return nowMs + int64(d) }

// clientError is a failure of a client command: one line, and the exit code.
type clientError struct {
	code int
	text string // empty if all is said already
}

func (e clientError) Error() string { return e.text }

func failed(format string, args ...any) error {
	return clientError{exitFailure, fmt.Sprintf(format, args...)}
}

// session is one run of a client command.
type session struct {
	in     surroundings
	flags  *serverFlags
	client *client.Client
	ctx    context.Context // ends with an interrupt
	json   bool
	line   bool // JSON on one line
}

// open makes the session; stop ends it.
func (f *serverFlags) open(in surroundings) (s *session, stop func(), err error) {
	c, err := client.New(client.Options{URL: f.Server, Token: f.Token, HTTP: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}})
	if err != nil {
		return nil, nil, usageError{err}
	}
	s = &session{in: in, flags: f, client: c, json: !in.terminal}
	if f.JSON != nil {
		s.json = *f.JSON
	}
	ctx, cancel := in.untilSignal()
	s.ctx = ctx
	return s, cancel, nil
}

// screen is how texts are made now.
func (s *session) screen() cli.Screen {
	zone := s.in.zone
	switch {
	case s.flags.UTC:
		zone = time.UTC
	case zone == nil:
		zone = time.Local
	}
	return cli.Screen{Colour: s.in.coloured(), Zone: zone, NowMs: s.in.nowMs()}
}

// nowMs is the time of this machine, or of a test.
func (in surroundings) nowMs() int64 {
	if in.now != nil {
		return in.now()
	}
	return time.Now().UnixMilli()
}

// coloured tells whether the output is a terminal that understands colours, and whose user has not refused them.
func (in surroundings) coloured() bool {
	return in.terminal && in.variable("NO_COLOR") == "" && in.variable("TERM") != "dumb" &&
		(runtime.GOOS != "windows" || in.variable("WT_SESSION") != "")
}

func (in surroundings) variable(name string) string {
	for _, entry := range in.environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// bounded is the context of one request.
func (s *session) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, time.Duration(s.flags.Deadline)*time.Millisecond)
}

// data sends a request and gives the data of its success. That a suspend was not needed is one.
func (s *session) data(req protocol.Request) (protocol.Data, error) {
	ctx, cancel := s.bounded()
	defer cancel()
	response, err := s.client.Do(ctx, req)
	if err != nil {
		return nil, s.explain(err)
	}
	if response.Status == protocol.StatusOK || response.Status == protocol.StatusPreload && req.Kind() == protocol.KindTaskSuspend {
		return response.Data, nil
	}
	return nil, s.explain(&client.Error{Kind: req.Kind(), Status: response.Status, Message: response.Message()})
}

// view makes the text of an answer's data for a person.
type view func(cli.Screen, protocol.Data) (string, error)

// viewOf makes a view of a decoder and what shows its result.
func viewOf[B any](decode func(protocol.Data) (B, error), show func(cli.Screen, B) string) view {
	return func(screen cli.Screen, data protocol.Data) (string, error) {
		body, err := decode(data)
		if err != nil {
			return "", failed("the answer's data: %v", err)
		}
		return show(screen, body), nil
	}
}

// done is the view of an answer without data.
func done(text string) view {
	return func(cli.Screen, protocol.Data) (string, error) { return text + "\n", nil }
}

// text is an answer as it is to be printed.
func (s *session) text(data protocol.Data, show view) (string, error) {
	switch {
	case s.json && s.line:
		return cli.Line(data), nil
	case s.json:
		return cli.Pretty(data), nil
	}
	return show(s.screen(), data)
}

// ask sends one request and prints its answer.
func (f *serverFlags) ask(in surroundings, req protocol.Request, show view) error {
	s, stop, err := f.open(in)
	if err != nil {
		return err
	}
	defer stop()
	data, err := s.data(req)
	if err != nil {
		return err
	}
	text, err := s.text(data, show)
	if err != nil {
		return err
	}
	return s.print(text)
}

func (s *session) print(text string) error {
	_, err := io.WriteString(s.in.stdout, text)
	return err
}

// explain makes a message that a person can act on.
func (s *session) explain(err error) error {
	var answer *client.Error
	var unsent *url.Error
	switch {
	case s.ctx.Err() != nil:
		return failed("interrupted")
	case errors.As(err, &answer):
		text := fmt.Sprintf("%s (%d)", cli.Printable(answer.Message), answer.Status)
		switch {
		case answer.Status == protocol.StatusConflict && strings.HasPrefix(string(answer.Kind), "task."):
			text += "; abide tasks explain ID says what holds it"
		case answer.Status == http.StatusUnauthorized && s.flags.Token == "":
			text += "; give a token with ABIDE_TOKEN or --token"
		case answer.Status == http.StatusUnauthorized:
			text += "; the token is no good here: it has expired, is not signed by a key of this server, or is for another (abide token show)"
		case errors.Is(err, client.ErrUnknownOutcome):
			text += "; look at the record before you repeat the command"
		}
		return failed("%s", text)
	}
	reason := err
	if errors.As(err, &unsent) {
		reason = unsent.Err
	}
	server := withoutPassword(s.flags.Server)
	text := fmt.Sprintf("Connection error: %s: %s", server, cli.Printable(reason.Error()))
	if errors.Is(err, context.DeadlineExceeded) {
		text = fmt.Sprintf("Connection error: %s: no answer within %s (--deadline)", server, cli.Span(int64(s.flags.Deadline)))
	}
	if errors.Is(err, client.ErrUnknownOutcome) {
		return failed("%s. The request may have had its effect: look at the record before you repeat the command", text)
	}
	return failed("%s. Is a server running there? Name another one with ABIDE_URL or --server", text)
}

// request makes a request of a kind's data, as JSON, with the checks that a server makes.
func request(kind protocol.Kind, data []byte) (protocol.Request, error) {
	var body bytes.Buffer
	fmt.Fprintf(&body, `{"kind":%q,"head":{"corrId":"0","version":%q},"data":%s}`, kind, protocol.Version, data)
	env, err := protocol.DecodeEnvelope(body.Bytes())
	if err != nil {
		return nil, failed("%v", err)
	}
	req, err := protocol.DecodeRequest(env.Kind, env.Data)
	if err != nil {
		return nil, failed("%v", err)
	}
	return req, nil
}

// commandFirst moves client flags that stand before the command behind it, where the parser knows them.
func commandFirst(args []string) []string {
	n := 0
	for n < len(args) {
		name, _, joined := strings.Cut(args[n], "=")
		switch {
		case slices.Contains([]string{"--json", "--no-json", "--utc"}, name):
			n++
		case slices.Contains([]string{"-S", "-T", "--server", "--token", "--deadline"}, name) && !joined:
			n += 2
		case slices.Contains([]string{"--server", "--token", "--deadline"}, name), strings.HasPrefix(name, "-S"), strings.HasPrefix(name, "-T"):
			n++
		default:
			return append(append([]string{args[n]}, args[:n]...), args[n+1:]...)
		}
	}
	return args
}
