package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"abide/internal/api"
	"abide/protocol"
)

// TestLargeRequestsInWorkAreBounded: bodies count until they are answered, so that a store that stalls does not fill the
// memory. One workspace has half, and whoever is refused is told so, although it had not finished sending.
func TestLargeRequestsInWorkAreBounded(t *testing.T) {
	f := start(t, api.Options{MaxBufferedBytes: 12 << 20})
	entered, leave := make(chan bool, 100), make(chan bool)
	f.engine.reply = func(_ context.Context, req protocol.Request) protocol.Reply {
		if req.Kind() == protocol.KindPromiseSettle {
			entered <- true
			<-leave
		}
		return protocol.OK(protocol.EmptyBody{})
	}
	large := envelope("promise.settle", `{"id":"p","state":"resolved","value":{"data":"`+strings.Repeat("x", 1_500_000)+`"}}`)
	answers := make(chan answer, 100)
	send := func(workspace string) { answers <- f.raw(request("POST", "/w/"+workspace+"/", large)) }
	// fill sends one after the other until one is refused.
	fill := func(workspace string) (in int, last answer) {
		for {
			go send(workspace)
			select {
			case <-entered:
				if in++; in > 20 {
					t.Fatal("20 large requests are in work")
				}
			case last = <-answers:
				return in, last
			}
		}
	}
	in, got := fill("a")
	if in == 0 || got.status != 429 || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, "limits.buffered_bytes") {
		t.Fatalf("%d of a are in, then %d %q", in, got.status, got.body)
	}
	others, got := fill("b")
	if others == 0 || (got.status != 429 && got.status != 503) {
		t.Fatalf("beside those %d of b are in, then %d %q", others, got.status, got.body)
	}
	n, got := fill("c")
	if got.status != 503 || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, "limits.buffered_bytes") {
		t.Fatalf("beside those %d of c are in, then %d %q", n, got.status, got.body)
	}
	if got := f.raw(request("POST", "/w/a/", envelope("task.get", `{"id":"t"}`))); got.status != 200 {
		t.Errorf("a small request beside them: %d", got.status)
	}
	close(leave)
	for range in + others + n {
		if got := <-answers; got.status != 200 {
			t.Errorf("one that was in: %d", got.status)
		}
	}
	for range 20 { // all of the memory is free again
		if got := f.raw(request("POST", "/w/a/", large)); got.status != 200 {
			t.Fatalf("afterwards: %d %q", got.status, got.body)
		}
	}
}

// TestSlowReadersOfLargeAnswersAreBounded: who asks for large answers and reads none holds some memory, and no more.
func TestSlowReadersOfLargeAnswersAreBounded(t *testing.T) {
	f := start(t, api.Options{MaxBufferedBytes: 40 << 20})
	const size = 8 << 20 // more than what lies in the buffers of a connection
	f.engine.reply = func(_ context.Context, req protocol.Request) protocol.Reply {
		return protocol.OK(protocol.PromiseBody{Promise: protocol.Promise{ID: "p", State: protocol.Pending,
			Param: protocol.Value(`{"data":"` + strings.Repeat("x", size) + `"}`)}})
	}
	text := request("POST", "/", envelope("promise.get", `{"id":"p"}`))
	var slow []net.Conn
	for range 8 {
		conn, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReaderSize(conn, 16).Peek(12); err != nil { // its answer is being written
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	if got := f.raw(text); got.status != 200 || len(got.body) < size {
		t.Errorf("who reads: %d, %d bytes", got.status, len(got.body))
	}
	whole := 0
	for i, conn := range slow {
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if n, _ := io.Copy(io.Discard, io.LimitReader(conn, size)); n == size {
			whole++
		} else if i == len(slow)-1 {
			t.Error("the last to come was cut before the first")
		}
	}
	if whole > 4 {
		t.Errorf("%d of %d slow readers got their answers, there is memory for 4", whole, len(slow))
	}
	if log := f.log.String(); strings.Count(log, "limits.buffered_bytes") != 1 {
		t.Errorf("the log: %s", log)
	}
	// On a connection that goes on, nothing of that is left.
	client := &http.Client{}
	for i := range 5 {
		r, err := client.Post("http://"+f.addr+"/", "application/json", strings.NewReader(envelope("promise.get", fmt.Sprintf(`{"id":"p%d"}`, i))))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, r.Body); err != nil || n < size {
			t.Errorf("%d bytes, %v", n, err)
		}
		r.Body.Close()
	}
}
