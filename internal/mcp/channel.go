package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"

	"abide/client"
	"abide/protocol"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// channelMethod is the notification that a promise has settled. The specification has no such thing; this is the
// method that the reference's server uses.
const channelMethod = "notifications/claude/channel"

// group is the group of the streams on which the ends of promises come in; each session is a worker of its own.
const group = "mcp"

// channel tells the client of a session that promises have settled. It is the session's transport as well, since the
// SDK sends no notifications that it does not know.
type channel struct {
	sdk.Transport
	pid string

	mu        sync.Mutex
	conn      sdk.Connection // nil until the session begins
	ctx       context.Context
	streaming bool
	running   sync.WaitGroup
}

func newChannel(ctx context.Context, t sdk.Transport) *channel {
	return &channel{Transport: t, ctx: ctx, pid: fmt.Sprintf("mcp-%016x%016x", rand.Uint64(), rand.Uint64())}
}

// Connect begins the session.
func (c *channel) Connect(ctx context.Context) (sdk.Connection, error) {
	conn, err := c.Transport.Connect(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	return conn, err
}

// listen registers the session for the end of a promise, and returns the promise. One that is settled already is told
// at once: nothing else would.
func (c *channel) listen(ctx context.Context, from *client.Client, id string) (protocol.Promise, error) {
	c.stream(from)
	p, err := from.PromiseRegisterListener(ctx, id, "poll://uni@"+group+"/"+url.PathEscape(c.pid))
	if err == nil && p.State != protocol.Pending {
		c.tell(p)
	}
	return p, err
}

// stream opens the stream of the session, once; it stays open as long as the session does, whatever happens to the
// server.
func (c *channel) stream(from *client.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streaming {
		return
	}
	c.streaming = true
	c.running.Go(func() {
		_ = from.Poll(c.ctx, group, c.pid, func(m protocol.Message) error {
			if m.Kind == protocol.MessageUnblock {
				c.tell(m.Promise)
			}
			return nil
		})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.streaming = false // refused for good; the next listen tries again
	})
}

// statuses are the ends of a promise as the notification names them.
var statuses = map[protocol.PromiseState]string{
	protocol.Resolved: "resolved", protocol.Rejected: "rejected", protocol.RejectedTimedout: "timedout", protocol.RejectedCanceled: "canceled",
}

// tell sends the notification. A client that is gone cannot be told.
func (c *channel) tell(p protocol.Promise) {
	status := statuses[p.State]
	if status == "" {
		status = "unknown"
	}
	params, _ := json.Marshal(map[string]any{ // strings
		"content": string(p.AppendJSON(nil)), "meta": map[string]string{"handle": p.ID, "status": status},
	})
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn != nil {
		_ = conn.Write(c.ctx, &jsonrpc.Request{Method: channelMethod, Params: params})
	}
}
