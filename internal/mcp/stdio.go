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
	lines := &lineWriter{w: out}
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(filterLines(in, writer, lines)) }()
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

// lineWriter keeps the lines of several writers apart.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// Close does nothing: the output is the process's.
func (l *lineWriter) Close() error { return nil }

// parseError answers what cannot be read; JSON-RPC wants a null id there.
const parseError = `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"a line must be one JSON object of at most 8 MiB"}}` + "\n"

// filterLines copies the lines that are JSON objects, and answers the others but the blank ones on errs.
func filterLines(in io.Reader, out, errs io.Writer) error {
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
