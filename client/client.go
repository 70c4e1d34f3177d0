// Package client speaks the protocol to a server: one method per kind of request, Poll for a worker's messages, and
// Await for the end of a promise. Requests and records are the types of package protocol.
//
// A request is repeated on its own where that is safe: always when the server says that nothing was changed (503, 429)
// or was never reached, and the pause is what its Retry-After asks for; after an outcome that nobody knows only for the
// kinds of which Repeatable says so. Every call ends with its context.
package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

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
	// come from each call's context. A client with a timeout ends every stream of Poll when it is over. Redirects are not
	// followed, since requests hold the token, unless it has a CheckRedirect.
	HTTP *http.Client
	// DebugTime, if not nil, gives the instant that every request is to happen at, in epoch milliseconds. A
	// server obeys it only with debug on.
	DebugTime func() int64
	// Retry bounds the repeats of a request; the zero value stands for the defaults.
	Retry Retry
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
	// RetryAfter is how long the server asks to wait before the request is sent again; 0 if it does not ask.
	RetryAfter time.Duration
}

// Error is for people and logs.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (status %d)", e.Kind, e.Message, e.Status)
}

// Is makes an answer 500 an ErrUnknownOutcome, as the protocol says of it, unless the request changes nothing anyway.
func (e *Error) Is(target error) bool {
	return target == ErrUnknownOutcome && e.Status == protocol.StatusInternal && !readOnly(e.Kind)
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
		if of := (*url.Error)(nil); errors.As(err, &of) {
			err = of.Err // without the URL, in which a password may stand
		}
		return nil, fmt.Errorf("the server's URL cannot be read: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the server's URL %q must begin with http:// or https:// and a host, and hold no query", u.Redacted())
	}
	if o.HTTP == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = transport.MaxIdleConns
		o.HTTP = &http.Client{Transport: transport}
	}
	o.HTTP = staying(o.HTTP)
	return &Client{options: o, base: strings.TrimRight(o.URL, "/")}, nil
}

// Do sends any request and returns the answer, whatever its status is, after the repeats that Options.Retry allows. An
// error means that there was no answer of the protocol; if the request may have had its effect all the same, it is an
// ErrUnknownOutcome.
func (c *Client) Do(ctx context.Context, req protocol.Request) (protocol.Response, error) {
	response, _, err := c.do(ctx, req)
	return response, err
}

// exchange sends one request once.
func (c *Client) exchange(ctx context.Context, kind protocol.Kind, body []byte) attempt {
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/", bytes.NewReader(body))
	if err != nil {
		return attempt{outcome: final, err: err}
	}
	post.Header.Set("Content-Type", "application/json")
	c.authorize(post)
	answer, err := c.options.HTTP.Do(post)
	if err != nil {
		return attempt{outcome: outcomeOf(err), err: err}
	}
	defer answer.Body.Close()
	if err := redirected(answer); err != nil {
		return attempt{outcome: final, err: fmt.Errorf("%s: %w", kind, err)}
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes+1))
	if err != nil {
		return attempt{outcome: unknown, err: fmt.Errorf("%s: reading the answer: %w", kind, err)}
	}
	if len(text) > maxAnswerBytes {
		return attempt{outcome: final, err: fmt.Errorf("%s: the answer is longer than %d bytes", kind, maxAnswerBytes)}
	}
	a := attempt{pause: retryAfter(answer.Header), outcome: outcomeOfStatus(answer.StatusCode)}
	if a.response, err = protocol.DecodeResponse(text); err != nil {
		a.err = fmt.Errorf("%s: the answer (HTTP status %d) is none of the protocol's: %w: %.*q",
			kind, answer.StatusCode, err, shownBytes, text)
		if a.outcome == final && answer.StatusCode < 300 {
			a.outcome = unknown // an answer was begun
		}
	}
	return a
}

func (c *Client) authorize(r *http.Request) {
	if c.options.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.options.Token)
	}
}

// call sends req and decodes the data of a success.
func call[B any](ctx context.Context, c *Client, req protocol.Request, decode func(protocol.Data) (B, error)) (B, error) {
	var none B
	response, pause, err := c.do(ctx, req)
	if err != nil {
		return none, err
	}
	if response.Status != protocol.StatusOK {
		return none, failure(req.Kind(), response, pause)
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

func failure(kind protocol.Kind, r protocol.Response, pause time.Duration) error {
	return &Error{Kind: kind, Status: r.Status, Message: r.Message(), RetryAfter: pause}
}
