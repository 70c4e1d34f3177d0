package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// standIn answers just enough of the protocol to be measured. It checks what it is sent: ids, versions and
// the order of a task's requests.
type standIn struct {
	mu       sync.Mutex
	promises map[string]*standInPromise
	streams  map[string]chan string
	refuse   func(kind string) int // status to answer with instead, 0 for none
	kinds    map[string]int
	requests atomic.Int64
	remote   bool // its store is in another process
}

type standInPromise struct {
	settled bool
	group   string
	version int64
	held    bool
	awaiter string
}

type standInRequest struct {
	Kind string
	Head struct{ CorrID, Version string }
	Data struct {
		ID, State, Awaited, Awaiter string
		TimeoutAt                   int64
		Version                     int64
		Tags                        map[string]string
		Param, Value                struct{ Data string }
		Action                      *standInRequest
		Actions                     []standInRequest
	}
}

func newStandIn() *standIn {
	return &standIn{promises: map[string]*standInPromise{}, streams: map[string]chan string{}, kinds: map[string]int{}}
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if below, ok := strings.CutPrefix(path, "/w/"); ok {
		_, below, _ = strings.Cut(below, "/")
		path = "/" + below
	}
	switch {
	case r.URL.Path == "/ready":
	case strings.HasPrefix(path, "/poll/"):
		s.poll(w, r, strings.Split(path, "/")[2])
	case path == "/metrics": // one commit for each request, and two round trips
		n := s.requests.Load()
		fmt.Fprintf(w, "# HELP abide_commits_total x\nabide_commits_total %d\n", n)
		if s.remote {
			fmt.Fprintf(w, "abide_store_round_trips_total{of=\"write\"} %d\nabide_store_round_trips_total{of=\"read\"} %d\n", n, n)
		}
	case r.Method == http.MethodPost && (path == "/"):
		s.requests.Add(1)
		var request standInRequest
		status := http.StatusBadRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err == nil {
			status = s.do(request)
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"kind":%q,"head":{"status":%d},"data":{}}`, request.Kind, status)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *standIn) poll(w http.ResponseWriter, r *http.Request, group string) {
	s.mu.Lock()
	messages := s.stream(group)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, ": hello\n\n")
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case m := <-messages:
			fmt.Fprintf(w, "data: %s\n\n", m)
		case <-r.Context().Done():
			return
		}
	}
}

func (s *standIn) stream(group string) chan string {
	if s.streams[group] == nil {
		s.streams[group] = make(chan string, 1000)
	}
	return s.streams[group]
}

func (s *standIn) do(r standInRequest) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds[r.Kind]++
	if s.refuse != nil {
		if status := s.refuse(r.Kind); status != 0 {
			return status
		}
	}
	p := s.promises[r.Data.ID]
	switch r.Kind {
	case "promise.create":
		return s.create(r)
	case "promise.get":
		if p == nil || !p.settled {
			return 404
		}
	case "promise.settle":
		return s.settle(p)
	case "task.acquire":
		if p == nil || p.held || p.version != r.Data.Version {
			return 409
		}
		p.version, p.held = p.version+1, true
	case "task.fence", "task.suspend", "task.fulfill":
		return s.held(r, p)
	default:
		return 400
	}
	return 200
}

func (s *standIn) create(r standInRequest) int {
	if s.promises[r.Data.ID] != nil || r.Data.TimeoutAt == 0 || r.Head.Version != "2026-04-01" && r.Head.Version != "" {
		return 422
	}
	p := &standInPromise{group: strings.TrimPrefix(r.Data.Tags["resonate:target"], "poll://any@")}
	s.promises[r.Data.ID] = p
	s.offer(r.Data.ID, p)
	return 200
}

func (s *standIn) offer(id string, p *standInPromise) {
	if p.group != "" {
		s.stream(p.group) <- fmt.Sprintf(`{"data":{"task":{"id":%q,"version":%d}},"head":{"serverUrl":"x"},"kind":"execute"}`, id, p.version)
	}
}

func (s *standIn) settle(p *standInPromise) int {
	if p == nil || p.settled {
		return 404
	}
	p.settled, p.held = true, false
	if awaiter := s.promises[p.awaiter]; awaiter != nil {
		s.offer(p.awaiter, awaiter)
	}
	return 200
}

func (s *standIn) held(r standInRequest, p *standInPromise) int {
	if p == nil || !p.held || p.version != r.Data.Version {
		return 409
	}
	switch r.Kind {
	case "task.fence":
		return s.create(*r.Data.Action)
	case "task.suspend":
		awaited := s.promises[r.Data.Actions[0].Data.Awaited]
		if awaited == nil || r.Data.Actions[0].Data.Awaiter != r.Data.ID {
			return 422
		}
		awaited.awaiter, p.held = r.Data.ID, false
		return 200
	}
	if r.Data.Action.Data.ID != r.Data.ID {
		return 400
	}
	return s.settle(p)
}

// flagValue is what follows a flag in the arguments.
func flagValue(name string) string { return os.Args[slices.Index(os.Args, name)+1] }

// TestMain lets the test binary be the own server of a run: it is then started as abide serve would be.
func TestMain(m *testing.M) {
	role := os.Getenv("BENCH_STAND_IN")
	if before, ends, ok := strings.Cut(role, "flood"); ok && before == "" { // a flood needs servers as well
		if role = "flood"; os.Args[1] == "serve" {
			role = "serve"
		} else if ends != "" {
			role = "die"
		}
	}
	switch role {
	case "serve":
		// Whoever started the tests may have had this signal ignored, which is inherited.
		interrupted := make(chan os.Signal, 1)
		signal.Notify(interrupted, os.Interrupt)
		go func() { <-interrupted; os.Exit(0) }()
		path := os.Args[len(os.Args)-3] // --storage-sqlite-path FILE --transports-... N
		if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err, os.Args)
			os.Exit(1)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			os.Exit(1)
		}
		fmt.Fprintf(os.Stderr, "time=now level=INFO msg=%s %s=%s version=x\n", ListeningMessage, ListeningAddress, listener.Addr())
		side, err := net.Listen("tcp", "127.0.0.1:"+flagValue("--observability-metrics-port"))
		if err != nil {
			os.Exit(1)
		}
		s := newStandIn()
		s.remote = slices.Contains(os.Args, "--storage-type")
		go func() { _ = http.Serve(side, s) }()
		_ = http.Serve(listener, s)
	case "flood": // as abide bench MODE --url URL
		clients, _ := strconv.Atoi(flagValue("--clients"))
		forMs, _ := strconv.Atoi(flagValue("--for"))
		r, err := Run(context.Background(), Config{Mode: Mode(os.Args[2]), URL: flagValue("--url"), Clients: clients, For: time.Duration(forMs) * time.Millisecond, Token: os.Getenv(TokenVariable)})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_ = json.NewEncoder(os.Stdout).Encode(r)
	case "die":
		fmt.Fprintln(os.Stderr, "Fatal: the disk is on fire")
		os.Exit(1)
	default:
		os.Exit(m.Run())
	}
}
