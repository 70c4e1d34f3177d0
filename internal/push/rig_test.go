package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"abide/internal/deliver"
	"abide/protocol"
)

// memOutbox is an Outbox in memory, with the rules of the interface and nothing else.
type memOutbox struct {
	mu       sync.Mutex
	executes map[taskKey]deliver.Execute
	unblocks map[flightKey]bool
	fail     func(op string) error // nil: never
	calls    map[string]int
	queues   int // how many the pages and walks have shown
	page     int // of a walk; 0 is MaxQueues
	self     string
	live     []string

	valueBytes func(id string) int // of a promise; nil: none
}

func newMemOutbox() *memOutbox {
	return &memOutbox{executes: map[taskKey]deliver.Execute{}, unblocks: map[flightKey]bool{}, calls: map[string]int{}}
}

func (m *memOutbox) begin(op string) error {
	m.calls[op]++
	if m.fail != nil {
		return m.fail(op)
	}
	return nil
}

func (m *memOutbox) queue(e deliver.Execute) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.executes[taskKey{e.Workspace, e.ID}] = e
}

func (m *memOutbox) queueUnblock(workspace, id, address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unblocks[flightKey{KindUnblock, workspace, id, 0, address}] = true
}

// claim removes the execute of a task.
func (m *memOutbox) claim(workspace, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.executes, taskKey{workspace, id})
}

func (m *memOutbox) left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.executes) + len(m.unblocks)
}

func (m *memOutbox) Queues(_ context.Context, kind Kind, after string) (queues []Queue, next string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("queues"); err != nil {
		return nil, "", err
	}
	names := map[string]Queue{}
	add := func(workspace, address string) { names[workspace+"\x00"+address] = Queue{workspace, address} }
	if kind == KindExecute {
		for _, e := range m.executes {
			add(e.Workspace, e.Address)
		}
	} else {
		for k := range m.unblocks {
			add(k.workspace, k.address)
		}
	}
	var order []string
	for name := range names {
		if name > after {
			order = append(order, name)
		}
	}
	slices.Sort(order)
	if limit := cmp.Or(m.page, MaxQueues); len(order) > limit {
		order = order[:limit]
		next = order[limit-1]
	}
	for _, name := range order {
		queues = append(queues, names[name])
	}
	m.queues += len(queues)
	return queues, next, nil
}

// pageOf cuts the ids of a queue.
func pageOf(ids []string, a Ask, left int) (page []string, next string) {
	slices.Sort(ids)
	ids = slices.DeleteFunc(ids, func(id string) bool { return a.After != "" && id <= a.After })
	if limit := min(a.Limit, left); len(ids) >= limit {
		ids = ids[:limit]
		next = ids[limit-1]
	}
	return ids, next
}

func (m *memOutbox) Executes(_ context.Context, asks []Ask) (pages []deliver.ExecutePage, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("executes"); err != nil {
		return nil, err
	}
	left := MaxPage
	for _, a := range asks {
		if left == 0 {
			break
		}
		var ids []string
		for k, e := range m.executes {
			if k.workspace == a.Workspace && e.Address == a.Address {
				ids = append(ids, k.id)
			}
		}
		ids, next := pageOf(ids, a, left)
		left -= len(ids)
		page := deliver.ExecutePage{Next: next}
		for _, id := range ids {
			page.Executes = append(page.Executes, m.executes[taskKey{a.Workspace, id}])
		}
		pages = append(pages, page)
	}
	return pages, nil
}

func (m *memOutbox) Unblocks(_ context.Context, asks []Ask) (pages []UnblockPage, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("unblocks"); err != nil {
		return nil, err
	}
	left := MaxPage
	for _, a := range asks {
		if left == 0 {
			break
		}
		var ids []string
		for k := range m.unblocks {
			if k.workspace == a.Workspace && k.address == a.Address {
				ids = append(ids, k.id)
			}
		}
		ids, next := pageOf(ids, a, left)
		left -= len(ids)
		page := UnblockPage{Next: next}
		for _, id := range ids {
			page.Unblocks = append(page.Unblocks, deliver.UnblockRef{ID: id, Address: a.Address})
		}
		pages = append(pages, page)
	}
	return pages, nil
}

func (m *memOutbox) CheckExecutes(_ context.Context, workspace string, asked []deliver.Execute) (queued []deliver.Execute, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("check"); err != nil {
		return nil, err
	}
	for _, e := range asked {
		if q, ok := m.executes[taskKey{workspace, e.ID}]; ok && q.Version == e.Version {
			queued = append(queued, e)
		}
	}
	return queued, nil
}

func (m *memOutbox) CheckUnblocks(_ context.Context, workspace string, asked []deliver.UnblockRef) (queued []deliver.Unblock, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("check"); err != nil {
		return nil, err
	}
	if len(asked) > MaxUnblockCheck {
		return nil, fmt.Errorf("%d unblocks in a check", len(asked))
	}
	for _, u := range asked {
		if m.unblocks[flightKey{KindUnblock, workspace, u.ID, 0, u.Address}] {
			p := protocol.Promise{ID: u.ID, State: protocol.Resolved}
			if m.valueBytes != nil {
				p.Value = make(protocol.Value, m.valueBytes(u.ID))
			}
			queued = append(queued, deliver.Unblock{Workspace: workspace, ID: u.ID, Address: u.Address, Promise: p})
		}
	}
	return queued, nil
}

func (m *memOutbox) ExecutesDelivered(_ context.Context, workspace string, delivered []deliver.Execute) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("report"); err != nil {
		return err
	}
	for _, e := range delivered {
		if q, ok := m.executes[taskKey{workspace, e.ID}]; ok && q.Version == e.Version {
			delete(m.executes, taskKey{workspace, e.ID})
		}
	}
	return nil
}

func (m *memOutbox) UnblocksDelivered(_ context.Context, workspace string, delivered []deliver.UnblockRef) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("report"); err != nil {
		return err
	}
	for _, u := range delivered {
		delete(m.unblocks, flightKey{KindUnblock, workspace, u.ID, 0, u.Address})
	}
	return nil
}

func (m *memOutbox) Servers() (string, []string) { return m.self, m.live }

// lanes is a transport of http addresses whose lane is the host, and that never sends by itself.
type lanes struct{ concurrency int }

func (l lanes) Lane(_ protocol.Address, text string) (string, error) {
	host, _, _ := strings.Cut(strings.TrimPrefix(text, "http://"), "/")
	if host == "nowhere" {
		return "", errors.New("there is no such host")
	}
	return host, nil
}
func (lanes) Send(context.Context, Message) error { return errors.New("not in this test") }
func (l lanes) Concurrency(string) int            { return cmp.Or(l.concurrency, 256) }
func (lanes) Close(context.Context) error         { return nil }

func served(t Transport) []Served {
	return []Served{{Name: "http", Schemes: []string{"http", "https"}, Transport: t}}
}

// rig drives a core over an outbox, by hand.
type rig struct {
	t     testing.TB
	core  *Core
	box   *memOutbox
	nowMs int64
	sends []*Send // begun and not ended
}

func newRig(t testing.TB, l Limits) *rig {
	return &rig{t: t, core: NewCore(l, served(lanes{})), box: newMemOutbox(), nowMs: 1}
}

// settle runs every job that is due, until none is, and returns the sends that came of it.
func (r *rig) settle() (begun []*Send) {
	r.t.Helper()
	for range 10_000 {
		ran := false
		r.core.Servers(r.box.Servers())
		for cl := range Classes {
			if r.core.NextMs(cl) > r.nowMs {
				continue
			}
			if j := r.core.Take(r.nowMs, cl); j != nil {
				ran = true
				r.core.Done(r.nowMs, j, j.Run(context.Background(), r.box))
			}
		}
		begun = append(begun, r.core.TakeSends()...)
		if !ran {
			r.sends = append(r.sends, begun...)
			return begun
		}
	}
	r.t.Fatal("jobs stay due")
	return nil
}

// pass lets time pass and settles, in steps.
func (r *rig) pass(ms int64) (begun []*Send) {
	for end := r.nowMs + ms; r.nowMs < end; {
		r.nowMs = min(end, r.nowMs+100)
		begun = append(begun, r.settle()...)
	}
	return begun
}

// end ends a send.
func (r *rig) end(s *Send, err error) {
	r.sends = slices.DeleteFunc(r.sends, func(other *Send) bool { return other == s })
	r.core.Sent(r.nowMs, s, err)
}

func (r *rig) hint(e deliver.Execute) {
	r.box.queue(e)
	r.core.HintExecute(r.nowMs, e)
}

func (r *rig) unblock(id, address string) {
	r.box.queueUnblock("w", id, address)
	r.core.HintUnblock(r.nowMs, "w", deliver.UnblockRef{ID: id, Address: address})
}

func execute(id string, version int64, address string) deliver.Execute {
	return deliver.Execute{Workspace: "w", ID: id, Version: version, Address: address}
}

var errDown = errors.New("down")
