package main

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// TestForwardedSignals: who listens gets a signal once, also when it comes twice; one that nobody takes ends the process.
func TestForwardedSignals(t *testing.T) {
	begin := func(echo, patience time.Duration) (heard chan<- os.Signal, given, ended <-chan os.Signal) {
		in, out, last := make(chan os.Signal), make(chan os.Signal), make(chan os.Signal, 1)
		go forward(in, out, echo, patience, func(sig os.Signal) { last <- sig })
		return in, out, last
	}
	heard, given, _ := begin(time.Hour, time.Hour)
	heard <- syscall.SIGTERM
	if sig := <-given; sig != syscall.SIGTERM {
		t.Errorf("given %v", sig)
	}
	for range 2 { // the second is heard only when nobody is waited for to take the first
		select {
		case heard <- syscall.SIGTERM:
		case sig := <-given:
			t.Fatalf("given %v again", sig)
		case <-time.After(time.Minute):
			t.Fatal("an echo is kept for somebody to take")
		}
	}
	close(heard)
	heard, given, _ = begin(0, time.Hour) // long after the first
	for range 2 {
		heard <- syscall.SIGTERM
		<-given
	}
	close(heard)
	heard, _, ended := begin(0, time.Millisecond)
	heard <- os.Interrupt
	if sig := <-ended; sig != os.Interrupt {
		t.Errorf("ended by %v", sig)
	}
	close(heard)
}
