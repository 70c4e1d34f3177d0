package kvtest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"abide/kv"
	"abide/kv/memkv"
)

// sample is a history with every kind of statement and operation.
var sample = history{
	{number: 1, kind: doUpdate, body: []operation{
		{kind: opPut, key: "a", value: "1"},
		{kind: opPut, key: "b\x00", value: strings.Repeat("v", 100)},
		{kind: opGet, key: "a"},
		{kind: opGetMany, key: "a", end: "absent"},
		{kind: opAppend, key: "p", value: "first"},
		{kind: opAppend, key: "p", value: "second"},
	}},
	{number: 2, kind: doFail, body: []operation{
		{kind: opDelete, key: "a"},
		{kind: opScan, key: "", end: "\xFF", limit: 5},
	}},
	{number: 3, kind: doView, body: []operation{
		{kind: opScan, key: "a", end: "b", limit: 5},
		{nested: &statement{number: 4, kind: doUpdate, body: []operation{
			{kind: opDelete, key: "a"},
			{kind: opAppend, key: "p", value: "third"},
		}}},
		{kind: opGet, key: "a"},
		{nested: &statement{number: 5, kind: doCompact, partition: "p", target: reference{1, 0}}},
		{kind: opJournal, key: "p", limit: 10},
	}},
	{number: 6, kind: doReopen},
	{number: 7, kind: doView, body: []operation{
		{kind: opJournal, key: "p", limit: 10, after: reference{1, 0}},
		{kind: opJournal, key: "p", limit: 10},
		{kind: opJournal, key: "p", limit: 10, after: reference{4, kv.AfterCommit}},
	}},
	{number: 8, kind: doCompact, partition: "p", target: reference{4, 0}},
}

// TestPrintedProgram holds what a history prints against pasted_test.go, which the compiler and TestHistory, the
// pasted program, check: after a change, paste the new one there.
func TestPrintedProgram(t *testing.T) {
	text, err := os.ReadFile("pasted_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, pasted, _ := strings.Cut(string(text), "// What follows is printed.\n")
	if printed := printProgram(sample); strings.TrimSpace(pasted) != strings.TrimSpace(printed) {
		t.Errorf("the program is not the one in pasted_test.go; it is now:\n%s", printed)
	}
	if err := runHistory(t, harnessOf(func(s *memkv.Store) kv.Store { return s }), sample); err != nil {
		t.Errorf("the history itself: %v", err)
	}
}

// TestShrink gives the shrinker a store with a small fault and wants the fault, alone.
func TestShrink(t *testing.T) {
	h := inTx(subtle)
	found := 0
	for seed := range uint64(8) {
		long := generate(seed, 500, true)
		failure := runHistory(t, h, long)
		if failure == nil {
			continue
		}
		found++
		short, failure := shrink(long, failure, func(candidate history) error { return runHistory(t, h, candidate) })
		if failure == nil || short.operations() > 4 || runHistory(t, h, short) == nil {
			t.Errorf("seed %d: %d operations are left, %v", seed, short.operations(), failure)
		}
	}
	if found < 4 {
		t.Errorf("%d of 8 histories found the fault", found)
	}
}

func TestShrinkKeepsWhatFails(t *testing.T) {
	meant := errors.New("meant")
	// It fails whenever a delete of "a" comes after a put of "a", wherever they are.
	run := func(h history) error {
		put := false
		for _, s := range h {
			for _, op := range s.body {
				switch {
				case op.kind == opPut && op.key == "a":
					put = true
				case op.kind == opDelete && op.key == "a" && put:
					return meant
				}
			}
		}
		return nil
	}
	tried := 0
	for seed := range uint64(10) {
		h := generate(seed, 300, false)
		failure := run(h)
		if failure == nil {
			continue
		}
		tried++
		before := fmt.Sprintf("%+v", h)
		short, failure := shrink(h, failure, run)
		if !errors.Is(failure, meant) || short.operations() != 2 {
			t.Errorf("seed %d: %d operations are left, %v", seed, short.operations(), failure)
		}
		if fmt.Sprintf("%+v", h) != before {
			t.Errorf("seed %d: the history itself was changed", seed)
		}
	}
	if tried < 5 {
		t.Errorf("%d histories failed, want more", tried)
	}
}

func TestGenerateIsDeterministic(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(5) {
		a, b := generate(seed, 300, true), generate(seed, 300, true)
		if printProgram(a) != printProgram(b) {
			t.Errorf("seed %d gives two histories", seed)
		}
		seen[printProgram(a)] = true
		kinds := map[string]bool{}
		for _, s := range generate(seed, 3000, true) {
			kinds[string(s.kind)] = true
			for _, op := range s.body {
				kinds[string(op.kind)] = true
			}
		}
		if want := 5 + 7 + 1; len(kinds) != want { // statements, operations, the nested one's empty kind
			t.Errorf("seed %d draws %d kinds of 13: %v", seed, len(kinds), kinds)
		}
	}
	if len(seen) != 5 {
		t.Errorf("5 seeds give %d histories", len(seen))
	}
}
