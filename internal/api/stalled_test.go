package api_test

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"abide/internal/api"
)

// A client that stalls in the middle of its body is not in flight yet: a stop waits for it for a moment only,
// and tells it so.
func TestDrainCutsStalledBodies(t *testing.T) {
	f := start(t, api.Options{})
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // the server reads the first piece before the stop or after it: both must end
	f.handler.Drain()
	// The server's own limit for a body is 20 s, and answered with another status.
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d", r.StatusCode)
	}
}

// A body of very many members is refused before anything is made of them.
func TestBodyOfManyMembers(t *testing.T) {
	f := start(t, api.Options{})
	var tags strings.Builder
	for i := range 40_000 {
		if i > 0 {
			tags.WriteByte(',')
		}
		tags.WriteString(`"` + strings.Repeat("k", i%7+1) + string(rune('a'+i%26)) + `":"0:\""`)
	}
	body := `{"kind":"promise.create","head":{"corrId":"c","version":"2026-04-01"},"data":{"id":"x","timeoutAt":1,"tags":{` + tags.String() + `}}}`
	r, err := http.Post("http://"+f.addr+"/", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text := new(strings.Builder)
	if _, err := bufio.NewReader(r.Body).WriteTo(text); err != nil {
		t.Fatal(err)
	}
	if r.StatusCode != 400 || !strings.Contains(text.String(), "MaxBodyMembers") || !strings.Contains(text.String(), `"corrId":"c"`) {
		t.Errorf("%d %s", r.StatusCode, text)
	}
}
