package mutant

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

const whole = `rule: nothing is lost
source: docs/x.md
test: ./kv -run ^TestX$
test: ./kv/batch -run TestY
seeds: 7

--- kv/x.go
	a := 1

	b()
+++
	a := 2
--- kv/y.go
c
+++
`

func TestParse(t *testing.T) {
	m, err := parseMutant("m", whole)
	if err != nil {
		t.Fatal(err)
	}
	want := "&{m nothing is lost docs/x.md [{./kv ^TestX$} {./kv/batch TestY}] 7 [{kv/x.go \ta := 1\n\n\tb() \ta := 2} {kv/y.go c }]}"
	type plain mutant
	if got := fmt.Sprint((*plain)(m)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, c := range []struct{ from, to, says string }{
		{"rule: nothing is lost", "", "must all be given"},
		{"seeds: 7", "seeds: many", "number of seeds"},
		{"seeds: 7", "seeds: 1001", "number of seeds"},
		{"test: ./kv -run ^TestX$", "test: kv -run X", "'./folder -run pattern'"},
		{"source: docs/x.md", "sauce: docs/x.md", `no field "sauce"`},
		{"source: docs/x.md", "source", "not a field"},
		{"--- kv/x.go\n", "", "not a field"},
		{"--- kv/y.go\nc\n", "", "+++ without"},
	} {
		if _, err := parseMutant("m", strings.Replace(whole, c.from, c.to, 1)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("with %q: %v, want one that says %q", c.to, err, c.says)
		}
	}
}

func TestApply(t *testing.T) {
	read := func(name string) ([]byte, error) {
		if name != "f" {
			return nil, errors.New("absent")
		}
		return []byte("one two two three"), nil
	}
	for _, c := range []struct {
		edits []edit
		want  string // empty: an error that says
		says  string
	}{
		{[]edit{{"f", "one", "1"}, {"f", "three", "3"}}, "1 two two 3", ""},
		{[]edit{{"f", "one", "1"}, {"f", "1", ""}}, " two two three", ""},
		{[]edit{{"f", "two", "2"}}, "", "2 times"},
		{[]edit{{"f", "four", "4"}}, "", "0 times"},
		{[]edit{{"f", "one", "one"}}, "", "changes nothing"},
		{[]edit{{"f", "", "x"}}, "", "changes nothing"},
		{[]edit{{"g", "x", "y"}}, "", "absent"},
	} {
		m := &mutant{name: "m", edits: c.edits}
		files, err := m.apply(read)
		if (err == nil) != (c.want != "") || files["f"] != c.want || (err != nil && !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v: %q, %v", c.edits, files, err)
		}
	}
}

// What go test says, and what it means. A mutant counts as caught only if a test has failed.
func TestJudge(t *testing.T) {
	exit := errors.New("exit status 1")
	for _, c := range []struct {
		name   string
		events string
		exit   error
		want   verdict
		test   string
		says   string
	}{
		{"all pass", `{"Action":"run","Test":"TestA"}
{"Action":"pass","Test":"TestA"}
{"Action":"pass","Package":"p"}`, nil, passed, "", ""},
		{"the innermost is named", `{"Action":"run","Test":"TestA"}
{"Action":"run","Test":"TestA/b"}
{"Action":"output","Test":"TestA/b","Output":"x_test.go:1: wrong"}
{"Action":"fail","Test":"TestA/b"}
{"Action":"fail","Test":"TestA"}
{"Action":"fail","Package":"p"}`, exit, failed, "TestA/b", "wrong"},
		{"the process dies", `{"Action":"run","Test":"TestA"}
{"Action":"output","Package":"p","Output":"fatal error: all goroutines are asleep"}
{"Action":"fail","Package":"p"}`, exit, failed, "TestA", "asleep"},
		{"does not compile", `{"Action":"build-output","ImportPath":"p","Output":"x.go:1: undefined: y"}
{"Action":"build-fail","ImportPath":"p"}
{"Action":"fail","Package":"p","FailedBuild":"p"}`, exit, broken, "", "undefined: y"},
		{"does not end", `{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"panic: test timed out after 2m0s"}
{"Action":"fail","Test":"TestA"}
{"Action":"fail","Package":"p"}`, exit, broken, "", "did not end"},
		{"the pattern fits nothing", `{"Action":"output","Package":"p","Output":"testing: warning: no tests to run"}
{"Action":"pass","Package":"p"}`, nil, broken, "", "no test ran"},
		{"all are skipped", `{"Action":"run","Test":"TestA"}
{"Action":"skip","Test":"TestA"}
{"Action":"pass","Package":"p"}`, nil, broken, "", "no test ran"},
		{"go itself fails", `go: no such file`, exit, broken, "", "on stderr"},
	} {
		o := judge([]byte(c.events), []byte("on stderr"), c.exit)
		if o.verdict != c.want || o.test != c.test || !strings.Contains(o.detail, c.says) {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

// A rotation comes round to every mutant, and a turn has no mutant twice.
func TestRotation(t *testing.T) {
	for _, n := range []int{5, 6, 44, 45, 50, 61} {
		var all []*mutant
		for i := range n {
			all = append(all, &mutant{name: fmt.Sprint(i)})
		}
		met := map[string]bool{}
		for turn := range int64(n) {
			some, err := choose(all, "rotate", turn)
			if err != nil || len(some) != rotated {
				t.Fatalf("%d mutants: %d in a turn, %v", n, len(some), err)
			}
			once := map[*mutant]bool{}
			for _, m := range some {
				met[m.name], once[m] = true, true
			}
			if len(once) != len(some) {
				t.Errorf("%d mutants, turn %d: one comes twice", n, turn)
			}
		}
		if len(met) != n {
			t.Errorf("%d mutants: %d are met", n, len(met))
		}
	}
	if _, err := choose([]*mutant{{name: "a"}}, "a,b", 0); err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Error(err)
	}
}

func TestTable(t *testing.T) {
	got := table([]tried{
		{Mutant: "a", CaughtBy: "kv TestX", Seconds: 1},
		{Mutant: "b", Seed: 12, Seeds: 12, Seconds: 2.25},
		{Mutant: "c", Seed: 3, Seeds: 403, Model: true},
		{Mutant: "d", Seeds: 500},
		{Mutant: "e", err: errors.New("x")},
	})
	want := `mutant  caught by       seeds                  seconds
a       kv TestX                               1.0
b       the simulation  12                     2.2
c       the simulation  403 (model)            0.0
d       SURVIVED        500 without a failure  0.0
e       ERROR                                  0.0
3 of 5 caught
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
