// Package mcp lets assistants that speak the Model Context Protocol work with promises: a server of that protocol, on
// standard input and output or over HTTP, in front of any server of ours. It holds no state but the connection: every
// tool is one or two requests.
//
// The tools and their arguments are those of the reference's MCP server; promise-wait and task-explain are more.
// (docs/mcp.md)
package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"abide/client"
	"abide/internal/cli"
	"abide/protocol"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// callTimeout bounds the requests of one tool call; promise-wait has its own.
const callTimeout = 30 * time.Second

// Options say whose promises the tools work with.
type Options struct {
	URL     string       // of the server, perhaps with a workspace
	Token   string       // for callers that bring none of their own; empty for none
	Version string       // of this program
	NowMs   func() int64 // epoch milliseconds
	Log     *slog.Logger // what goes wrong; nil for nowhere
}

// server is the tools and what they need.
type server struct {
	o       Options
	http    *http.Client
	channel *channel // to the only session; nil over HTTP
}

func newServer(o Options, c *channel) (*server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &server{o: o, channel: c, http: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}}
	_, err := s.client(o.Token)
	return s, err
}

// client is a client with a token. Making one costs nothing: they share their connections.
func (s *server) client(token string) (*client.Client, error) {
	return client.New(client.Options{URL: s.o.URL, Token: token, HTTP: s.http})
}

// caller is a client with the token of whoever calls the tool, if there is one, else the server's own.
func (s *server) caller(r *sdk.CallToolRequest) (*client.Client, error) {
	token := s.o.Token
	if r.Extra != nil {
		if own, ok := bearer(r.Extra.Header); ok {
			token = own
		}
	}
	return s.client(token)
}

// bearer is the token in an Authorization header.
func bearer(h http.Header) (token string, ok bool) {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// build makes the SDK's server with all tools.
func (s *server) build() *sdk.Server {
	capabilities := &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}
	if s.channel != nil {
		capabilities.Experimental = map[string]any{"claude/channel": map[string]any{}}
	}
	built := sdk.NewServer(&sdk.Implementation{Name: "abide-mcp", Title: "Abide", Version: s.o.Version}, &sdk.ServerOptions{
		Capabilities: capabilities, Logger: s.o.Log,
		Instructions: "Durable promises: create one, settle it, search, wait for one to settle. Ids are chosen by you; creating and settling may be repeated safely.",
	})
	s.promiseTools(built)
	s.waitingTools(built)
	return built
}

// tool adds a tool. handle gets a client with the caller's token and gives the JSON of the result; its error is the
// tool's, which the assistant reads, not the protocol's.
func tool[In any](s *server, to *sdk.Server, t *sdk.Tool, handle func(context.Context, *client.Client, In) ([]byte, error)) {
	sdk.AddTool(to, t, func(ctx context.Context, r *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
		c, err := s.caller(r)
		if err != nil {
			return nil, nil, err
		}
		text, err := handle(ctx, c, in)
		if err != nil {
			return nil, nil, explained(err)
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: strings.TrimSuffix(cli.Pretty(text), "\n")}}}, nil, nil
	})
}

// explained is an error for an assistant.
func explained(err error) error {
	var answer *client.Error
	switch {
	case errors.As(err, &answer):
		return fmt.Errorf("%s (status %d)", answer.Message, answer.Status)
	case errors.Is(err, client.ErrUnknownOutcome):
		return fmt.Errorf("%w; look at the promise before you repeat this", err)
	}
	return err
}

// schema is the JSON schema of a tool's arguments.
func schema(required []string, properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "required": required, "properties": properties}
}

// property is one argument.
func property(kind, description string) map[string]any {
	p := map[string]any{"description": description}
	if kind != "" {
		p["type"] = kind
	}
	return p
}

func oneOf(description string, values ...string) map[string]any {
	p := property("string", description)
	p["enum"] = values
	return p
}

// tags is the schema of tags.
func tags(description string) map[string]any {
	p := property("object", description)
	p["additionalProperties"] = map[string]any{"type": "string"}
	return p
}

// effect says what a tool does to the world.
type effect int

const (
	readsOnly effect = iota
	adds             // nothing that exists is changed
	changes          // something that exists is changed for good
)

// annotations tell clients what to ask their user about. All but resonate-bash stay within the server.
func annotations(title string, e effect, openWorld bool) *sdk.ToolAnnotations {
	destructive := e == changes
	return &sdk.ToolAnnotations{
		Title: title, ReadOnlyHint: e == readsOnly, DestructiveHint: &destructive, IdempotentHint: true, OpenWorldHint: &openWorld,
	}
}

// promiseJSON is {promise}.
func promiseJSON(p protocol.Promise) []byte { return protocol.PromiseBody{Promise: p}.AppendJSON(nil) }
