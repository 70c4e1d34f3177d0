// Package workload holds the oracle that the server is tested against, and what drives both: a reference
// model of docs/machine.md, a seeded generator of requests that goes for the corners, the comparison of
// answers, and the shrinking of a history that shows a difference.
//
// The model is written from docs/machine.md and docs/protocol.md alone, in another style than the machine:
// plain maps, whole passes over everything, no index, no bound, no store. It shares the types of requests
// with the server (package protocol) and nothing else, so that a rule that is wrong in one of the two shows as a
// difference; internal/lint keeps it so.
//
// The files: model.go (state, time, dispatch), valid.go (what is a 400), promise.go, task.go, schedule.go,
// cron.go (the requests), step.go (internal steps and debug.tick), view.go (records, search, debug.snap),
// op.go (one request of a history, as JSON), generate.go, plan.go, choose.go (the generator), coverage.go,
// enumerate.go (which situations were met, and which there are), compare.go (is this answer that answer),
// differ.go and shrink.go (a history against a server), observed.go (a server whose internal steps are reported).
package workload
