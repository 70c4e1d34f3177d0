package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"abide/internal/cron"
	"abide/internal/keyspace"
	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

const (
	// checkPage is how many rows Check looks at in one snapshot, each with every row that it is related to:
	// an object has up to 40 entries and 70 chunks, a snapshot has kv.MaxTxOps reads.
	checkPage = 64
	// checkSuspended is how many suspended tasks Check holds in memory at a time. Their callbacks are found by a
	// pass over all waiters, one pass for so many tasks.
	checkSuspended = 10_000
)

// Problem is one thing that is wrong with a store.
type Problem struct {
	Workspace string // empty where none is concerned
	Kind      string // the kind of the row, as the key register names it
	ID        string // the promise or schedule that the row is or belongs to; empty where none is
	Detail    string // what is wrong, for a person
}

// String is the problem in one line. It holds the id, which a user chose.
func (p Problem) String() string {
	return fmt.Sprintf("%s of %q in workspace %q: %s", p.Kind, p.ID, p.Workspace, p.Detail)
}

// Tally is how many rows of each kind a check has seen. Rows that were set aside count under "quarantine":
// they are no problem of the check's, but somebody should look at them.
type Tally map[string]int64

// Rows is how many rows there are of all kinds together.
func (t Tally) Rows() (n int64) {
	for _, of := range t {
		n += of
	}
	return n
}

// Checker says what is to be checked, or repaired, and whom to tell.
type Checker struct {
	Store  kv.Store
	Layout keyspace.Layout // as the store's format record has it
	NowMs  int64           // epoch ms; decides which promises are past their deadline
	Report func(Problem)   // takes every problem as it is found
	// Progress, if not nil, is told now and then how many rows have been looked at, of a step with a name.
	Progress func(step string, rows int64)
}

// Check is Checker.Check.
func Check(ctx context.Context, s kv.Store, l keyspace.Layout, now int64, report func(Problem)) (Tally, error) {
	return Checker{Store: s, Layout: l, NowMs: now, Report: report}.Check(ctx)
}

// Check looks at every row of a store and reports each that is not as it must be: records decode and keep the
// properties of the machine; every entry that a record calls for is there, and every entry belongs to a record
// that calls for it; chunks are whole and belong to the record that names them; waiters wait on something that
// will wake them, and something will wake every suspended task; no key is unknown; journals are in order, from
// their floors to no further than the last commit. (docs/machine.md section 5)
//
// Memory is bounded whatever the size of the store. Every row is judged within one snapshot together with the
// rows it is related to, so only the last of these checks needs a store that nobody writes to; under writes it
// may report a suspended task that was woken meanwhile. Errors are the store's, kv.ErrCorrupt among them if the
// engine itself reports damage.
func (o Checker) Check(ctx context.Context) (Tally, error) {
	c := o.begin(ctx, "rows")
	err := c.pages(everything, func(p *page, row kv.Entry) error { return p.check(row) })
	if err == nil {
		err = c.wakeable()
	}
	if err == nil {
		c.step = "journal"
		err = c.journals()
	}
	return c.tally, err
}

func (o Checker) begin(ctx context.Context, step string) *checker {
	return &checker{ctx: ctx, store: o.Store, layout: o.Layout, now: o.NowMs, report: o.Report, progress: o.Progress, step: step, tally: Tally{}}
}

// everything is every key that is not the store's own; trees is those of all call trees.
var (
	everything = kv.Range{End: []byte{kv.ReservedPrefix}}
	trees      = kv.Range{Start: []byte{0}, End: []byte{1}}
)

type checker struct {
	ctx       context.Context
	store     kv.Store
	layout    keyspace.Layout
	now       int64
	report    func(Problem)
	progress  func(step string, rows int64)
	step      string
	tally     Tally
	workspace string   // the last one whose record was looked for
	suspended []object // suspended tasks whose callbacks are still to be found
}

// object names one promise.
type object struct{ workspace, id string }

// page is one snapshot of a check.
type page struct {
	*checker
	r      kv.Reader
	bound  kv.Position // the last commit in it
	txns   map[string]*Txn
	floors map[string]kv.EntryPosition // of journal partitions
}

// pages gives every row of a range to visit, a page per snapshot.
func (c *checker) pages(r kv.Range, visit func(*page, kv.Entry) error) error {
	for more := true; more; {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		err := c.store.View(c.ctx, func(s kv.Snapshot) error {
			rows, err := s.Scan(r, checkPage)
			if err != nil {
				return err
			}
			p := &page{checker: c, r: s, bound: s.Bound(), txns: map[string]*Txn{}, floors: map[string]kv.EntryPosition{}}
			for _, row := range rows {
				if err := visit(p, row); err != nil {
					return err
				}
			}
			if more = len(rows) == checkPage; more {
				r = keyspace.After(r, rows[len(rows)-1].Key)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if c.progress != nil {
			c.progress(c.step, c.tally.Rows())
		}
		if len(c.suspended) >= checkSuspended {
			if err := c.wakeable(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *page) txn(workspace string) *Txn {
	t := p.txns[workspace]
	if t == nil {
		t = Read(p.r, workspace, p.layout)
		p.txns[workspace] = t
	}
	return t
}

// bad reports a problem of a row.
func (c *checker) bad(row keyspace.Row, format string, args ...any) error {
	c.report(Problem{Workspace: row.Workspace, Kind: row.Kind, ID: row.ID, Detail: fmt.Sprintf(format, args...)})
	return nil
}

// damage reports an error that says that stored bytes do not decode; any other is passed on.
func (c *checker) damage(row keyspace.Row, err error) error {
	if errors.Is(err, kv.ErrCorrupt) || errors.Is(err, machine.ErrInvariant) {
		return c.bad(row, "%v", err)
	}
	return err
}

func (p *page) check(entry kv.Entry) error {
	row, err := keyspace.ParseRow(entry.Key, entry.Value)
	p.tally[row.Kind]++
	if err != nil {
		return p.damage(row, err)
	}
	if err := p.checkWorkspace(row); err != nil {
		return err
	}
	switch row.Kind {
	case "object":
		return p.checkObject(row, entry)
	case "waiter":
		return p.checkWaiter(row, entry)
	case "drain":
		return p.checkDrain(row, entry)
	case "unblock":
		return p.checkUnblock(row, entry)
	case "chunk", "schedule chunk":
		return p.checkChunk(row, entry)
	case "schedule":
		return p.checkSchedule(row, entry)
	case "workspace", "server", "debug clock":
		_, err := keyspace.Instant(row.Kind, entry.Value)
		return p.damage(row, err)
	case "format":
		return p.checkFormat(row, entry)
	case "member", "roster", "connection":
		return p.checkServers(row, entry)
	case "quarantine":
		_, err := keyspace.ParseQuarantined(entry.Value)
		return p.damage(row, err)
	}
	return p.checkEntry(row, entry)
}

// checkWorkspace reports a workspace that holds something and has no record.
func (p *page) checkWorkspace(row keyspace.Row) error {
	if row.Workspace == "" || row.Workspace == p.workspace || row.Kind == "debug clock" || row.Kind == "connection" {
		return nil
	}
	p.workspace = row.Workspace
	b, err := p.r.Get(keyspace.For(row.Workspace, p.layout).Workspace())
	if err == nil && b == nil {
		return p.bad(row, "its workspace has no record")
	}
	return err
}

// stored is the object of an id; nil if there is none or if it does not decode, which is reported where the
// check meets the object itself. damaged tells the two apart.
func (p *page) stored(workspace, id string) (o *machine.Object, damaged bool, err error) {
	o, err = p.txn(workspace).Object(id)
	if errors.Is(err, kv.ErrCorrupt) {
		return nil, true, nil
	}
	return o, false, err
}

func (p *page) checkObject(row keyspace.Row, entry kv.Entry) error {
	t := p.txn(row.Workspace)
	o, err := t.adopt(row.ID, entry.Value)
	if err != nil {
		return p.damage(row, err)
	}
	for i := 1; i < len(o.Tags); i++ {
		if o.Tags[i-1].Name >= o.Tags[i].Name {
			return p.bad(row, "its tags are not sorted by unique names")
		}
	}
	if o.Task != nil && o.Task.State == protocol.TaskSuspended {
		p.suspended = append(p.suspended, object{row.Workspace, row.ID})
	}
	if err := p.checkDerived(row, t.keys.Derive(nil, o)); err != nil {
		return err
	}
	for _, side := range []keyspace.Side{keyspace.SideParam, keyspace.SideValue} {
		payload := payloadOf(o, side)
		err := p.checkPayload(row, payload, func(n int64) []byte { return t.keys.Chunk(o.ID, side, payload.Ref, n) })
		if err != nil {
			return err
		}
	}
	return nil
}

// checkDerived reports what a record calls for and does not have.
func (p *page) checkDerived(row keyspace.Row, derived []kv.Entry) error {
	keys := make([][]byte, len(derived))
	for i, e := range derived {
		keys[i] = e.Key
	}
	values, err := p.r.GetMany(keys)
	if err != nil {
		return err
	}
	for i, e := range derived {
		kind := keyspace.Kind(e.Key)
		switch {
		case values[i] == nil:
			aside, err := p.r.Get(keyspace.Quarantined(e.Key))
			if err != nil {
				return err
			}
			if aside == nil {
				_ = p.bad(row, "the %s entry that it calls for is missing", kind)
			}
		case !bytes.Equal(values[i], e.Value):
			_ = p.bad(row, "the %s entry that it calls for has another value", kind)
		}
	}
	return nil
}

// checkPayload reports a payload that is not whole.
func (p *page) checkPayload(row keyspace.Row, payload *machine.Payload, key func(n int64) []byte) error {
	if payload.Ref == "" {
		return nil
	}
	whole, err := p.txn(row.Workspace).assemble(payload, key)
	if err != nil {
		return p.damage(row, err)
	}
	if sum := sha256.Sum256(whole); payload.Ref != string(sum[:len(payload.Ref)]) {
		return p.bad(row, "the chunks of a payload do not have the content that the record names")
	}
	return nil
}

func (p *page) checkWaiter(row keyspace.Row, entry kv.Entry) error {
	if err := keyspace.CheckMarker(row.Kind, entry.Value); err != nil {
		return p.damage(row, err)
	}
	w := row.Waiter
	awaited, damaged, err := p.stored(row.Workspace, w.Awaited)
	if err != nil || damaged {
		return err
	}
	draining, err := p.draining(row.Workspace, w.Awaited)
	if err != nil {
		return err
	}
	if err := machine.CheckWaiter(w, awaited, draining); err != nil {
		return p.damage(row, err)
	}
	switch w.Kind {
	case machine.WaiterListener:
		return nil
	case machine.WaiterCallback:
	default:
		return p.bad(row, "a waiter of kind %d", w.Kind)
	}
	awaiter, damaged, err := p.stored(row.Workspace, w.To)
	if err != nil || damaged {
		return err
	}
	if awaiter == nil || awaiter.Task == nil {
		return p.bad(row, "a callback for %q, which has no task", w.To)
	}
	return nil
}

// draining is Txn.Draining where a damaged obligation counts as one: it is reported by itself.
func (p *page) draining(workspace, id string) (bool, error) {
	draining, err := p.txn(workspace).Draining(id)
	if errors.Is(err, kv.ErrCorrupt) {
		return true, nil
	}
	return draining, err
}

func (p *page) checkDrain(row keyspace.Row, entry kv.Entry) error {
	if err := keyspace.CheckMarker(row.Kind, entry.Value); err != nil {
		return p.damage(row, err)
	}
	o, damaged, err := p.stored(row.Workspace, row.ID)
	if err != nil {
		return err
	}
	if !damaged && (o == nil || o.State == protocol.Pending) {
		return p.bad(row, "it names a promise that is not settled")
	}
	return p.checkDerived(row, []kv.Entry{p.txn(row.Workspace).keys.DeriveDrain(row.ID)})
}

func (p *page) checkUnblock(row keyspace.Row, entry kv.Entry) error {
	if _, err := keyspace.Instant(row.Kind, entry.Value); err != nil {
		return p.damage(row, err)
	}
	o, damaged, err := p.stored(row.Workspace, row.ID)
	if err != nil {
		return err
	}
	if !damaged && (o == nil || o.State == protocol.Pending) {
		return p.bad(row, "it announces a promise that is not settled")
	}
	return p.checkDerived(row, []kv.Entry{p.txn(row.Workspace).keys.DeriveUnblock(row.ID, row.Address)})
}

func (p *page) checkChunk(row keyspace.Row, entry kv.Entry) error {
	if _, err := keyspace.Chunk(entry.Value); err != nil {
		return p.damage(row, err)
	}
	var payload *machine.Payload
	if row.Kind == "chunk" {
		o, damaged, err := p.stored(row.Workspace, row.ID)
		if err != nil || damaged {
			return err
		}
		if o != nil {
			payload = payloadOf(o, row.Side)
		}
	} else {
		s, err := p.txn(row.Workspace).Schedule(row.ID)
		if errors.Is(err, kv.ErrCorrupt) {
			return nil
		}
		if err != nil {
			return err
		}
		if s != nil {
			payload = &s.PromiseParam
		}
	}
	if payload == nil || payload.Ref != row.Token || row.Piece < 0 || row.Piece >= pieces(payload.Size) {
		return p.bad(row, "no record names it")
	}
	return nil
}

func (p *page) checkSchedule(row keyspace.Row, entry kv.Entry) error {
	s, err := keyspace.Schedule(row.ID, entry.Value)
	if err != nil {
		return p.damage(row, err)
	}
	if _, err := cron.Parse(s.Cron); err != nil {
		_ = p.bad(row, "its cron expression does not parse: %v", err)
	}
	switch {
	case s.Disarmed && (!s.HasRun || s.NextRunAt != s.LastRunAt):
		_ = p.bad(row, "disarmed, and its next run is not its last")
	case !s.Disarmed && s.HasRun && s.NextRunAt <= s.LastRunAt:
		_ = p.bad(row, "its next run does not come after its last")
	}
	t := p.txn(row.Workspace)
	if err := p.checkDerived(row, t.keys.DeriveSchedule(nil, s)); err != nil {
		return err
	}
	payload := &s.PromiseParam
	return p.checkPayload(row, payload, func(n int64) []byte { return t.keys.ScheduleChunk(s.ID, payload.Ref, n) })
}

func (p *page) checkFormat(row keyspace.Row, entry kv.Entry) error {
	f, err := keyspace.ParseFormat(entry.Value)
	if err != nil {
		return p.damage(row, err)
	}
	if f.Derivation != keyspace.DerivationVersion || f.Shards != p.layout.Shards {
		return p.bad(row, "entries of version %d in %d shards, expected version %d in %d",
			f.Derivation, f.Shards, keyspace.DerivationVersion, p.layout.Shards)
	}
	return nil
}
