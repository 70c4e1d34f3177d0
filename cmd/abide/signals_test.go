package main

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// TestForwardedSignals: who listens gets a signal once, also when it comes twice; one that nobody takes ends the process.
func TestForwardedSignals(t *testing.T) {
	heard, given, ended := make(chan os.Signal), make(chan os.Signal), make(chan os.Signal, 1)
	go forward(heard, given, 2*echo, func(sig os.Signal) { ended <- sig })
	defer close(heard)
	heard <- syscall.SIGTERM
	if sig := <-given; sig != syscall.SIGTERM {
		t.Errorf("given %v", sig)
	}
	heard <- syscall.SIGTERM // the echo
	time.Sleep(2 * echo)
	select {
	case sig := <-given:
		t.Errorf("given %v again", sig)
	case sig := <-ended:
		t.Errorf("ended by %v, which was an echo", sig)
	default:
	}
	heard <- os.Interrupt
	if sig := <-ended; sig != os.Interrupt {
		t.Errorf("ended by %v", sig)
	}
}
