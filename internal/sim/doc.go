// Package sim runs a whole server, its workers and its clients in one goroutine, under a virtual clock and a seeded
// queue of events: one seed decides everything. The server is the real one (engine, store, delivery) without its real
// time: the passes of its loops are events. Workers speak the protocol as the SDKs do, and everything between them
// goes wrong on purpose: messages, workers, server, store, clock.
//
// What is to be done (Program) and what goes wrong (Plan) are data, made from the seed apart from each other, so that a
// failure can be tried again with less of either.
//
// What is watched: every answer against all earlier ones (ledger.go), against the fate of its own transaction and, if
// asked for, against the reference model (model.go); the journal, which must fold to what is stored and in which time
// never goes back; the whole store, by its own checker, every now and then, after every restart and at the end. Once
// the faults are over everything must come to its end within a bounded time: no open task, every listener told by a
// message unless its stream was mute, every result that of its steps, every instant of a schedule served once, nothing
// set aside.
//
// In one seed of two a single server runs, in the others two or three on one store. Then servers also join, take their
// leave, and are paused, often for longer than their leases, and go on as if nothing had happened; requests and streams
// choose among them; they hear of each other's commits late, or never; their clocks are up to two seconds apart, and what
// is watched allows for as much as those were apart and for no more. The reference model, which knows one clock, watches as
// long as theirs agree.
//
// In three seeds of ten part of the tasks and listeners are at targets that messages are pushed to: hosts that answer 200,
// 500 or 429, hang, are heard of too late or never, and have a worker behind them that claims inside the request. There
// servers also die between a claim and the answer. What is simulated is push.Core on the engine's own queues; a Send ends at
// a target, where push.Pusher would give it to a Transport. Watched is that nothing is sent without a look since its last
// claim, twice at once, beyond what a host or the server takes, before a message's or a host's pause has ended, or by a
// server that takes its leave, and that nothing is reported that nobody has accepted (pushwatch.go).
//
// What it does not show: commits that several requests share (each is its own here), the real disk, races between
// goroutines, HTTP and JSON, several workspaces, debug time, the goroutines and HTTP requests of push. Other suites do.
//
// The files: world.go (events, time, trace), program.go (what the workers run), plan.go (faults), network.go (requests
// and answers), stream.go (messages to workers), disk.go (the store that fails), server.go (one server's life and
// loops), fleet.go (several servers), worker.go and run.go (an SDK), pusher.go
// (a server that pushes), target.go (what it pushes to), pushwatch.go, client.go, operator.go (who starts, settles, halts,
// searches), ledger.go (what was answered, and what may be answered after it), model.go (the reference model and the
// journal), check.go (the state at rest and the end), sim.go (Run), many.go (many seeds), shrink.go (fewer faults).
//
// No event starts a goroutine, reads a clock or lets the order of a map decide anything. The same seed gives the same
// trace, byte for byte.
package sim
