//go:build !dropsignals

package batch

// dropSignals is false in every build but that of signals_dropped.go.
const dropSignals = false
