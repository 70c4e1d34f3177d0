package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"abide/client"
	"abide/internal/cli"
	"abide/protocol"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var utc = time.UTC

// Times of promise-wait and resonate-bash, in milliseconds.
const (
	defaultWaitMs = 30_000
	maxWaitMs     = 300_000 // clients give a call up after some minutes
	defaultBashMs = 300_000
)

type waitInput struct {
	ID        string `json:"id"`
	TimeoutMs int64  `json:"timeoutMs,omitempty"`
}

type bashInput struct {
	Script    string            `json:"script"`
	ID        string            `json:"id,omitempty"`
	TimeoutMs int64             `json:"timeoutMs,omitempty"`
	Target    string            `json:"target,omitempty"`
	Tags      map[string]string `json:"tags,omitempty"`
}

// waitingTools are the tools whose result comes later.
func (s *server) waitingTools(to *sdk.Server) {
	tool(s, to, &sdk.Tool{
		Name: "promise-listen", Annotations: annotations("Listen to a promise", adds, false),
		Description: "Ask to be told when a promise settles: a notification notifications/claude/channel follows then. Returns the promise as it is now. Over HTTP there are no notifications: use promise-wait.",
		InputSchema: schema([]string{"id"}, map[string]any{"id": property("string", idHelp)}),
	}, func(ctx context.Context, c *client.Client, in idInput) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if s.channel == nil {
			return nil, errors.New("over HTTP there are no notifications; use promise-wait, which returns when the promise settles")
		}
		p, err := s.channel.listen(ctx, c, in.ID)
		return promiseJSON(p), err
	})
	tool(s, to, &sdk.Tool{
		Name: "promise-wait", Annotations: annotations("Wait for a promise", readsOnly, false),
		Description: "Wait until a promise settles and return it; after timeoutMs it is returned still pending.",
		InputSchema: schema([]string{"id"}, map[string]any{
			"id": property("string", idHelp), "timeoutMs": property("integer", fmt.Sprintf("How long to wait, up to %d; %d by default.", maxWaitMs, defaultWaitMs)),
		}),
	}, func(ctx context.Context, c *client.Client, in waitInput) ([]byte, error) {
		p, err := await(ctx, c, in)
		return promiseJSON(p), err
	})
	tool(s, to, &sdk.Tool{
		Name: "resonate-bash", Annotations: annotations("Run a script", changes, true),
		Description: "Have a worker run a bash script, durably: creates a promise that settles with the script's output, and listens to it.",
		InputSchema: schema([]string{"script"}, map[string]any{
			"script": map[string]any{"type": "string", "minLength": 1, "description": "The script."}, "id": property("string", "The promise's id; one is made up by default."),
			"timeoutMs": property("integer", fmt.Sprintf("How long it may take; %d by default.", defaultBashMs)),
			"target":    property("string", "The address that runs it; bash:// by default."), "tags": tags("More tags of the promise."),
		}),
	}, s.bash)
}

// await waits within the bounds of a call. A promise that is still pending then is no error.
func await(ctx context.Context, c *client.Client, in waitInput) (protocol.Promise, error) {
	ms := in.TimeoutMs
	if ms == 0 {
		ms = defaultWaitMs
	}
	if ms < 0 || ms > maxWaitMs {
		return protocol.Promise{}, fmt.Errorf("timeoutMs must be from 1 to %d, not %d", maxWaitMs, ms)
	}
	short, cancel := context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
	defer cancel()
	p, err := c.Await(short, in.ID)
	if err == nil || short.Err() == nil || ctx.Err() != nil {
		return p, err
	}
	last, cancelLast := context.WithTimeout(ctx, callTimeout)
	defer cancelLast()
	return c.PromiseGet(last, in.ID)
}

// bash creates the promise of a script.
func (s *server) bash(ctx context.Context, c *client.Client, in bashInput) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	now := s.o.NowMs()
	if in.ID == "" {
		in.ID = fmt.Sprintf("bash-%d-%06d", now, rand.IntN(1_000_000))
	}
	if in.TimeoutMs == 0 {
		in.TimeoutMs = defaultBashMs
	}
	if in.TimeoutMs < 0 {
		return nil, fmt.Errorf("timeoutMs must be at least 1, not %d", in.TimeoutMs)
	}
	if in.Target == "" {
		in.Target = "bash://"
	}
	data := cli.RawData([]byte(in.Script))
	p, err := c.PromiseCreate(ctx, protocol.PromiseCreate{
		ID: in.ID, TimeoutAt: now + in.TimeoutMs, Param: cli.MakePayload(nil, &data), Tags: cli.Tags(in.Tags).With(protocol.TagTarget, in.Target),
	})
	if err != nil {
		return nil, err
	}
	listening := false
	if s.channel != nil && p.State == protocol.Pending {
		if p, err = s.channel.listen(ctx, c, in.ID); err != nil {
			return nil, fmt.Errorf("the promise %s is created, but its end cannot be listened to: %w", in.ID, err)
		}
		listening = p.State == protocol.Pending
	}
	return json.Marshal(struct {
		Promise            json.RawMessage `json:"promise"`
		ListenerRegistered bool            `json:"listener_registered"`
		Target             string          `json:"target"`
	}{p.AppendJSON(nil), listening, in.Target})
}
