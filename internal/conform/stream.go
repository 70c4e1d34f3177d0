package conform

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// stream is a worker's message stream.
type stream struct {
	status int
	header http.Header
	lines  chan string // lines of data, as they came
	stop   context.CancelFunc
}

// open connects as worker pid of group. It returns when the headers are there.
func (p *probe) open(group, pid string) (*stream, error) {
	ctx, stop := context.WithCancel(p.ctx)
	address := p.base + "/poll/" + url.PathEscape(group) + "/" + url.PathEscape(pid)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		stop()
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if p.config.Token != "" {
		req.Header.Set("Authorization", "Bearer "+p.config.Token)
	}
	late := time.AfterFunc(p.config.Wait, stop)
	response, err := p.config.HTTP.Do(req)
	if !late.Stop() && err == nil {
		response.Body.Close()
		err = fmt.Errorf("no headers within %s", p.config.Wait)
	}
	if err != nil {
		stop()
		return nil, err
	}
	s := &stream{status: response.StatusCode, header: response.Header, lines: make(chan string, 1000), stop: stop}
	go func() {
		defer close(s.lines)
		defer response.Body.Close()
		in := bufio.NewReader(response.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if line = strings.TrimRight(line, "\r\n"); line != "" && line[0] != ':' {
				select {
				case s.lines <- line:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return s, nil
}

// message is what a stream brought: the line, and its JSON.
type message struct {
	line   string
	fields any
}

func (m message) kind() string {
	kind, _ := member(m.fields, "kind").(string)
	return kind
}

// id is the id of the task or promise that the message is about.
func (m message) id() string {
	data := member(m.fields, "data")
	for _, name := range []string{"task", "promise"} {
		if id, is := member(member(data, name), "id").(string); is {
			return id
		}
	}
	return ""
}

func (m message) version() int64 {
	n, _ := number(member(member(member(m.fields, "data"), "task"), "version"))
	return n
}

// next waits for a message of a kind about an id and passes over all others; not ok if none comes in time.
func (s *stream) next(kind, id string, wait time.Duration) (message, bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case line, open := <-s.lines:
			if !open {
				return message{}, false
			}
			m := message{line: line}
			d := json.NewDecoder(strings.NewReader(strings.TrimPrefix(line, "data: ")))
			d.UseNumber()
			_ = d.Decode(&m.fields) // a line that is no JSON is of no kind
			if m.kind() == kind && m.id() == id {
				return m, true
			}
		case <-timer.C:
			return message{}, false
		}
	}
}

// ended reports whether the stream ends within wait.
func (s *stream) ended(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case _, open := <-s.lines:
			if !open {
				return true
			}
		case <-timer.C:
			return false
		}
	}
}
