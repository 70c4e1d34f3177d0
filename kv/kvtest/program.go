package kvtest

import (
	"fmt"
	"go/format"
	"strconv"
	"strings"

	"abide/kv"
)

// prologue is what a printed program begins with: calls that compare, and say what differs.
const prologue = `// program is the store that failed, and what is known of its positions.
type program struct {
	*testing.T
	s    kv.Store
	at   map[int]kv.Position
	last kv.Position
}

func (p *program) check(err error) {
	p.Helper()
	if err != nil {
		p.Error(err)
	}
}

func (p *program) same(what string, err error, want []string, got ...string) error {
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("%s gives %q, want %q", what, got, want)
	}
	return err
}

func (p *program) text(value []byte) string {
	if value == nil {
		return "<none>"
	}
	return string(value)
}

func (p *program) get(r kv.Reader, key string, want ...string) error {
	value, err := r.Get([]byte(key))
	return p.same("get", err, want, p.text(value))
}

func (p *program) getMany(r kv.Reader, a, b string, want ...string) error {
	values, err := r.GetMany([][]byte{[]byte(a), []byte(b), []byte(a)})
	var got []string
	for _, v := range values {
		got = append(got, p.text(v))
	}
	return p.same("get many", err, want, got...)
}

func (p *program) scan(r kv.Reader, start, end string, limit int, want ...string) error {
	entries, err := r.Scan(kv.Range{Start: []byte(start), End: []byte(end)}, limit)
	var got []string
	for _, e := range entries {
		got = append(got, string(e.Key)+"="+p.text(e.Value))
	}
	return p.same("scan", err, want, got...)
}

func (p *program) journal(v kv.Snapshot, partition string, after kv.EntryPosition, limit int, want ...string) error {
	entries, err := v.Journal([]byte(partition), after, limit)
	if errors.Is(err, kv.ErrExpired) {
		return p.same("journal", nil, want, "expired")
	}
	var got []string
	for _, e := range entries {
		got = append(got, string(e.Record))
	}
	return p.same("journal", err, want, got...)
}

func (p *program) place(statement int, index uint32) kv.EntryPosition {
	if p.at[statement].IsZero() {
		return kv.EntryPosition{}
	}
	return kv.EntryPosition{Commit: p.at[statement], Index: index}
}

func (p *program) update(statement int, writes bool, fn func(kv.Tx) error) error {
	at, err := kv.Run(context.Background(), p.s, kv.Hints{}, fn)
	if err == nil && (writes && at.Compare(p.last) <= 0 || !writes && !at.IsZero()) {
		err = fmt.Errorf("update %d has the position %v after %v", statement, at, p.last)
	}
	if p.at[statement] = at; writes {
		p.last = at
	}
	return err
}

func (p *program) fail(fn func(kv.Tx) error) error {
	meant := errors.New("meant")
	_, err := kv.Run(context.Background(), p.s, kv.Hints{}, func(tx kv.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return meant
	})
	if err == meant {
		return nil
	}
	return fmt.Errorf("a closure that fails: %w", err)
}

func (p *program) view(fn func(kv.Snapshot) error) error { return p.s.View(context.Background(), fn) }

func (p *program) compact(statement int, partition string, target, want kv.EntryPosition, wantMore bool) error {
	floor, more, err := kv.Compact(context.Background(), p.s, []byte(partition), target)
	if err == nil && (floor != want || more != wantMore) {
		err = fmt.Errorf("compaction gives %v, %v, want %v, %v", floor, more, want, wantMore)
	}
	return errors.Join(err, p.view(func(v kv.Snapshot) error {
		if v.Bound().Compare(p.last) > 0 {
			p.at[statement], p.last = v.Bound(), v.Bound()
		}
		return nil
	}))
}
`

// printProgram prints a history as a Go test with the answers that the model gives. It is to be pasted into
// a test file that imports abide/kv, context, errors, fmt, slices, strings and testing, beside a function open
// that makes the store, and reopen where the history has it.
func printProgram(h history) string {
	p := &printer{model: newModel()}
	p.printf("%s\nfunc TestHistory(t *testing.T) {\np := &program{T: t, s: open(t), at: map[int]kv.Position{}}\n", prologue)
	for i := range h {
		p.statement(&h[i], true)
	}
	p.printf("p.check(p.view(func(v kv.Snapshot) error {\nreturn %s\n}))\n}\n", p.scanAll())
	source, err := format.Source([]byte(p.out.String()))
	if err != nil {
		return p.out.String() // better than nothing
	}
	return string(source)
}

// printer runs the model along, with positions of its own.
type printer struct {
	out     strings.Builder
	model   *model
	commits uint64
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

func (p *printer) next() kv.Position {
	p.commits++
	return kv.NewPosition(1, p.commits)
}

func (p *printer) statement(s *statement, top bool) {
	before, after := "p.check(", ")\n"
	if !top {
		before, after = "if err := ", "; err != nil {\nreturn err\n}\n"
	}
	switch s.kind {
	case doUpdate, doFail:
		p.update(s, before, after)
	case doView:
		p.printf("%sp.view(func(v kv.Snapshot) error {\n", before)
		p.viewBody(s.body)
		p.printf("return nil\n})%s", after)
	case doCompact:
		target := p.place(s.target)
		floor, more, wrote := p.model.compact(s.partition, p.model.position(s.target))
		p.printf("%sp.compact(%d, %s, %s, %s, %v)%s", before, s.number, quote(s.partition), target, p.placeOf(floor), more, after)
		if wrote {
			p.model.commit(s.number, nil, p.next())
		}
	case doReopen:
		p.printf("p.check(p.s.Close())\np.s = reopen(t)\n")
	}
}

func (p *printer) update(s *statement, before, after string) {
	next := p.model.clone()
	results, writes := next.run(s.body)
	call := fmt.Sprintf("p.update(%d, %v, ", s.number, writes)
	if s.kind == doFail {
		call = "p.fail("
	}
	p.printf("%s%sfunc(tx kv.Tx) error {\nreturn errors.Join(\n", before, call)
	for _, op := range s.body {
		switch op.kind {
		case opPut:
			p.printf("tx.Put([]byte(%s), []byte(%s)),\n", quote(op.key), quote(op.value))
		case opDelete:
			p.printf("tx.Delete([]byte(%s)),\n", quote(op.key))
		case opAppend:
			p.printf("tx.Append([]byte(%s), []byte(%s)),\n", quote(op.key), quote(op.value))
		default:
			p.printf("%s,\n", p.read("tx", op, results[0]))
			results = results[1:]
		}
	}
	p.printf(")\n})%s", after)
	if s.kind == doUpdate && writes {
		next.commit(s.number, s.body, p.next())
		p.model = next
	}
}

func (p *printer) viewBody(body []operation) {
	then := p.model.clone()
	for _, op := range body {
		if op.nested != nil {
			p.statement(op.nested, false)
			then.commits = p.model.commits
			continue
		}
		p.printf("if err := %s; err != nil {\nreturn err\n}\n", p.read("v", op, then.answer(op)))
	}
}

// read prints a reading call with the answer that it must get.
func (p *printer) read(from string, op operation, want []string) string {
	var call string
	switch op.kind {
	case opGet:
		call = fmt.Sprintf("p.get(%s, %s", from, quote(op.key))
	case opGetMany:
		call = fmt.Sprintf("p.getMany(%s, %s, %s", from, quote(op.key), quote(op.end))
	case opScan:
		call = fmt.Sprintf("p.scan(%s, %s, %s, %d", from, quote(op.key), quote(op.end), op.limit)
	case opJournal:
		call = fmt.Sprintf("p.journal(%s, %s, %s, %d", from, quote(op.key), p.place(op.after), op.limit)
	}
	for _, w := range want {
		call += ", " + quote(w)
	}
	return call + ")"
}

func (p *printer) scanAll() string {
	return p.read("v", operation{kind: opScan, end: "\xFF", limit: kv.MaxScanRows}, p.model.scan("", "\xFF", kv.MaxScanRows))
}

// place prints a reference.
func (p *printer) place(r reference) string {
	if _, ok := p.model.commits[r.statement]; !ok {
		return "kv.EntryPosition{}"
	}
	if r.index == kv.AfterCommit {
		return fmt.Sprintf("p.place(%d, kv.AfterCommit)", r.statement)
	}
	return fmt.Sprintf("p.place(%d, %d)", r.statement, r.index)
}

// placeOf prints a position of the model.
func (p *printer) placeOf(at kv.EntryPosition) string {
	for statement, commit := range p.model.commits {
		if commit == at.Commit {
			return p.place(reference{statement, at.Index})
		}
	}
	return "kv.EntryPosition{}"
}

// quote prints a string as Go, a long one of equal bytes as what it is.
func quote(s string) string {
	const long = 40
	head := strings.TrimRight(s, s[max(0, len(s)-1):])
	if n := len(s) - len(head); n > long {
		tail := fmt.Sprintf("strings.Repeat(%s, %d)", strconv.Quote(s[len(s)-1:]), n)
		if head == "" {
			return tail
		}
		return strconv.Quote(head) + "+" + tail
	}
	return strconv.Quote(s)
}

// list prints strings for an error.
func list(values []string) string {
	var quoted []string
	for _, v := range values {
		quoted = append(quoted, quote(v))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
