// Package deliver hands the messages of the outbox to the workers: execute to somebody who can run a
// task, unblock to whoever waits for a promise. So far it speaks to workers that poll over SSE.
//
// Correctness never needs a hint: the outbox is durable, the groups that have connections are scanned at
// least once a poll interval, and an entry is removed only after it was delivered. Hints are the fast
// path.
//
// Two addresses mean more than they say: the TypeScript SDK misreads its own group and pid when its base URL names
// a workspace, so what it writes then stands for all connections of that workspace. Destination tells how.
//
// Core is a step function of (now, event) without clock, goroutine or store; Deliverer is the thin
// real-time shell around it. The simulator drives Core itself.
package deliver
