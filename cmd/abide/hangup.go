package main

import (
	"os"
	"os/signal"
	"syscall"
)

// surviveTerminal keeps a server from ending with the terminal that it was started in, and gives the hang-ups, which ask it to
// read its files again. A terminal that closes sends one to all that run in it, and takes down what the server's log is
// piped into: the next line would otherwise end the server by SIGPIPE. forget gives both signals their usual effect back.
// (They are handled and not ignored, since programs that the server starts would inherit that.)
func surviveTerminal() (hangUps <-chan os.Signal, forget func()) {
	heard, pipes := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	signal.Notify(pipes, syscall.SIGPIPE)
	return heard, func() {
		signal.Stop(heard)
		signal.Stop(pipes)
	}
}
