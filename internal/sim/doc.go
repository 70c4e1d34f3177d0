// Package sim runs a whole server, its workers and its clients in one goroutine, under a virtual clock and a seeded
// queue of events: one seed decides everything. The server is the real one (engine, store, delivery) without its real
// time: the passes of its loops are events. Workers speak the protocol as the SDKs do, and everything between them
// goes wrong on purpose: messages, workers, server, store, clock.
//
// What is to be done (Program) and what goes wrong (Plan) are data, made from the seed apart from each other, so that a
// failure can be tried again with less of either.
//
// The files: world.go (events, time, trace), program.go (what the workers run), plan.go (faults), network.go (requests
// and answers), stream.go (messages to workers), disk.go (the store that fails), server.go (one server's life and
// loops), worker.go and run.go (an SDK), client.go, operator.go (who starts, settles, halts, searches), ledger.go
// (what was answered, and what may be answered after it), check.go (the state at rest and the end), sim.go (Run).
//
// No event starts a goroutine, reads a clock or lets the order of a map decide anything. The same seed gives the same
// trace, byte for byte.
package sim
