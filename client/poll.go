package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"abide/protocol"
)

// Pauses before a stream that has ended is opened again: the first is short, since servers end streams
// regularly; each failure doubles it.
const (
	firstReconnect = 100 * time.Millisecond
	maxReconnect   = 30 * time.Second
)

// maxEventBytes bounds one message of a stream: a record as large as a request body, with everything in it
// escaped.
const maxEventBytes = 6*protocol.MaxBodyBytes + 64<<10

// Poll is a worker's side of the message stream: it connects as the worker pid of group, hands every
// message to handle, one at a time, and connects again whenever the stream ends, until ctx ends or handle
// returns an error, which it returns. A server that refuses the stream for good (a 4xx), or redirects it, is an error too.
// Messages may be repeated; one that does not decode, or is of a kind that this package does not know, is
// passed over. What a message means, and that only task.acquire makes an execute one's own, is the
// protocol's matter.
func (c *Client) Poll(ctx context.Context, group, pid string, handle func(protocol.Message) error) error {
	address := c.base + "/poll/" + url.PathEscape(group) + "/" + url.PathEscape(pid)
	pause := firstReconnect
	for {
		connected, err := c.pollOnce(ctx, address, handle)
		if final := (*finalError)(nil); errors.As(err, &final) {
			return final.error
		}
		if connected {
			pause = firstReconnect
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		pause = min(2*pause, maxReconnect)
	}
}

// finalError ends Poll.
type finalError struct{ error }

// pollOnce reads one stream to its end. Connected tells that the server had accepted it.
func (c *Client) pollOnce(ctx context.Context, address string, handle func(protocol.Message) error) (connected bool, err error) {
	get, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return false, &finalError{err}
	}
	get.Header.Set("Accept", "text/event-stream")
	c.authorize(get)
	answer, err := c.options.HTTP.Do(get)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	if err := redirected(answer); err != nil {
		return false, &finalError{err}
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, shownBytes))
		err := fmt.Errorf("the server refuses the stream with HTTP status %d: %q", answer.StatusCode, text)
		if answer.StatusCode >= 400 && answer.StatusCode < 500 && answer.StatusCode != http.StatusTooManyRequests {
			err = &finalError{err}
		}
		return false, err
	}
	return true, readEvents(answer.Body, func(data []byte) error {
		message, err := protocol.DecodeMessage(data)
		if err != nil || (message.Kind != protocol.MessageExecute && message.Kind != protocol.MessageUnblock) {
			return nil
		}
		if err := handle(message); err != nil {
			return &finalError{err}
		}
		return nil
	})
}

// readEvents hands the data of every event of a server-sent event stream to handle, until the stream ends
// or handle fails. Comments and named events are passed over; several data lines of one event are joined.
// The slice is valid during the call only.
func readEvents(r io.Reader, handle func(data []byte) error) error {
	lines := bufio.NewReader(r)
	var data []byte
	var hasData, named bool
	for {
		line, err := readLine(lines)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			if hasData && !named {
				if err := handle(data); err != nil {
					return err
				}
			}
			data, hasData, named = data[:0], false, false
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if hasData {
				data = append(data, '\n')
			}
			if len(data)+len(value) > maxEventBytes {
				return fmt.Errorf("an event of more than %d bytes", maxEventBytes)
			}
			data, hasData = append(data, value...), true
		case "event":
			named = string(value) != "message" && len(value) > 0
		}
	}
}

// readLine reads one line without its end, LF or CRLF.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		whole := bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			if len(whole) > maxEventBytes {
				return nil, fmt.Errorf("a line of more than %d bytes", maxEventBytes)
			}
			line, err = r.ReadSlice('\n')
			whole = append(whole, line...)
		}
		line = whole
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}
