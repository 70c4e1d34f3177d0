//go:build dropsignals

package batch

// dropSignals makes every store send no signals at all. With it the suites above the contract and the server must
// still do everything, later: signals are hints. See the target signal-free of the Makefile.
const dropSignals = true
