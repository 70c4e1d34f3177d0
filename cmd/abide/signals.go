package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	// echo is how soon after the first a second signal is the same one: supervisors signal a process and then its
	// group.
	echo = 100 * time.Millisecond
	// unheeded is how long a signal waits for somebody to take it.
	unheeded = time.Second
	// exitSignaled and the signal's number are the exit code of a process that a signal ended, as shells have it.
	exitSignaled = 128
)

// stopSignals gives the signals that ask the process to end to whoever listens for them. One that nobody takes ends the
// process by itself: a server that hangs in its start, at a database that does not answer or a file that cannot be read, or
// a subcommand that waits for no signal. Nothing is lost by that, since a process may die at any instant. (The usual effect of
// these signals will not do: they have none on the first process of a container.)
func stopSignals() <-chan os.Signal {
	heard, given := make(chan os.Signal, 2), make(chan os.Signal)
	signal.Notify(heard, os.Interrupt, syscall.SIGTERM)
	go forward(heard, given, echo, unheeded, func(sig os.Signal) {
		fmt.Fprintf(os.Stderr, "abide: ended by a signal (%s)\n", sig)
		code := exitSignaled
		if number, ok := sig.(syscall.Signal); ok {
			code += int(number)
		}
		os.Exit(code)
	})
	return given
}

// forward hands every signal on, but for those within echo of one that was taken, and calls end with one that nobody takes
// within patience. It returns when heard is closed.
func forward(heard <-chan os.Signal, given chan<- os.Signal, echo, patience time.Duration, end func(os.Signal)) {
	var taken time.Time
	for sig := range heard {
		if !taken.IsZero() && time.Since(taken) < echo {
			continue
		}
		timer := time.NewTimer(patience)
		select {
		case given <- sig:
			taken = time.Now()
		case <-timer.C:
			end(sig)
		}
		timer.Stop()
	}
}
