// Package mutant plants faults in the repository and shows that its tests find them: each mutant is a small change
// that a tired maintainer could make, against a rule that is written down. A mutant that nothing catches is a missing
// test.
//
// The mutants are the files in mutants/, each named after its fault:
//
//	rule: the rule that it breaks, in one sentence
//	source: where the rule is written
//	test: ./folder -run ^TestName$
//	seeds: 400
//
//	--- path/of/the/file.go
//	the text as it is, which occurs exactly once
//	+++
//	what stands there instead
//
// There may be several tests, which are tried in order, and several changes, each with its own "---" line. seeds bounds
// the simulation that follows if no test has failed; 0 says that the simulation does not run that code
// (docs/decisions/0019). Tests are named because they fail quickly, not because they alone would.
//
//	go test ./internal/mutant -run TestMutants -v -timeout 3h -mutants all
//	go test ./internal/mutant -run TestMutants -v -mutants rotate [-turn N]
//	go test ./internal/mutant -run TestMutants -v -mutants NAME,NAME [-by both]
//
// Without -mutants the tests check only that every mutant still fits: its text occurs once, and the package compiles
// with the change. A mutant whose change does not compile, or whose run does not end in its time, is an error and not
// caught. So is one whose tests fail without it.
package mutant
