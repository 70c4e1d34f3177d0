package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"abide/internal/cli"
	"abide/protocol"
)

// invokeCommand calls a function of a worker.
type invokeCommand struct {
	serverFlags
	ID       string   `arg:"" help:"The id of the call, and of its promise."`
	Func     string   `short:"f" required:"" placeholder:"NAME" help:"The function, as workers have registered it."`
	Arg      []string `sep:"none" placeholder:"VALUE" help:"An argument: JSON, or any other text as a string. Repeatable. One that begins with a hyphen needs --arg=-5."`
	JSONArgs string   `name:"json-args" placeholder:"JSON" help:"All arguments, as an array; --arg is not looked at then."`
	Version  int64    `default:"1" placeholder:"N" help:"The version of the function."`
	Timeout  duration `short:"t" default:"1h" placeholder:"DURATION" help:"How long the call may take."`
	Target   string   `default:"poll://any@default" placeholder:"ADDRESS" help:"Which workers."`
	Delay    duration `placeholder:"DURATION" help:"Not before then, from now."`
	Wait     bool     `help:"Wait for the result and print that; exit 3 if it is no success."`
}

// Validate checks the values; kong calls it.
func (c *invokeCommand) Validate() error {
	if c.Version < 1 {
		return errors.New("--version must be at least 1")
	}
	return positive("timeout", c.Timeout)
}

// Run creates the promise of the call.
func (c *invokeCommand) Run(in surroundings) error {
	param, err := c.param()
	if err != nil {
		return err
	}
	now := in.nowMs()
	req := &protocol.PromiseCreate{ID: c.ID, TimeoutAt: c.Timeout.after(c.Delay.after(now)), Param: param, Tags: c.tags(now)}
	if !c.Wait {
		return c.ask(in, req, showPromise)
	}
	s, stop, err := c.open(in)
	if err != nil {
		return err
	}
	defer stop()
	if _, err := s.data(req); err != nil {
		return err
	}
	return s.await(c.ID, 0)
}

// tags are those of the root of a call tree, as SDKs set them, so that abide tree finds what is below.
func (c *invokeCommand) tags(nowMs int64) protocol.Tags {
	tags := map[string]string{
		protocol.TagTarget: c.Target, protocol.TagScope: "global",
		protocol.TagOrigin: c.ID, protocol.TagBranch: c.ID, protocol.TagParent: c.ID,
	}
	if c.Delay > 0 {
		tags[protocol.TagDelay] = strconv.FormatInt(c.Delay.after(nowMs), 10)
	}
	return cli.Tags(tags)
}

// param is the call as SDKs read it.
func (c *invokeCommand) param() (protocol.Value, error) {
	args := make([]json.RawMessage, 0, len(c.Arg))
	if c.JSONArgs != "" {
		if err := json.Unmarshal([]byte(c.JSONArgs), &args); err != nil || args == nil {
			return nil, failed("Invalid --json-args JSON: it must be an array of the arguments")
		}
	} else {
		for _, arg := range c.Arg {
			text := json.RawMessage(arg)
			if !json.Valid(text) {
				text, _ = json.Marshal(arg) // a string
			}
			args = append(args, text)
		}
	}
	var call bytes.Buffer
	encoder := json.NewEncoder(&call)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(struct {
		Func    string            `json:"func"`
		Args    []json.RawMessage `json:"args"`
		Version int64             `json:"version"`
	}{c.Func, args, c.Version})
	if err != nil {
		return nil, err
	}
	data := cli.RawData(bytes.TrimSuffix(call.Bytes(), []byte("\n")))
	return cli.MakePayload(map[string]string{}, &data), nil
}

// waitCommand waits for a promise.
type waitCommand struct {
	serverFlags
	ID      string   `arg:"" help:"Its id."`
	Timeout duration `short:"t" placeholder:"DURATION" help:"Give up after so long, with exit code 4; by default, never."`
}

// Run waits.
func (c *waitCommand) Run(in surroundings) error {
	s, stop, err := c.open(in)
	if err != nil {
		return err
	}
	defer stop()
	return s.await(c.ID, c.Timeout)
}

// await waits for a promise and prints it; at most for so long, 0 for ever. What the promise became is in the exit code.
func (s *session) await(id string, atMost duration) error {
	ctx, cancel := context.WithCancel(s.ctx)
	if atMost > 0 {
		ctx, cancel = context.WithTimeout(s.ctx, time.Duration(atMost)*time.Millisecond)
	}
	defer cancel()
	p, err := s.client.Await(ctx, id)
	switch {
	case err != nil && s.ctx.Err() != nil:
		return failed("interrupted; the promise goes on without you")
	case err != nil && ctx.Err() != nil:
		return clientError{exitPending, "the promise is still pending after " + cli.Span(int64(atMost))}
	case err != nil:
		return s.explain(err)
	}
	text, err := s.text(protocol.PromiseBody{Promise: p}.AppendJSON(nil), showPromise)
	if err == nil {
		err = s.print(text)
	}
	if err == nil && p.State != protocol.Resolved {
		err = clientError{code: exitRejected}
	}
	return err
}
