package api_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"abide/internal/api"
	"abide/protocol"
)

var hostileSeed = flag.Uint64("hostileseed", 0, "replays TestHostileRequests with the seed that it printed")

// smuggled is the id of requests that nobody has sent: they are inside of another's body, or behind it where only one of
// two ways to read its length ends it.
const smuggled = "smuggled"

// hostile makes one connection's worth of bytes. Those that end early are followed by the end of the sender's side.
type hostile func(r *rand.Rand) string

func get(id string) string { return envelope("promise.get", `{"id":"`+id+`"}`) }

// hidden is a whole request that must never be served.
func hidden() string { return request("POST", "/", get(smuggled)) }

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// junk is n random bytes, or of printable ones.
func junk(r *rand.Rand, n int) string {
	b := make([]byte, n)
	low, span := 0, 256
	if r.IntN(2) == 0 {
		low, span = 32, 95
	}
	for i := range b {
		b[i] = byte(low + r.IntN(span))
	}
	return string(b)
}

// chunked is body in chunks of random sizes.
func chunked(r *rand.Rand, body string) string {
	var b strings.Builder
	for len(body) > 0 {
		n := 1 + r.IntN(len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

// lengths have two ways to tell where a request ends, with a hidden one between the two.
func lengths(r *rand.Rand) string {
	own := pick(r, get("open"), "", "{}")
	te := pick(r, "Transfer-Encoding: chunked", "transfer-encoding: chunked", "Transfer-Encoding: Chunked", "Transfer-Encoding:\tchunked",
		"Transfer-Encoding:\r\n chunked", "Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity, chunked", "Transfer-Encoding: xchunked",
		"Transfer-Encoding : chunked", " Transfer-Encoding: chunked", "Transfer-Encoding: \x0bchunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "X: y\nTransfer-Encoding: chunked", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding: chunked;q=1")
	head := pick(r, "POST /", "GET /health", "POST /w/x", "GET /nowhere", "PUT /") + " HTTP/1." + pick(r, "0", "1", "1", "1") + "\r\nHost: x\r\nConnection: keep-alive\r\n"
	body := chunked(r, own) + hidden()
	switch r.IntN(4) {
	case 0: // all of it is one body to who goes by the length
		return head + fmt.Sprintf("Content-Length: %d\r\n%s\r\n\r\n", len(body), te) + body
	case 1:
		return head + fmt.Sprintf("%s\r\nContent-Length: %d\r\n\r\n", te, len(body)) + body
	case 2: // and to who goes by the larger one
		return head + fmt.Sprintf("Content-Length: %d\r\nContent-Length: %d\r\n\r\n", len(own), len(own)+len(hidden())) + own + hidden()
	default:
		return head + fmt.Sprintf("Content-Length: %s\r\n\r\n", pick(r, fmt.Sprintf("%d, %d", len(own), len(own)+len(hidden())), fmt.Sprintf("+%d", len(own)),
			fmt.Sprintf("-%d", len(own)), fmt.Sprintf("%d.0", len(own)), fmt.Sprintf("0x%x", len(own)), fmt.Sprintf("%d\v", len(own)), "99999999999999999999", "ten", "")) + own + hidden()
	}
}

// chunks are bodies in chunks that are none.
func chunks(r *rand.Rand) string {
	size := pick(r, "FFFFFFFFFFFFFFFFF", "-1", "+5", "0x5", " 5", "5 ", "5;", "5;"+strings.Repeat("a", r.IntN(9000)), "", "5\r", "zz", "7FFFFFFFFFFFFFFF", "00000000000000000005")
	body := pick(r, size+"\r\nhello\r\n0\r\n\r\n", size+"\nhello\n0\n\n", "5\r\nhelloX\r\n0\r\n\r\n", strings.Repeat("1;"+strings.Repeat("x", 100)+"\r\na\r\n", 200), "5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
		"5\r\nhello\r\n0\r\n"+strings.Repeat("T: x\r\n", 300)+"\r\n")
	return "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body + hidden()
}

// heads are heads that nobody needs.
func heads(r *rand.Rand) string {
	body := get("open")
	lines := pick(r, "X: "+strings.Repeat("x", r.IntN(1<<(1+r.IntN(17)))), strings.Repeat("X: y\r\n", r.IntN(1<<(1+r.IntN(13))))+"Y: z", "X\x00: y", "X: \x00", "X y: z", "ü: y", ": y", "X", "X: y\rZ: q",
		"Host: y", "Expect: nonsense", "Connection: Upgrade\r\nUpgrade: websocket", "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\nConnection: Upgrade, HTTP2-Settings",
		"Origin: null", "Origin: "+junk(r, 20), "Authorization: "+junk(r, 50), "Content-Type: text/html", "Content-Encoding: gzip", "Range: bytes=0-1", "traceparent: 00-"+junk(r, 55))
	return strings.Replace(request("POST", "/", body), "\r\n\r\n", "\r\n"+lines+"\r\n\r\n", 1)
}

// targets are methods and paths that lead nowhere.
func targets(r *rand.Rand) string {
	path := pick(r, "/../../etc/passwd", "/%00", "/%zz", "/%", "/w/%2e%2e/", "/w/"+strings.Repeat("n", r.IntN(200)), "/"+strings.Repeat("a/", r.IntN(1<<(1+r.IntN(16)))), "//", "*", "x", "http://other/", "http://[::1",
		"/poll/%ff/a", "/poll/a/%00", "/poll//", "/poll/"+strings.Repeat("g", 3000)+"/a", "/w/x/../y", "/?"+junk(r, 30), "/ "+junk(r, 5), "", "/#x", "\\", "/promises/x", "/w//poll/a/b", "/%2e%2e%2f")
	method := pick(r, "GET", "POST", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PUT", "DELETE", "get", "FOO", strings.Repeat("M", r.IntN(5000)+1), "PRI", "P\x00ST", "P(ST)")
	version := pick(r, "HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/9.9", "HTTP/1", "http/1.1", "", "HTTP/1.1 extra")
	return method + " " + path + " " + version + "\r\nHost: x\r\n\r\n"
}

// strangers speak something else.
func strangers(r *rand.Rand) string {
	return pick(r, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"+junk(r, 500), "GET /\r\n", "\r\n\r\n\r\n"+hidden()[:20], "SSH-2.0-x\r\n",
		"EHLO x\r\n", junk(r, r.IntN(5000)), "", "\x00", "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n")
}

// bodies are requests in good frames with data that is none.
func bodies(r *rand.Rand) string {
	valid := get("open")
	cut := valid[:r.IntN(len(valid))]
	changed := []byte(valid)
	for range 1 + r.IntN(5) {
		changed[r.IntN(len(changed))] = byte(r.IntN(256))
	}
	depth := 1 + r.IntN(1<<(1+r.IntN(17))) // mostly small: they are read whole
	body := pick(r, cut, string(changed), strings.Repeat("[", depth), strings.Repeat(`{"a":`, depth), `{"kind":"promise.get","kind":"promise.get","head":{},"data":{}}`,
		envelope("promise.get", `{"id":"a\u0000"}`), envelope("promise.get", "{\"id\":\"\xff\"}"), envelope("promise.get", `{"id":"\ud800"}`), envelope("promise.get", `{"id":`+strings.Repeat("9", 400)+`}`),
		envelope("promise.create", `{"id":"x","timeoutAt":1e999}`), envelope("promise.create", `{"id":"x","timeoutAt":-9223372036854775809}`), envelope("promise.search", `{"cursor":"`+junk(rand.New(rand.NewPCG(1, 2)), 0)+`AAAA"}`),
		envelope("promise.create", `{"id":"x","timeoutAt":1,"tags":`+strings.Repeat(`{"a":`, 50)+`}`), envelope(strings.Repeat("k", 5000), `{}`), "\xef\xbb\xbf"+valid, valid+valid, "null", "[]", "0", `""`, strings.Repeat(" ", 10_000),
		envelope("task.fence", `{"id":"a","version":1,"action":`+envelope("task.fence", `{}`)+`}`))
	return request("POST", pick(r, "/", "/w/x/"), body)
}

// pipes are many requests at once, with an end that is cut, or that is none.
func pipes(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(60) {
		b.WriteString(pick(r, request("POST", "/", get("open")), "GET /health HTTP/1.1\r\nHost: x\r\n\r\n", "GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"))
	}
	return b.String() + pick(r, strangers, targets, cuts, bodies)(r)
}

// cuts end early, and leave the server waiting for what was announced.
func cuts(r *rand.Rand) string {
	whole := request("POST", "/", get("open"), "X: y")
	return pick(r, whole[:r.IntN(len(whole))], strings.Replace(whole, "Content-Length: ", "Content-Length: 9", 1), "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2097153\r\n\r\n"+junk(r, 100), "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n"+junk(r, 100))
}

// TestHostileRequests sends 10,000 connections' worth of what no client sends: no request is served that nobody has sent,
// nothing panics, nothing is left over, and the server goes on.
func TestHostileRequests(t *testing.T) {
	const connections, senders = 10_000, 64
	seed := *hostileSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -hostileseed %d", seed)
	h := startHostile(t)
	kinds := []hostile{lengths, lengths, chunks, heads, targets, strangers, bodies, pipes, cuts}
	var next atomic.Int64
	var running sync.WaitGroup
	for range senders {
		running.Go(func() {
			for n := next.Add(1); n <= connections; n = next.Add(1) {
				r := rand.New(rand.NewPCG(seed, uint64(n)))
				if fault := h.send(kinds[int(n)%len(kinds)](r), r.IntN(8) == 0); fault != nil {
					t.Errorf("connection %d: %v", n, fault)
				}
			}
		})
	}
	running.Wait()
	h.wantHealthy()
}

// hostileServer is a server as it is in production, over an engine that knows what it must not be asked.
type hostileServer struct {
	t                 *testing.T
	addr              string
	log               *syncBuffer
	served            atomic.Int64 // requests that somebody has sent
	unsent            atomic.Int64 // requests that nobody has
	goroutines, files int          // before the first connection
}

func startHostile(t *testing.T) *hostileServer {
	t.Helper()
	h := &hostileServer{t: t, log: &syncBuffer{}}
	engine := &stub{reply: func(_ context.Context, req protocol.Request) protocol.Reply {
		if get, ok := req.(*protocol.PromiseGet); ok && get.ID == smuggled {
			h.unsent.Add(1)
		}
		h.served.Add(1)
		return protocol.OK(protocol.EmptyBody{})
	}}
	log := slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	handler, err := api.New(engine, api.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	s := api.NewServer(handler, log)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = l.Addr().String()
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	h.ask()
	h.goroutines, h.files = h.left()
	return h
}

// send opens a connection, writes text, and reads what comes until the server ends it. With abrupt it is reset in place of
// reading.
func (h *hostileServer) send(text string, abrupt bool) error {
	c, err := net.Dial("tcp", h.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = io.WriteString(c, text) // the server may end it before all is written
		if abrupt {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
			return
		}
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	defer func() { <-wrote }()
	in := bufio.NewReader(c)
	for !abrupt {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("%.200q: the server holds on to the connection", text)
			}
			return nil
		}
		if resp.StatusCode == http.StatusInternalServerError {
			return fmt.Errorf("%.200q: status 500", text)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return nil
}

// ask sends what every client sends.
func (h *hostileServer) ask() {
	h.t.Helper()
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Post("http://"+h.addr+"/", "application/json", strings.NewReader(get("open")))
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || !bytes.HasPrefix(body, []byte(`{"kind":"promise.get"`)) {
		h.t.Errorf("a request of the usual sort: %d %s (%v)", resp.StatusCode, body, err)
	}
}

// left is how many goroutines and files there are.
func (h *hostileServer) left() (goroutines, files int) {
	files, err := countFiles()
	if err != nil {
		files = 0 // without /proc the goroutines have to do
	}
	return runtime.NumGoroutine(), files
}

func countFiles() (int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	return len(entries), err
}

// wantHealthy checks that a server that has met all that serves on and has let go of it.
func (h *hostileServer) wantHealthy() {
	h.t.Helper()
	h.ask()
	if n := h.unsent.Load(); n > 0 {
		h.t.Errorf("%d requests were served that nobody has sent", n)
	}
	if log := h.log.String(); strings.Contains(log, "panic") {
		at := strings.Index(log, "panic")
		h.t.Errorf("a panic: %.2000s", log[max(0, at-200):])
	}
	var goroutines, files int
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if goroutines, files = h.left(); goroutines <= h.goroutines && files <= h.files {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	h.t.Errorf("%d goroutines and %d files are left, there were %d and %d", goroutines, files, h.goroutines, h.files)
}

// TestResetConnectionsLeaveNothingBehind: 2,000 clients go away without a word, at any moment of a request.
func TestResetConnectionsLeaveNothingBehind(t *testing.T) {
	h := startHostile(t)
	whole := request("POST", "/", get("open"))
	var running sync.WaitGroup
	for sender := range 8 {
		running.Go(func() {
			for i := range 250 {
				c, err := net.Dial("tcp", h.addr)
				if err != nil {
					t.Error(err)
					return
				}
				n := sender*250 + i
				_, _ = io.WriteString(c, strings.Repeat(whole, 1+n%3)[:n%(len(whole)+1)])
				_ = c.(*net.TCPConn).SetLinger(0)
				_ = c.Close()
			}
		})
	}
	running.Wait()
	h.wantHealthy()
}
