package main

import (
	"errors"
	"fmt"
	"time"

	"abide/protocol"
)

// watchFlags are on commands that show something that changes.
type watchFlags struct {
	Watch    bool     `help:"Show it again whenever it changes, until it cannot change any more or you interrupt."`
	Interval duration `default:"1s" placeholder:"DURATION" help:"How often --watch looks."`
}

// glance is one look at what is watched: the text, and whether it is the last one.
type glance func() (text string, final bool, err error)

// show prints what a look gives, once or for as long as it is watched. On a terminal each text replaces the one before;
// elsewhere it is printed below it if it differs. A server that cannot be reached for a while ends no watch.
func (s *session) show(w watchFlags, look glance) error {
	s.line = w.Watch && !s.in.terminal
	text, final, err := look()
	if err != nil {
		return err
	}
	if !w.Watch {
		return s.print(text)
	}
	shown := ""
	for {
		if err == nil && text != shown {
			if err := s.print(s.cleared(text)); err != nil {
				return err
			}
			shown = text
		}
		if final {
			return nil
		}
		timer := time.NewTimer(time.Duration(w.Interval) * time.Millisecond)
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			timer.Stop()
			return nil
		}
		text, final, err = look()
		if s.ctx.Err() != nil {
			return nil
		}
		if err != nil {
			fmt.Fprintf(s.in.stderr, "%v; still watching\n", err)
			final = false
		}
	}
}

// cleared is a text that replaces what a terminal shows.
func (s *session) cleared(text string) string {
	if !s.in.terminal || s.json {
		return text
	}
	return "\x1b[H\x1b[2J" + text
}

// watch sends a request again and again and shows its answers. last tells, of an answer's data, whether it is the last.
func (f *serverFlags) watch(in surroundings, w watchFlags, req protocol.Request, show view, last func(protocol.Data) bool) error {
	if w.Interval <= 0 {
		return usageError{errors.New("--interval must be longer than 0")}
	}
	s, stop, err := f.open(in)
	if err != nil {
		return err
	}
	defer stop()
	return s.show(w, func() (string, bool, error) {
		data, err := s.data(req)
		if err != nil {
			return "", false, err
		}
		text, err := s.text(data, show)
		return text, last(data), err
	})
}

// never is for what may always change.
func never(protocol.Data) bool { return false }
