package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"abide/internal/engine"
)

// supervisor is what started this process, if it wants to hear how it does: systemd with Type=notify, which names a
// datagram socket in NOTIFY_SOCKET and takes lines of KEY=VALUE there, as sd_notify(3) sends them. Nil for none.
type supervisor struct {
	conn     net.Conn
	log      *slog.Logger
	watchdog time.Duration // how long it waits for a sign of life; 0: it does not
}

// Variables that systemd sets.
const (
	notifySocket = "NOTIFY_SOCKET"
	watchdogTime = "WATCHDOG_USEC" // microseconds
	watchdogPID  = "WATCHDOG_PID"  // whom the watchdog watches
)

// openSupervisor connects to who started the process. A socket that cannot be reached is logged: the server serves all
// the same, and whoever waits for its word will say that it did not come.
func openSupervisor(in surroundings, logger *slog.Logger) *supervisor {
	address := in.variable(notifySocket)
	if address == "" {
		return nil
	}
	if name, abstract := strings.CutPrefix(address, "@"); abstract {
		address = "\x00" + name
	}
	conn, err := net.Dial("unixgram", address)
	if err != nil {
		logger.Warn("the supervisor named in "+notifySocket+" cannot be told anything", "error", err)
		return nil
	}
	s := &supervisor{conn: conn, log: logger}
	if pid := in.variable(watchdogPID); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		micros, _ := strconv.ParseInt(in.variable(watchdogTime), 10, 64)
		s.watchdog = max(0, time.Duration(micros)*time.Microsecond)
	}
	return s
}

// ready tells that the server listens.
func (s *supervisor) ready(address string) { s.tell("READY=1\nSTATUS=Listening on " + address) }

// stopping tells that the server has begun to stop, and how long that may take.
func (s *supervisor) stopping(within time.Duration) {
	s.tell(fmt.Sprintf("STOPPING=1\nSTATUS=Finishing what is in flight, for %s at most", within))
}

func (s *supervisor) tell(lines string) {
	if s == nil {
		return
	}
	if _, err := s.conn.Write([]byte(lines)); err != nil {
		s.log.Warn("the supervisor cannot be told", "lines", lines, "error", err)
	}
}

// watch gives signs of life, twice within the time that the watchdog waits, as long as alive reports nothing, until ctx ends.
// What hangs is logged, and then the watchdog ends the process.
func (s *supervisor) watch(ctx context.Context, alive func() error) {
	if s == nil || s.watchdog == 0 {
		return
	}
	ticks := time.NewTicker(max(s.watchdog/2, time.Millisecond))
	defer ticks.Stop()
	for {
		if err := alive(); err != nil {
			s.log.Error("no sign of life for the supervisor, which will end this process", "error", err)
			s.tell("STATUS=Hangs: " + strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			s.tell("WATCHDOG=1")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// alive reports what of the server hangs for good, so that only a new process would mend it. A store that is away is no such
// thing: loops fail then, and come back by themselves.
func (r readiness) alive() error {
	if stuck := time.Duration(r.delivery.Health().StuckMs()) * time.Millisecond; stuck > r.stuckAfter+engine.LoopHung {
		return fmt.Errorf("delivery has not moved for %s", stuck.Round(time.Second))
	}
	if stuck := time.Duration(r.push.Health().StuckMs()) * time.Millisecond; stuck > r.stuckAfter+engine.LoopHung {
		return fmt.Errorf("push has not moved for %s", stuck.Round(time.Second))
	}
	return r.Engine.Alive()
}

// close ends the connection.
func (s *supervisor) close() {
	if s != nil {
		_ = s.conn.Close()
	}
}
