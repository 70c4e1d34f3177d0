package keyspace

import (
	"fmt"

	"abide/internal/machine"
	"abide/kv/tuple"
)

// Row is a parsed key of any kind: which record the row is, or belongs to. Fields that its kind does not have
// are zero.
type Row struct {
	Kind      string // as Kind names it
	Workspace string
	ID        string // of a promise, a schedule or, for a server's row, of the server
	Waiter    machine.Waiter
	Address   string // of an unblock message
	Timer     TimerKind
	Side      Side   // of a chunk
	Token     string // of a chunk, and of a schedule's chunk
	Piece     int64  // number of a chunk, from 0
	Moved     []byte // the key of a row that was set aside
	Group     string // of a connection
	PID       string // of a connection
}

// ParseRow parses any key; the value is looked at for an unblock entry alone, whose address it holds.
// Errors: kv.ErrCorrupt, naming the kind as far as it is known, for bytes that are no key of this register.
func ParseRow(key, value []byte) (Row, error) {
	row := Row{Kind: Kind(key)}
	e := elements{Reader: tuple.NewReader(key)}
	if e.Kind() == tuple.KindNil {
		row.parseTree(&e)
	} else {
		row.parseSpace(&e, e.number(), key, value)
	}
	if e.err == nil {
		e.err = e.End()
	}
	if e.err != nil {
		return row, corrupt(row.Kind, e.err)
	}
	return row, nil
}

func (row *Row) parseTree(e *elements) {
	row.Workspace = e.workspace()
	tree := e.text()
	kind := e.number()
	row.ID = e.join(tree, e.text())
	switch kind {
	case treeObject, treeDrain:
	case treeBranch, treeOrigin:
		row.ID = e.id()
	case treeWaiter:
		row.Waiter = machine.Waiter{Awaited: row.ID, Kind: machine.WaiterKind(e.number()), To: e.text()}
	case treeChunk:
		row.Side, row.Token, row.Piece = Side(e.number()), e.bytes(), e.number()
	case treeUnblock:
		row.Address = e.text()
	default:
		e.fail(fmt.Errorf("kind %d of tree keys is not registered", kind))
	}
}

func (row *Row) parseSpace(e *elements, ns int64, key, value []byte) {
	switch ns {
	case nsTimer:
		t, err := ParseTimer(key)
		row.Workspace, row.ID, row.Timer = t.Workspace, t.ID, t.Kind
		e.whole(err)
	case nsUnblock:
		u, err := ParseUnblockEntry(key, value)
		row.Workspace, row.ID, row.Address = u.Workspace, u.ID, u.Address
		e.whole(err)
	case nsLease:
		row.Workspace = e.workspace()
		e.text() // the pid
		row.ID = e.text()
	case nsExecute:
		row.Workspace = e.workspace()
		e.fail(skipDestination(&e.Reader))
		e.number() // the shard
		row.ID = e.text()
	case nsOpenTask, nsManyTags:
		row.Workspace, row.ID = e.workspace(), e.id()
	case nsTag:
		row.Workspace = e.workspace()
		e.bytes() // the digest of name and value
		row.ID = e.id()
	case nsFormat, nsRoster:
	case nsWorkspace, nsDebugClock:
		row.Workspace = e.workspace()
	case nsSchedule:
		row.Workspace, row.ID = e.workspace(), e.text()
	case nsScheduleChunk:
		row.Workspace, row.ID, row.Token, row.Piece = e.workspace(), e.text(), e.bytes(), e.number()
	case nsQuarantine:
		row.Moved = []byte(e.bytes())
	case nsServer, nsMember:
		row.ID = e.text()
	case nsConnection:
		row.Workspace, row.Group, row.PID = e.workspace(), e.text(), e.text()
	default:
		e.fail(fmt.Errorf("namespace %d is not registered", ns))
	}
}

// elements reads the elements of a key one by one and keeps the first error.
type elements struct {
	tuple.Reader
	err error
}

func (e *elements) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// whole says that the key has been parsed to its end by somebody else.
func (e *elements) whole(err error) {
	e.fail(err)
	e.Reader = tuple.Reader{}
}

func take[T any](e *elements, next func() (T, error)) (v T) {
	if e.err == nil {
		v, e.err = next()
	}
	return v
}

func (e *elements) text() string  { return take(e, e.NextString) }
func (e *elements) number() int64 { return take(e, e.NextInt) }
func (e *elements) bytes() string { return string(take(e, e.NextBytes)) }

// id reads (tree(id), rest).
func (e *elements) id() string {
	tree := e.text()
	return e.join(tree, e.text())
}

func (e *elements) join(tree, rest string) string {
	return take(e, func() (string, error) { return join(tree, rest) })
}

// workspace reads the tenant and the workspace.
func (e *elements) workspace() string {
	if e.err == nil {
		e.err = e.NextNil()
	}
	return e.text()
}
