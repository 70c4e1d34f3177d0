package kvtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"abide/kv"
)

// The metamorphic runner. A history is a list of statements: transactions, some of which fail of their own
// will, snapshots in which other statements happen, steps of compaction, restarts of the store. It is made
// from a seed, run against a store and against the model at once, and the two must agree on every answer,
// every position and every content. A history that fails is cut down to its shortest form and printed as a
// Go test.

var historyTests = []test{
	{name: "random histories agree with a sorted map", run: testHistories},
}

// opKind is what an operation does.
type opKind string

const (
	opGet     opKind = "get"
	opGetMany opKind = "get many" // of key, end, key
	opScan    opKind = "scan"
	opPut     opKind = "put"
	opDelete  opKind = "delete"
	opAppend  opKind = "append"
	opJournal opKind = "journal" // in a snapshot only
)

// operation is one call of a transaction or a snapshot. In journal operations key is the partition.
type operation struct {
	kind     opKind
	key, end string
	value    string
	limit    int
	after    reference
	nested   *statement // instead of all that: a statement that happens while the snapshot is open
}

// reference names a place in the journal by the statement that wrote there.
type reference struct {
	statement int
	index     uint32
}

// statementKind is what a statement is.
type statementKind string

const (
	doUpdate  statementKind = "update"
	doFail    statementKind = "fail" // an update whose closure returns an error at its end
	doView    statementKind = "view"
	doCompact statementKind = "compact"
	doReopen  statementKind = "reopen"
)

// statement is one step of a history. Numbers stay the same when others are cut out.
type statement struct {
	number    int
	kind      statementKind
	body      []operation
	partition string    // of compact
	target    reference // of compact
}

// history is a program that any store can run.
type history []statement

// operations counts what a history asks of a store.
func (h history) operations() int {
	n := 0
	for _, s := range h {
		n += max(1, len(s.body))
		for _, op := range s.body {
			if op.nested != nil {
				n += len(op.nested.body)
			}
		}
	}
	return n
}

// operationsEach is how long one history is, about: long enough for compaction to take several steps.
const operationsEach = 500

func testHistories(f *fixture) {
	total := f.harness.Operations
	if total == 0 {
		total = DefaultOperations
	}
	for seed := f.harness.Seed; total > 0; seed++ {
		h := generate(seed, min(total, operationsEach), f.harness.Reopen != nil)
		total -= h.operations()
		if err := runHistory(f.T, f.harness, h); err != nil {
			short, err := shrink(h, err, func(h history) error { return runHistory(f.T, f.harness, h) })
			f.Fatalf("the history of seed %d: %v\nIn its shortest form:\n\n%s", seed, err, printProgram(short))
		}
	}
}

// RunHistories runs the random histories alone, on stores that may fail as the contract allows: conflicts and
// refusals are tried again, unknown outcomes resolved, or told by the bound.
func RunHistories(t *testing.T, h Harness) {
	runTest(t, h, historyTests[0])
}

// runHistory runs a history on a fresh store.
func runHistory(t testing.TB, harness Harness, h history) error {
	r := &replay{harness: harness, t: t, store: harness.Open(t, Config{Keys: register}), model: newModel()}
	err := r.run(h)
	if closeErr := r.store.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("closing the store: %w", closeErr)
	}
	return err
}

// generator draws a history.
type generator struct {
	*rand.Rand
	numbers    int
	appended   []reference // places in the journal that exist so far
	partitions []string
	reopens    bool
}

// generate makes a history of about this many operations. The same seed makes the same history for ever.
func generate(seed uint64, operations int, reopens bool) history {
	g := &generator{
		Rand:       rand.New(rand.NewPCG(seed, 0xAB1DE)),
		partitions: []string{"", "p", "p\x00", "pp", "\xFF"},
		reopens:    reopens,
	}
	var h history
	for h.operations() < operations {
		h = append(h, g.statement(true))
	}
	return h
}

func (g *generator) statement(top bool) statement {
	g.numbers++
	s := statement{number: g.numbers}
	switch n := g.IntN(100); {
	case n < 12:
		s.kind, s.body = doFail, g.body(g.size())
	case n < 30 && top:
		s.kind, s.body = doView, g.viewBody()
	case n < 36:
		s.kind, s.partition, s.target = doCompact, g.partition(), g.place()
	case n < 37 && top && g.reopens:
		s.kind = doReopen
	default:
		s.kind, s.body = doUpdate, g.body(g.size())
		index := uint32(0)
		for _, op := range s.body {
			if op.kind == opAppend {
				g.appended = append(g.appended, reference{s.number, index})
				index++
			}
		}
	}
	return s
}

// size is the number of operations of a transaction: few, and at times many.
func (g *generator) size() int {
	if g.IntN(20) == 0 {
		return 40 + g.IntN(40)
	}
	return 1 + g.IntN(8)
}

func (g *generator) body(n int) []operation {
	body := make([]operation, n)
	kinds := []opKind{opPut, opPut, opPut, opDelete, opDelete, opGet, opGetMany, opScan, opScan, opAppend}
	if g.IntN(6) == 0 { // one that mostly appends
		kinds = append(kinds, slices.Repeat([]opKind{opAppend}, 20)...)
	}
	for i := range body {
		body[i] = g.operation(kinds)
	}
	return body
}

// viewBody reads, and lets other statements happen between its reads.
func (g *generator) viewBody() []operation {
	var body []operation
	for range 1 + g.IntN(6) {
		if g.IntN(3) == 0 {
			nested := g.statement(false)
			body = append(body, operation{nested: &nested})
			continue
		}
		body = append(body, g.operation([]opKind{opGet, opGetMany, opScan, opScan, opJournal, opJournal}))
	}
	return body
}

func (g *generator) operation(kinds []opKind) operation {
	op := operation{kind: kinds[g.IntN(len(kinds))], key: g.key()}
	switch op.kind {
	case opGetMany:
		op.end = g.key()
	case opScan:
		op.end, op.limit = g.key(), g.limit()
		switch g.IntN(4) {
		case 0:
			op.key = ""
		case 1:
			op.end = "\xFF"
		}
	case opPut:
		op.value = g.value()
	case opAppend:
		op.key, op.value = g.partition(), g.value()
	case opJournal:
		op.key, op.limit, op.after = g.partition(), g.limit(), g.place()
	}
	return op
}

// key draws from few keys, so that they meet, with runs of the bytes that are special to some encoding.
func (g *generator) key() string {
	key := []byte{"\x00ab\xFE"[g.IntN(4)]}
	for range g.IntN(4) {
		key = append(key, "\x00a\xFF"[g.IntN(3)])
	}
	if g.IntN(200) == 0 {
		key = append(key, strings.Repeat("\xFF", kv.MaxKeyBytes-len(key))...)
	}
	return string(key)
}

func (g *generator) value() string {
	switch g.IntN(30) {
	case 0:
		return strings.Repeat("v", 1+g.IntN(6000))
	case 1:
		return strings.Repeat("\x00", g.IntN(30))
	case 2, 3:
		return ""
	}
	return fmt.Sprint(g.IntN(100))
}

func (g *generator) limit() int {
	return []int{1, 1, 2, 3, 5, 20, 1000}[g.IntN(7)]
}

func (g *generator) partition() string { return g.partitions[g.IntN(len(g.partitions))] }

// place draws a place in the journal: most often that of an entry, or after everything of its commit.
func (g *generator) place() reference {
	if len(g.appended) == 0 || g.IntN(6) == 0 {
		return reference{}
	}
	r := g.appended[g.IntN(len(g.appended))]
	if g.IntN(4) == 0 {
		r.index = kv.AfterCommit
	}
	return r
}
