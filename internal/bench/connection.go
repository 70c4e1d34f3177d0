package bench

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"time"
)

// lengthWidth is the width of the length in a request's Content-Length header; the number is padded with
// spaces on its left, so that it can be written into the buffer once the body stands.
const lengthWidth = 8

// firstBuffer is the size of a connection's buffer for answers until one needs more.
const firstBuffer = 4 << 10

// maxAnswerBytes bounds one answer, header and body.
const maxAnswerBytes = 64 << 20

// connection is one persistent HTTP/1.1 connection that carries one request at a time. Its buffers are
// kept. It is owned by one client's goroutine.
type connection struct {
	target target
	conn   net.Conn
	out    []byte // the request under construction: header, then body
	header []byte // what every request begins with
	in     []byte // what was received and not yet used
	free   []byte // the buffer behind in
	until  time.Time
	// retryAfter is what the last answer asked to wait before the next request; 0 if it did not.
	retryAfter time.Duration
}

func newConnection(t target) *connection {
	path := t.path + "/"
	header := "POST " + path + " HTTP/1.1\r\nHost: " + t.host + t.authorization() +
		"\r\nContent-Type: application/json\r\nContent-Length: "
	for range lengthWidth {
		header += " "
	}
	return &connection{target: t, header: []byte(header + "\r\n\r\n"), free: make([]byte, firstBuffer)}
}

// open dials unless the connection stands.
func (c *connection) open() error {
	if c.conn != nil {
		return nil
	}
	conn, err := dial(c.target)
	if err != nil {
		return err
	}
	c.conn, c.in = conn, nil
	return conn.SetDeadline(c.until)
}

// close drops the connection; the next use dials anew.
func (c *connection) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

func dial(t target) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: operationTimeout}
	if t.tls {
		return tls.DialWithDialer(dialer, "tcp", t.address, nil)
	}
	return dialer.Dial("tcp", t.address)
}

// begin starts a request and returns the buffer to append its body to.
func (c *connection) begin() []byte { return append(c.out[:0], c.header...) }

// roundTrip sends the request that was begun with begin and returns the status of its answer. The body is
// valid until the next request. After an error the connection is closed: the state of the stream in it is
// not known.
func (c *connection) roundTrip(request []byte) (status int, body []byte, err error) {
	c.out = request
	patchLength(request[len(c.header)-4-lengthWidth:len(c.header)-4], len(request)-len(c.header))
	if err = c.open(); err == nil {
		if _, err = c.conn.Write(request); err == nil {
			status, body, err = c.readAnswer()
		}
	}
	if err != nil {
		c.close()
	}
	return status, body, err
}

// patchLength writes n right-aligned into field.
func patchLength(field []byte, n int) {
	for i := len(field) - 1; i >= 0; i-- {
		if n == 0 && i < len(field)-1 {
			field[i] = ' '
			continue
		}
		field[i] = byte('0' + n%10)
		n /= 10
	}
}

var headerEnd = []byte("\r\n\r\n")

func (c *connection) readAnswer() (status int, body []byte, err error) {
	if len(c.in) == 0 {
		c.in = c.free[:0]
	}
	end := -1
	for from := 0; end < 0; {
		if end = bytes.Index(c.in[from:], headerEnd); end >= 0 {
			end += from
			break
		}
		from = max(0, len(c.in)-len(headerEnd)+1)
		if err := c.receive(); err != nil {
			return 0, nil, err
		}
	}
	head := c.in[:end]
	c.retryAfter = retryAfter(head)
	status, length, chunked, err := parseHead(head)
	if err != nil {
		return 0, nil, err
	}
	if chunked {
		return c.readChunked(status, end+len(headerEnd))
	}
	whole := end + len(headerEnd) + length
	if whole > maxAnswerBytes {
		return 0, nil, fmt.Errorf("an answer of %d bytes", whole)
	}
	for len(c.in) < whole {
		if err := c.receive(); err != nil {
			return 0, nil, err
		}
	}
	body, c.in = c.in[whole-length:whole], c.in[whole:]
	return status, body, nil
}

// readChunked reads a body without a length; the server sends one if an answer outgrows its buffer.
func (c *connection) readChunked(status, start int) (int, []byte, error) {
	rest := bufio.NewReader(io.MultiReader(bytes.NewReader(c.in[start:]), c.conn))
	body, err := io.ReadAll(io.LimitReader(httputil.NewChunkedReader(rest), maxAnswerBytes))
	if err != nil {
		return 0, nil, err
	}
	// The reader stops after the last chunk's line; what follows is the empty line that ends the trailer.
	var line [2]byte
	if _, err := io.ReadFull(rest, line[:]); err != nil || string(line[:]) != "\r\n" {
		return 0, nil, errors.New("a chunked answer does not end with an empty line")
	}
	c.in = nil
	return status, body, nil
}

// receive appends what one read brings to c.in, in the kept buffer where it fits.
func (c *connection) receive() error {
	if len(c.in) == cap(c.in) {
		if cap(c.in) < len(c.free) { // used up by earlier answers, not by this one
			c.in = append(c.free[:0], c.in...)
		} else {
			if len(c.free) >= maxAnswerBytes {
				return errors.New("the answer is too large")
			}
			c.free = make([]byte, 2*len(c.free))
			c.in = append(c.free[:0], c.in...)
		}
	}
	n, err := c.conn.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	if n > 0 {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// parseHead reads the status line and the two headers that say how long the body is.
func parseHead(head []byte) (status, length int, chunked bool, err error) {
	line, rest, _ := bytes.Cut(head, []byte("\r\n"))
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return 0, 0, false, fmt.Errorf("not an HTTP/1 answer: %.40q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, false, fmt.Errorf("not a status: %.40q", line)
	}
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(name) == len("Content-Length") && bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil || length < 0 {
				return 0, 0, false, fmt.Errorf("not a length: %.60q", line)
			}
		case len(name) == len("Transfer-Encoding") && bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked"))
		}
	}
	return status, length, chunked, nil
}

var retryAfterName = []byte("\r\nRetry-After:")

// retryAfter is the number of seconds in the header Retry-After, bounded by maxRetryAfter; 0 without one. A date counts as none.
func retryAfter(head []byte) time.Duration {
	i := bytes.Index(head, retryAfterName)
	if i < 0 {
		return 0
	}
	line, _, _ := bytes.Cut(head[i+len(retryAfterName):], []byte("\r\n"))
	seconds, err := strconv.Atoi(string(bytes.TrimSpace(line)))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

// maxRetryAfter is the longest that a patient client waits: a run must come to its end.
const maxRetryAfter = 5 * time.Second

// limit sets how long the next reads and writes may take together, on this connection and, if it has to be
// opened anew, on the next.
func (c *connection) limit(deadline time.Time) {
	c.until = deadline
	if c.conn != nil {
		_ = c.conn.SetDeadline(deadline)
	}
}
