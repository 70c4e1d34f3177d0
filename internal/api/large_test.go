package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"abide/internal/api"
	"abide/internal/testserver"
	"abide/protocol"
)

// carriers are the requests that carry a payload, PAYLOAD in their data, with what must be there before and the request
// that reads it back.
var carriers = map[string]struct{ before, request, read string }{
	"promise.create": {"", `{"kind":"promise.create",HEAD,"data":{"id":"p","timeoutAt":9000000000000,"param":{"data":"PAYLOAD"}}}`, `{"kind":"promise.get",HEAD,"data":{"id":"p"}}`},
	"promise.settle": {`{"kind":"promise.create",HEAD,"data":{"id":"p","timeoutAt":9000000000000}}`,
		`{"kind":"promise.settle",HEAD,"data":{"id":"p","state":"resolved","value":{"data":"PAYLOAD"}}}`, `{"kind":"promise.get",HEAD,"data":{"id":"p"}}`},
	"task.create": {"", `{"kind":"task.create",HEAD,"data":{"pid":"w","ttl":60000,"action":{"kind":"promise.create","head":{},"data":{"id":"p","timeoutAt":9000000000000,"param":{"data":"PAYLOAD"},"tags":{"resonate:target":"poll://any@g"}}}}}`,
		`{"kind":"promise.get",HEAD,"data":{"id":"p"}}`},
	"task.fence": {`{"kind":"task.create",HEAD,"data":{"pid":"w","ttl":60000,"action":{"kind":"promise.create","head":{},"data":{"id":"r","timeoutAt":9000000000000,"tags":{"resonate:target":"poll://any@g"}}}}}`,
		`{"kind":"task.fence",HEAD,"data":{"id":"r","version":1,"action":{"kind":"promise.create","head":{},"data":{"id":"r.1","timeoutAt":9000000000000,"param":{"data":"PAYLOAD"}}}}}`, `{"kind":"promise.get",HEAD,"data":{"id":"r.1"}}`},
	"task.fulfill": {`{"kind":"task.create",HEAD,"data":{"pid":"w","ttl":60000,"action":{"kind":"promise.create","head":{},"data":{"id":"p","timeoutAt":9000000000000,"tags":{"resonate:target":"poll://any@g"}}}}}`,
		`{"kind":"task.fulfill",HEAD,"data":{"id":"p","version":1,"action":{"kind":"promise.settle","head":{},"data":{"id":"p","state":"resolved","value":{"data":"PAYLOAD"}}}}}`, `{"kind":"promise.get",HEAD,"data":{"id":"p"}}`},
	"schedule.create": {"", `{"kind":"schedule.create",HEAD,"data":{"id":"s","cron":"0 0 1 1 *","promiseId":"s.x","promiseTimeout":1000,"promiseParam":{"data":"PAYLOAD"},"promiseTags":{}}}`,
		`{"kind":"schedule.get",HEAD,"data":{"id":"s"}}`},
}

// TestLargestPayloadOfEveryKind: a body of one byte less than the limit, of the limit and of one more, for every kind that
// carries a payload: what is taken is kept byte for byte, what is not leaves nothing. (F1)
func TestLargestPayloadOfEveryKind(t *testing.T) {
	s, err := testserver.Start(testserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	n := 0
	for kind, c := range carriers {
		for _, over := range []int{-1, 0, 1} {
			n++
			url := fmt.Sprintf("%s/w/w%d", s.URL, n)
			post := func(text string) (int, string) {
				t.Helper()
				resp, err := http.Post(url, "application/json", strings.NewReader(strings.Replace(text, "HEAD", `"head":{"corrId":"1","version":"`+protocol.Version+`"}`, 1)))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return resp.StatusCode, string(body)
			}
			if c.before != "" {
				if status, body := post(c.before); status != 200 {
					t.Fatalf("%s, before: %d %s", kind, status, body)
				}
			}
			_, before := post(c.read)
			frame := len(strings.Replace(c.request, "HEAD", `"head":{"corrId":"1","version":"`+protocol.Version+`"}`, 1)) - len("PAYLOAD")
			payload := strings.Repeat("ab0-", protocol.MaxBodyBytes/4+1)[:protocol.MaxBodyBytes-frame+over]
			status, body := post(strings.Replace(c.request, "PAYLOAD", payload, 1))
			_, after := post(c.read)
			if over > 0 {
				if status != http.StatusRequestEntityTooLarge || !strings.Contains(body, "2097152") || !strings.Contains(body, "MaxBodyBytes") || after != before {
					t.Errorf("%s, %d over the limit: %d %.200s; afterwards %.200s", kind, over, status, body, after)
				}
				continue
			}
			if status != 200 || !json.Valid([]byte(body)) || strings.Count(after, payload) != 1 {
				t.Errorf("%s, %d of the limit: %d %.200s; read back: %.200s", kind, over, status, body, after)
			}
		}
	}
}

// TestEndlessBodies: a sender without an end is told so after a while, and what it has sent is not kept. (F10)
func TestEndlessBodies(t *testing.T) {
	f := start(t, api.Options{})
	for name, head := range map[string]string{
		"in chunks":     "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
		"of a gigabyte": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", f.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			answer := make(chan string, 1)
			go func() {
				line := make([]byte, 12)
				_, _ = io.ReadFull(c, line)
				answer <- string(line)
			}()
			piece := []byte(fmt.Sprintf("%x\r\n%s\r\n", 1<<16, strings.Repeat(" ", 1<<16)))
			if _, err := io.WriteString(c, head); err != nil {
				t.Fatal(err)
			}
			sent := 0
			const most = 64 << 20
			for sent < most {
				n, err := c.Write(piece)
				if sent += n; err != nil {
					break
				}
			}
			if got := <-answer; got != "HTTP/1.1 413" && !errors.Is(err, net.ErrClosed) && got != strings.Repeat("\x00", 12) {
				t.Errorf("answered %q", got)
			}
			if sent >= most {
				t.Errorf("the server took %d MiB", sent>>20)
			}
		})
	}
	if got := f.raw(request("POST", "/", envelope("task.get", `{"id":"t"}`))); got.status != 200 {
		t.Errorf("afterwards: %d", got.status)
	}
}

// TestHeadLimit: heads of 64 KiB are taken, larger ones are not.
func TestHeadLimit(t *testing.T) {
	f := start(t, api.Options{})
	for size, want := range map[int]int{64 << 10: 200, 72 << 10: 431} {
		text := request("POST", "/", envelope("task.get", `{"id":"t"}`), "X: ")
		end := strings.Index(text, "\r\n\r\n") + 4
		text = strings.Replace(text, "X: ", "X: "+strings.Repeat("x", size-end), 1)
		if got := f.raw(text); got.status != want {
			t.Errorf("a head of %d bytes: %d, want %d", size, got.status, want)
		}
	}
}
