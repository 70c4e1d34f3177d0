package deliver

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"abide/protocol"
)

// memOutbox is an Outbox in memory, with the rules of the interface and nothing else.
type memOutbox struct {
	mu       sync.Mutex
	executes map[executeEntry]*queuedExecute
	unblocks map[unblockEntry]protocol.Promise
	calls    map[string]int
	fail     func(op string) error // nil: never
}

type executeEntry struct{ workspace, id string }

type unblockEntry struct{ workspace, id, address string }

type queuedExecute struct {
	version int64
	address string
	trace   *protocol.Trace
}

func newMemOutbox() *memOutbox {
	return &memOutbox{
		executes: map[executeEntry]*queuedExecute{},
		unblocks: map[unblockEntry]protocol.Promise{},
		calls:    map[string]int{},
	}
}

func (m *memOutbox) begin(op string) error {
	m.calls[op]++
	if m.fail != nil {
		return m.fail(op)
	}
	return nil
}

func (m *memOutbox) queue(e Execute) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.executes[executeEntry{e.Workspace, e.ID}] = &queuedExecute{version: e.Version, address: e.Address, trace: e.Trace}
}

func (m *memOutbox) queueUnblock(u Unblock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unblocks[unblockEntry{u.Workspace, u.ID, u.Address}] = u.Promise
}

// claim removes the execute of a task.
func (m *memOutbox) claim(workspace, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.executes, executeEntry{workspace, id})
}

func (m *memOutbox) left() (executes, unblocks int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.executes), len(m.unblocks)
}

func (m *memOutbox) count(op string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[op]
}

// belongs is the rule in Destination's comment.
func belongs(workspace, address string, d Destination) bool {
	a, err := protocol.ParseAddress(address)
	if err != nil || a.Scheme != protocol.SchemePoll || workspace != d.Workspace {
		return false
	}
	if workspace != protocol.DefaultWorkspace && a.Group == workspace && a.ID == "poll" {
		return d.Group == "" && d.PID == ""
	}
	if a.Group != d.Group {
		return false
	}
	if a.Cast == protocol.CastUni {
		return a.ID != "" && a.ID == d.PID
	}
	return d.PID == ""
}

func (m *memOutbox) Executes(_ context.Context, asks []Ask) (pages []ExecutePage, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("executes"); err != nil {
		return nil, err
	}
	for left := MaxPage; left > 0 && len(pages) < len(asks); {
		a := asks[len(pages)]
		m.calls["queues"]++
		page, next := m.executesOf(a.Destination, a.After, min(a.Limit, left))
		left -= len(page)
		pages = append(pages, ExecutePage{page, next})
	}
	return pages, nil
}

func (m *memOutbox) executesOf(d Destination, after string, limit int) (page []Execute, next string) {
	for k, q := range m.executes {
		if k.id > after && belongs(k.workspace, q.address, d) {
			page = append(page, Execute{k.workspace, k.id, q.version, q.address, q.trace})
		}
	}
	slices.SortFunc(page, func(a, b Execute) int { return cmp.Compare(a.ID, b.ID) })
	if len(page) > limit {
		page = page[:limit]
		next = page[limit-1].ID
	}
	return page, next
}

func (m *memOutbox) CheckExecutes(_ context.Context, workspace string, hinted []Execute) (out []Execute, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("check executes"); err != nil {
		return nil, err
	}
	for _, e := range hinted {
		if q := m.executes[executeEntry{workspace, e.ID}]; q != nil && q.version == e.Version {
			e.Trace = q.trace
			out = append(out, e)
		}
	}
	return out, nil
}

func (m *memOutbox) ExecutesDelivered(_ context.Context, workspace string, delivered []Execute) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("executes delivered"); err != nil {
		return err
	}
	for _, e := range delivered {
		k := executeEntry{workspace, e.ID}
		if q := m.executes[k]; q != nil && q.version == e.Version {
			delete(m.executes, k)
		}
	}
	return nil
}

func (m *memOutbox) Unblocks(_ context.Context, asks []Ask) (pages []UnblockPage, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("unblocks"); err != nil {
		return nil, err
	}
	for left := MaxUnblockPage; left > 0 && len(pages) < len(asks); {
		a := asks[len(pages)]
		m.calls["queues"]++
		page, next := m.unblocksOf(a.Destination, a.After, min(a.Limit, left))
		left -= len(page)
		pages = append(pages, UnblockPage{page, next})
	}
	return pages, nil
}

func (m *memOutbox) unblocksOf(d Destination, after string, limit int) (page []Unblock, next string) {
	cursor := func(u Unblock) string { return u.ID + "\x00" + u.Address }
	for k, p := range m.unblocks {
		u := Unblock{k.workspace, k.id, k.address, p}
		if cursor(u) > after && belongs(k.workspace, k.address, d) {
			page = append(page, u)
		}
	}
	slices.SortFunc(page, func(a, b Unblock) int { return cmp.Compare(cursor(a), cursor(b)) })
	if len(page) > limit {
		page = page[:limit]
		next = cursor(page[limit-1])
	}
	return page, next
}

func (m *memOutbox) CheckUnblocks(_ context.Context, workspace string, hinted []UnblockRef) (out []Unblock, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("check unblocks"); err != nil {
		return nil, err
	}
	for _, r := range hinted {
		if p, ok := m.unblocks[unblockEntry{workspace, r.ID, r.Address}]; ok {
			out = append(out, Unblock{workspace, r.ID, r.Address, p})
		}
	}
	return out, nil
}

func (m *memOutbox) UnblocksDelivered(_ context.Context, workspace string, delivered []UnblockRef) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin("unblocks delivered"); err != nil {
		return err
	}
	for _, r := range delivered {
		delete(m.unblocks, unblockEntry{workspace, r.ID, r.Address})
	}
	return nil
}
