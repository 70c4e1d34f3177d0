package mcp

import (
	"context"
	"encoding/json"
	"fmt"

	"abide/client"
	"abide/internal/cli"
	"abide/protocol"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const idHelp = "The promise's id."

// payloadHelp is of param and value.
const payloadHelp = "An object with headers (an object of strings) and data (anything), each of which may be left out. The data is base64-encoded: a string as it is, anything else as its JSON text."

type idInput struct {
	ID string `json:"id"`
}

type createInput struct {
	ID        string            `json:"id"`
	TimeoutAt int64             `json:"timeout_at"`
	Param     json.RawMessage   `json:"param,omitempty"`
	Tags      map[string]string `json:"tags,omitempty"`
}

type settleInput struct {
	ID         string          `json:"id"`
	Resolution string          `json:"resolution"`
	Value      json.RawMessage `json:"value,omitempty"`
}

type searchInput struct {
	State  string            `json:"state,omitempty"`
	Tags   map[string]string `json:"tags,omitempty"`
	Limit  int               `json:"limit,omitempty"`
	Cursor string            `json:"cursor,omitempty"`
}

// payload reads an argument that is a payload; nothing and null are none.
func payload(name string, text json.RawMessage) (protocol.Value, error) {
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	v, err := cli.Payload(string(text), true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

var resolutions = map[string]protocol.PromiseState{
	"resolve": protocol.Resolved, "reject": protocol.Rejected, "cancel": protocol.RejectedCanceled,
}

// promiseTools are the tools that work with promises and return at once.
func (s *server) promiseTools(to *sdk.Server) {
	tool(s, to, &sdk.Tool{
		Name: "promise-create", Annotations: annotations("Create a promise", adds, false),
		Description: "Create a durable promise. If there is one with this id already, it is returned unchanged.",
		InputSchema: schema([]string{"id", "timeout_at"}, map[string]any{
			"id": property("string", idHelp), "timeout_at": property("integer", "When it times out, in epoch milliseconds."),
			"param": property("", payloadHelp), "tags": tags("Its tags. resonate:target is the address of the workers that execute it."),
		}),
	}, func(ctx context.Context, c *client.Client, in createInput) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		param, err := payload("param", in.Param)
		if err != nil {
			return nil, err
		}
		p, err := c.PromiseCreate(ctx, protocol.PromiseCreate{ID: in.ID, TimeoutAt: in.TimeoutAt, Param: param, Tags: cli.Tags(in.Tags)})
		return promiseJSON(p), err
	})
	tool(s, to, &sdk.Tool{
		Name: "promise-get", Annotations: annotations("Read a promise", readsOnly, false),
		Description: "Read a promise: its state, param, value, tags and times. The data of param and value is base64.",
		InputSchema: schema([]string{"id"}, map[string]any{"id": property("string", idHelp)}),
	}, func(ctx context.Context, c *client.Client, in idInput) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		p, err := c.PromiseGet(ctx, in.ID)
		return promiseJSON(p), err
	})
	tool(s, to, &sdk.Tool{
		Name: "promise-settle", Annotations: annotations("Settle a promise", changes, false),
		Description: "Resolve, reject or cancel a promise, for good: what waits for it goes on. One that is settled already is returned unchanged.",
		InputSchema: schema([]string{"id", "resolution"}, map[string]any{
			"id": property("string", idHelp), "resolution": oneOf("How.", "resolve", "reject", "cancel"), "value": property("", payloadHelp),
		}),
	}, func(ctx context.Context, c *client.Client, in settleInput) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		value, err := payload("value", in.Value)
		if err != nil {
			return nil, err
		}
		p, err := c.PromiseSettle(ctx, protocol.PromiseSettle{ID: in.ID, State: resolutions[in.Resolution], Value: value})
		return promiseJSON(p), err
	})
	tool(s, to, &sdk.Tool{
		Name: "promise-search", Annotations: annotations("Search promises", readsOnly, false),
		Description: "List promises by state and tags, in pages. With a cursor in the result there may be more: call again with it.",
		InputSchema: schema([]string{}, map[string]any{
			"state": property("string", "pending, resolved, rejected, rejected_canceled or rejected_timedout."), "tags": tags("All of these tags."),
			"limit": property("integer", "The largest number to list, 1 to 1000; 100 by default."), "cursor": property("string", "That of the page before."),
		}),
	}, func(ctx context.Context, c *client.Client, in searchInput) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		body, err := c.PromiseSearch(ctx, protocol.PromiseSearch{State: protocol.PromiseState(in.State), Tags: cli.Tags(in.Tags), Limit: in.Limit, Cursor: in.Cursor})
		return body.AppendJSON(nil), err
	})
	tool(s, to, &sdk.Tool{
		Name: "task-explain", Annotations: annotations("Explain a task", readsOnly, false),
		Description: "Say why the task of a promise is not running: no worker, delayed, halted, leased to a worker, waiting for promises.",
		InputSchema: schema([]string{"id"}, map[string]any{"id": property("string", "The task's id, that of its promise.")}),
	}, func(ctx context.Context, c *client.Client, in idInput) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		body, err := c.TaskExplain(ctx, in.ID)
		return cli.Screen{NowMs: s.o.NowMs(), Zone: utc}.ExplainJSON(cli.Facts{ExplainBody: body}), err
	})
}
