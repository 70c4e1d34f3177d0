package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// streamBuffer bounds one line of a stream. An execute message is a few hundred bytes.
const streamBuffer = 16 << 10

// stream is a worker's open /poll request. It is owned by one client's goroutine, which reads it only while
// it waits for a message; what comes earlier waits in the socket.
type stream struct {
	conn net.Conn
	body *bufio.Reader
}

// openStream connects as the worker pid of group and returns when the server has answered with headers.
func openStream(t target, group, pid string, deadline time.Time) (*stream, error) {
	conn, err := dial(t)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(deadline)
	path := t.path + "/poll/" + url.PathEscape(group) + "/" + url.PathEscape(pid)
	_, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: "+t.host+t.authorization()+"\r\nAccept: text/event-stream\r\n\r\n")
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		_ = conn.Close()
		return nil, fmt.Errorf("the server refused the stream %s with status %d", path, answer.StatusCode)
	}
	return &stream{conn: conn, body: bufio.NewReaderSize(answer.Body, streamBuffer)}, nil
}

// close ends the stream. It may be called on nil.
func (s *stream) close() {
	if s != nil {
		_ = s.conn.Close()
	}
}

var dataPrefix = []byte("data:")

// next waits for the next execute message and returns its task. The id is valid until the next call. Other
// messages and comments are passed over.
func (s *stream) next(deadline time.Time) (id []byte, version int64, err error) {
	_ = s.conn.SetReadDeadline(deadline)
	for {
		line, err := s.body.ReadSlice('\n')
		if err != nil {
			return nil, 0, err
		}
		message, ok := bytes.CutPrefix(line, dataPrefix)
		if !ok || !bytes.Contains(message, []byte(`"execute"`)) {
			continue
		}
		return executeTask(message)
	}
}

// executeTask finds the task's id and version in an execute message. It does not parse JSON: the ids of a
// run hold nothing that would be escaped.
func executeTask(message []byte) (id []byte, version int64, err error) {
	_, rest, found := bytes.Cut(message, []byte(`"task":`))
	_, afterID, foundID := bytes.Cut(rest, []byte(`"id":"`))
	id, _, _ = bytes.Cut(afterID, []byte(`"`))
	_, afterVersion, foundVersion := bytes.Cut(rest, []byte(`"version":`))
	digits := afterVersion
	for i, b := range afterVersion {
		if b < '0' || b > '9' {
			digits = afterVersion[:i]
			break
		}
	}
	version, err = strconv.ParseInt(string(digits), 10, 64)
	if !found || !foundID || !foundVersion || err != nil {
		return nil, 0, errors.New("an execute message without a task")
	}
	return id, version, nil
}
