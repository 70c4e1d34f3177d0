// Package cluster judges, for one of several servers on one store, which of the others live, how far their clocks are
// from its own, and which of them something belongs to. It is pure: what was read of the store, and when, comes as
// arguments.
//
// Liveness rests on nobody's wall clock: a server is dead when its row has not changed for its lease, as the observer's
// own steady clock measures it. So a server that could not renew its row gives up before others take over, however far
// the clocks are apart. (docs/servers.md)
package cluster
