package workload

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"abide/protocol"
)

// Concurrent histories are checked for linearizability, per call tree: no request here is about two trees, so
// a history is linearizable if that of each tree is. Time is an input: all requests between two barriers carry the
// same debug time, so the workspace's mark, which trees share, is that time wherever a request takes effect.
//
// debug.tick is not one step: it is a transaction for each object. In the model it is a step for each promise of
// the tree, at any moment while the tick runs, each of which may also not happen: the tick may have looked before the
// step was due.

const (
	linearClients  = 4
	linearPhases   = 4
	linearRequests = 10 // of a client in a phase
	linearTimeout  = 5 * time.Minute
)

var linearTrees = [][]string{
	{"a", "a.1", "a:2", "a.1.1"},
	{"b", "b:1", "b.2", "b:1:1"},
}

// linearInput is one step for the checker: a request, a part of a tick, or a part of a snapshot.
type linearInput struct {
	tree int
	at   int64
	req  protocol.Request
	step string // the promise whose internal steps a tick may do
}

type linearOutput struct {
	status int
	body   []byte
}

// linearState is a state of one tree, with its text to compare by.
type linearState struct {
	space *space
	text  string
}

func newLinearState(s *space) linearState {
	var b strings.Builder
	for _, id := range ids(s.promises) {
		p := *s.promises[id]
		fmt.Fprintf(&b, "%q %v %q %q %v %v;", id, p.state, p.param, p.value, p.createdAt, p.settledAt)
		fmt.Fprint(&b, p.timeoutAt, p.tags, p.callbacks, p.listeners, p.waited)
		if t := s.tasks[id]; t != nil {
			fmt.Fprint(&b, *t)
		}
		if version, queued := s.executes[id]; queued {
			fmt.Fprint(&b, "!", version)
		}
	}
	fmt.Fprint(&b, s.unblocks)
	return linearState{s, b.String()}
}

func (s *space) copy() *space {
	m := &Model{retryMs: s.retryMs, spaces: map[string]*space{"": s}}
	return m.clone().spaces[""]
}

// linearModel is the model as the checker wants it.
func linearModel(retryMs int64) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			out := make([][]porcupine.Operation, len(linearTrees))
			for _, op := range history {
				tree := op.Input.(linearInput).tree
				out[tree] = append(out[tree], op)
			}
			return out
		},
		Init: func() []any { return []any{newLinearState(NewModel(retryMs).space(""))} },
		Step: func(state, input, output any) []any {
			before, in := state.(linearState), input.(linearInput)
			next := before.space.copy()
			if in.step != "" {
				next.internalSteps(in.at, in.step)
				return []any{before, newLinearState(next)}
			}
			out := output.(linearOutput)
			want := next.request(in.at, in.req)
			if !valid(in.req) {
				want, next = fail(protocol.StatusInvalid), before.space
			}
			if Compare(Op{At: in.at, Request: in.req}, want, out.status, out.body) != "" {
				return nil
			}
			return []any{newLinearState(next)}
		},
		Equal: func(a, b any) bool { return a.(linearState).text == b.(linearState).text },
		Hash: func(state any) uint64 {
			h := fnv.New64a()
			h.Write([]byte(state.(linearState).text))
			return h.Sum64()
		},
		DescribeOperation: func(input, output any) string {
			in := input.(linearInput)
			if in.step != "" {
				return fmt.Sprintf("tick(%d): %s", in.at, in.step)
			}
			out := output.(linearOutput)
			return fmt.Sprintf("%s -> %d %s", Op{At: in.at, Request: in.req}.JSON(), out.status, out.body)
		},
		DescribeState: func(state any) string { return state.(linearState).text },
	}
	return model.ToModel()
}

// internalSteps does what a tick does to one promise and its task.
func (s *space) internalSteps(now int64, id string) {
	p, t := s.promises[id], s.tasks[id]
	switch {
	case p == nil:
	case p.armed() && p.timeoutAt <= now:
		p.state, p.settledAt = p.expired(), p.timeoutAt
		s.settled(now, id)
	case t == nil:
	case s.viewAt(now, id) == pending && t.retryAt <= now:
		s.dispatch(now, id)
	case s.viewAt(now, id) == acquired && t.lease <= now:
		if now-t.claimedAt >= hastyMs {
			t.hasty = 0
		}
		t.idle(pending)
		s.dispatch(now, id)
	}
}

// linearClient is one of the concurrent clients. It guesses versions from what it was answered.
type linearClient struct {
	*Generator
	id       int
	versions map[string]int64
}

func (c *linearClient) request(now int64, tree []string) protocol.Request {
	id := pick(c.Generator, tree...)
	other := id
	for other == id {
		other = pick(c.Generator, tree...)
	}
	version := c.versions[id]
	if c.rng.IntN(4) == 0 {
		version = c.rng.Int64N(4)
	}
	timeout := now + pick(c.Generator, int64(0), 50, 1_000, 40_000, farMs, farMs, farMs)
	tags := pick(c.Generator, flavours[2], flavours[2], flavours[2], flavours[0], flavours[3])
	create := protocol.PromiseCreate{ID: id, TimeoutAt: timeout, Tags: tags}
	settle := protocol.PromiseSettle{ID: id, State: pick(c.Generator, protocol.Resolved, protocol.Rejected), Value: protocol.Value(fmt.Sprintf(`{"data":"%d"}`, c.id))}
	ttl := pick(c.Generator, int64(50), 1_000, 60_000)
	switch c.rng.IntN(16) {
	case 0, 1:
		return &create
	case 2:
		return &settle
	case 3:
		return &protocol.PromiseGet{ID: id}
	case 4:
		return &protocol.PromiseRegisterCallback{Awaited: id, Awaiter: other}
	case 5:
		return &protocol.PromiseRegisterListener{Awaited: id, Address: fmt.Sprintf("poll://uni@g/%d", c.id)}
	case 6:
		return &protocol.TaskGet{ID: id}
	case 7:
		create.Tags = flavours[2]
		return &protocol.TaskCreate{PID: fmt.Sprint(c.id), TTL: ttl, Action: create}
	case 8, 9:
		return &protocol.TaskAcquire{ID: id, Version: version, PID: fmt.Sprint(c.id), TTL: ttl}
	case 10:
		return &protocol.TaskRelease{ID: id, Version: version}
	case 11:
		return &protocol.TaskFulfill{ID: id, Version: version, Action: settle}
	case 12, 13:
		return &protocol.TaskSuspend{ID: id, Version: version, Awaited: []string{other}}
	case 14:
		return pick[protocol.Request](c.Generator, &protocol.TaskHalt{ID: id}, &protocol.TaskContinue{ID: id})
	default:
		settle.ID = other
		return &protocol.TaskFence{ID: id, Version: version, Settle: &settle}
	}
}

// learn remembers versions from answers.
func (c *linearClient) learn(body []byte) {
	answer, err := decodeJSON(body)
	if err != nil {
		return
	}
	data, _ := answer.(object)["data"].(object)
	task, _ := data["task"].(object)
	id, _ := task["id"].(string)
	var version int64
	if _, err := fmt.Sscan(fmt.Sprint(task["version"]), &version); err == nil {
		c.versions[id] = version
	}
}

// linearHistory is what the clients do, and when, in nanoseconds since the start.
type linearHistory struct {
	mu    sync.Mutex
	ops   []porcupine.Operation
	start time.Time
	fault error
}

// ask posts a request in a workspace and records it as the given steps, all of the same interval.
func (h *linearHistory) ask(server Server, client int, op Op, inputs ...linearInput) []byte {
	call := time.Since(h.start).Nanoseconds()
	status, body, err := server.Post(op.Path(), op.JSON())
	end := time.Since(h.start).Nanoseconds()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.fault = err
	}
	for _, in := range inputs {
		out := linearOutput{status, body}
		if _, snap := in.req.(*protocol.DebugSnap); snap {
			out.body = ofTree(body, linearTrees[in.tree][0])
		}
		h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: end})
	}
	return body
}

// ofTree leaves in a snapshot what is of one tree.
func ofTree(body []byte, root string) []byte {
	answer, err := decodeJSON(body)
	if err != nil {
		return body
	}
	data, is := answer.(object)["data"].(object)
	if !is {
		return body
	}
	for name, list := range data {
		kept := []any{}
		for _, element := range list.([]any) {
			if tree(idIn(element.(object))) == root {
				kept = append(kept, element)
			}
		}
		data[name] = kept
	}
	return []byte(text(answer))
}

// idIn finds the id that an element of a snapshot is about.
func idIn(element object) string {
	if message, is := element["message"].(object); is {
		for _, inner := range message["data"].(object) {
			return idIn(inner.(object))
		}
	}
	for _, name := range []string{"id", "awaited"} {
		if id, is := element[name].(string); is {
			return id
		}
	}
	return ""
}

// concurrently runs the clients against a workspace.
func concurrently(server Server, workspace string, seed uint64) ([]porcupine.Operation, error) {
	h := &linearHistory{start: time.Now()}
	h.ask(server, 0, Op{workspace, Start, &protocol.DebugStart{}})
	rng := rand.New(rand.NewPCG(seed, 1))
	clients := make([]*linearClient, linearClients)
	for i := range clients {
		clients[i] = &linearClient{&Generator{rng: rand.New(rand.NewPCG(seed, uint64(i+2)))}, i, map[string]int64{}}
	}
	now := Start
	for range linearPhases {
		var phase sync.WaitGroup
		for _, c := range clients {
			phase.Go(func() {
				for range linearRequests {
					tree := c.rng.IntN(len(linearTrees))
					req := c.request(now, linearTrees[tree])
					c.learn(h.ask(server, c.id, Op{workspace, now, req}, linearInput{tree: tree, at: now, req: req}))
				}
			})
		}
		phase.Go(func() {
			for range 2 {
				var steps []linearInput
				for tree, list := range linearTrees {
					for _, id := range list {
						steps = append(steps, linearInput{tree: tree, at: now, step: id})
					}
				}
				h.ask(server, linearClients, Op{workspace, now, &protocol.DebugTick{Time: now}}, steps...)
			}
		})
		phase.Wait()
		snap := &protocol.DebugSnap{}
		h.ask(server, 0, Op{workspace, now, snap}, linearInput{tree: 0, at: now, req: snap}, linearInput{tree: 1, at: now, req: snap})
		now += []int64{0, 50, 1_000, 30_000}[rng.IntN(4)]
	}
	return h.ops, h.fault
}

// saveHistory keeps a history that is not linearizable, with a picture.
func saveHistory(t *testing.T, model porcupine.Model, info porcupine.LinearizationInfo, name string) {
	folder, err := os.MkdirTemp("", "abide-history-")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, name+".html")
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		t.Fatal(err)
	}
	t.Logf("the history is in %s", path)
}

func TestLinearizable(t *testing.T) { linearizable(t, startServer(t), seeds(t, long(10, 300))) }

// linearizable wants the histories of the seeds to be.
func linearizable(t *testing.T, server Server, histories []uint64) {
	t.Helper()
	model := linearModel(serverRetryMs)
	answered := map[int]int{}
	for _, seed := range histories {
		ops, err := concurrently(server, fmt.Sprintf("linear-%d", seed), seed)
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range ops {
			answered[op.Output.(linearOutput).status]++
		}
		result, info := porcupine.CheckOperationsVerbose(model, ops, linearTimeout)
		if result != porcupine.Ok {
			saveHistory(t, model, info, fmt.Sprintf("seed-%d", seed))
			t.Fatalf("seed %d: %v", seed, result)
		}
	}
	for _, status := range []int{200, 300, 404, 409, 422} {
		if answered[status] == 0 && len(histories) > 1 {
			t.Errorf("no request was answered %d: %v", status, answered)
		}
	}
	t.Logf("%d histories, statuses %v", len(histories), answered)
}

// staleServer answers some reads with what it answered to the same question before.
type staleServer struct {
	Server
	mu       sync.Mutex
	answers  map[string][]byte
	repeated int
}

func (s *staleServer) Post(path string, body []byte) (int, []byte, error) {
	asked, err := protocol.DecodeEnvelope(body)
	if err != nil || (asked.Kind != "task.get" && asked.Kind != "promise.get") {
		return s.Server.Post(path, body)
	}
	question := path + asked.Kind + string(asked.Data)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.answers[question]; old != nil {
		s.repeated++
		return 200, old, nil
	}
	status, answer, err := s.Server.Post(path, body)
	if status == 200 {
		s.answers[question] = answer
	}
	return status, answer, err
}

// TestStaleReadsAreFound wants the check to fail where it should.
func TestStaleReadsAreFound(t *testing.T) {
	server := &staleServer{Server: startServer(t), answers: map[string][]byte{}}
	found := 0
	for seed := range 5 {
		ops, err := concurrently(server, fmt.Sprintf("stale-%d", seed), uint64(seed))
		if err != nil {
			t.Fatal(err)
		}
		if porcupine.CheckOperationsTimeout(linearModel(serverRetryMs), ops, linearTimeout) == porcupine.Illegal {
			found++
		}
	}
	if found == 0 {
		t.Errorf("%d stale answers in 5 histories, and all of them pass", server.repeated)
	}
}
