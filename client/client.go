// Package client speaks the protocol to a server: one method per kind of request, and Poll for a worker's
// messages. Requests and records are the types of package protocol.
package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"abide/protocol"
)

// maxAnswerBytes bounds one answer. A page of search results, or a preload, may be far larger than a request.
const maxAnswerBytes = 256 << 20

// shownBytes is how much of an answer that is none of the protocol's is shown in the error.
const shownBytes = 200

// Options say which server a Client speaks to, and how.
type Options struct {
	// URL is the server's base URL, http or https; a path in it names a workspace, as in
	// http://localhost:8001/w/orders.
	URL string
	// Token is sent with every request, in the envelope and as a bearer token; empty for none.
	Token string
	// HTTP does the requests. Nil stands for a client of this package's own, without a timeout: deadlines
	// come from each call's context. A client with a timeout ends every stream of Poll when it is over.
	HTTP *http.Client
	// DebugTime, if not nil, gives the instant that every request is to happen at, in epoch milliseconds. A
	// server obeys it only with debug on.
	DebugTime func() int64
}

// Client speaks to one server, in one workspace. It is safe for concurrent use and keeps connections open
// between requests.
type Client struct {
	options Options
	base    string // without a slash at the end
	corrIDs atomic.Int64
}

// Error is an answer that is not a success: the server has understood who asked and said no. It is returned by
// every call but Do.
type Error struct {
	Kind    protocol.Kind
	Status  int    // one of protocol's
	Message string // for a person
}

// Error is for people and logs.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (status %d)", e.Kind, e.Message, e.Status)
}

// Status is the status of the answer that err reports, 0 if err reports none.
func Status(err error) int {
	var answer *Error
	if errors.As(err, &answer) {
		return answer.Status
	}
	return 0
}

// New returns a Client. It connects at the first request only.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, fmt.Errorf("the server's URL: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the server's URL %q must begin with http:// or https:// and a host, and hold no query", o.URL)
	}
	if o.HTTP == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = transport.MaxIdleConns
		o.HTTP = &http.Client{Transport: transport}
	}
	return &Client{options: o, base: strings.TrimRight(o.URL, "/")}, nil
}

// Do sends any request and returns the answer, whatever its status is. An error means that there was no
// answer of the protocol: the request may have had its effect or not, and since every kind is
// safe to repeat or guarded by a version, it may be sent again.
func (c *Client) Do(ctx context.Context, req protocol.Request) (protocol.Response, error) {
	head := protocol.Head{CorrID: strconv.FormatInt(c.corrIDs.Add(1), 10), Auth: c.options.Token}
	if c.options.DebugTime != nil {
		now := c.options.DebugTime()
		head.DebugTime = &now
	}
	body := protocol.AppendRequest(nil, head, req)
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/", bytes.NewReader(body))
	if err != nil {
		return protocol.Response{}, err
	}
	post.Header.Set("Content-Type", "application/json")
	c.authorize(post)
	answer, err := c.options.HTTP.Do(post)
	if err != nil {
		return protocol.Response{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes+1))
	if err != nil {
		return protocol.Response{}, fmt.Errorf("%s: reading the answer: %w", req.Kind(), err)
	}
	if len(text) > maxAnswerBytes {
		return protocol.Response{}, fmt.Errorf("%s: the answer is longer than %d bytes", req.Kind(), maxAnswerBytes)
	}
	response, err := protocol.DecodeResponse(text)
	if err != nil {
		return protocol.Response{}, fmt.Errorf("%s: the answer (HTTP status %d) is none of the protocol's: %w: %.*q",
			req.Kind(), answer.StatusCode, err, shownBytes, text)
	}
	return response, nil
}

func (c *Client) authorize(r *http.Request) {
	if c.options.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.options.Token)
	}
}

// call sends req and decodes the data of a success.
func call[B any](ctx context.Context, c *Client, req protocol.Request, decode func(protocol.Data) (B, error)) (B, error) {
	var none B
	response, err := c.Do(ctx, req)
	if err != nil {
		return none, err
	}
	if response.Status != protocol.StatusOK {
		return none, failure(req.Kind(), response)
	}
	body, err := decode(response.Data)
	if err != nil {
		return none, fmt.Errorf("%s: the answer's data: %w", req.Kind(), err)
	}
	return body, nil
}

// order is call for answers without data.
func order(ctx context.Context, c *Client, req protocol.Request) error {
	_, err := call(ctx, c, req, func(protocol.Data) (struct{}, error) { return struct{}{}, nil })
	return err
}

func failure(kind protocol.Kind, r protocol.Response) error {
	return &Error{Kind: kind, Status: r.Status, Message: r.Message()}
}
