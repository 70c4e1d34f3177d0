package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxLineBytes bounds one message on standard input.
const maxLineBytes = 8 << 20

// ServeStdio serves one client on in and out, one message a line, until in ends or ctx does. out gets nothing but
// messages. A line that is no JSON is answered with a parse error, and the session goes on.
func ServeStdio(ctx context.Context, in io.Reader, out io.Writer, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := &lineWriter{w: out, open: map[string]bool{}, answered: make(chan struct{}, 1)}
	reader, writer := io.Pipe()
	go func() {
		err := filterLines(in, writer, lines)
		lines.finish(ctx)
		writer.CloseWithError(err)
	}()
	c := newChannel(ctx, &sdk.IOTransport{Reader: reader, Writer: lines, MaxLineLength: maxLineBytes + 1})
	s, err := newServer(o, c)
	if err != nil {
		return err
	}
	err = s.build().Run(ctx, c)
	cancel()
	c.running.Wait()
	reader.Close()
	if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// lineWriter keeps the lines of several writers apart, and knows which requests are not answered yet: the SDK drops
// them when the input ends, but who pipes requests in and closes wants the answers.
type lineWriter struct {
	mu       sync.Mutex
	w        io.Writer
	open     map[string]bool // requests by the text of their id
	answered chan struct{}   // a token whenever one is
}

// frame is what of a message tells requests and answers apart.
type frame struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		RequestID json.RawMessage `json:"requestId"`
	} `json:"params"`
}

// asked notes a message of the client's.
func (l *lineWriter) asked(line []byte) {
	var f frame
	if json.Unmarshal(line, &f) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case f.Method == "notifications/cancelled":
		delete(l.open, string(f.Params.RequestID)) // it may never be answered
	case f.Method != "" && f.ID != nil:
		l.open[string(f.ID)] = true
	}
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var f frame
	if len(l.open) > 0 && json.Unmarshal(p, &f) == nil && f.Method == "" {
		delete(l.open, string(f.ID))
		select {
		case l.answered <- struct{}{}:
		default:
		}
	}
	return l.w.Write(p)
}

// finish waits until every request is answered, for as long as a call may take.
func (l *lineWriter) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		l.mu.Lock()
		left := len(l.open)
		l.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-l.answered:
		case <-ctx.Done():
			return
		}
	}
}

// Close does nothing: the output is the process's.
func (l *lineWriter) Close() error { return nil }

// parseError answers what cannot be read; JSON-RPC wants a null id there.
const parseError = `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"a line must be one JSON object of at most 8 MiB"}}` + "\n"

// filterLines copies the lines that are JSON objects, and answers the others but the blank ones on errs.
func filterLines(in io.Reader, out io.Writer, errs *lineWriter) error {
	r := bufio.NewReader(in)
	for {
		line, err := readLine(r)
		text := bytes.TrimSpace(line)
		switch {
		case len(text) == 0 && !errors.Is(err, errTooLong):
		case errors.Is(err, errTooLong), text[0] != '{', !json.Valid(text):
			if _, err := io.WriteString(errs, parseError); err != nil {
				return err
			}
		default:
			errs.asked(text)
			if _, err := out.Write(append(text, '\n')); err != nil {
				return err
			}
		}
		if err != nil && !errors.Is(err, errTooLong) {
			return err
		}
	}
}

var errTooLong = errors.New("the line is too long")

// readLine reads a line without keeping more of it than maxLineBytes. The last one may lack its end.
func readLine(r *bufio.Reader) (line []byte, err error) {
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxLineBytes; !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err == nil && long:
			return nil, errTooLong
		default:
			if long {
				line = nil
			}
			return line, err
		}
	}
}
