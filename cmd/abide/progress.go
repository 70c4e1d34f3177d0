package main

import (
	"fmt"
	"io"
	"time"
)

// progressLine shows on a terminal how far a step has come, how fast it is, and how long it will take.
type progressLine struct {
	out   io.Writer
	shown bool // a person looks at it
	last  time.Time
}

// of is what a step of so many rows reports to; all is 0 if their number is not known.
func (p *progressLine) of(step string, all int64) func(rows int64) {
	began, first := time.Now(), int64(-1)
	return func(rows int64) {
		now := time.Now()
		if first < 0 {
			first = rows // what an earlier run has done says nothing about the speed
		}
		if !p.shown || now.Sub(p.last) < progressInterval {
			return
		}
		p.last = now
		fmt.Fprintf(p.out, "\r\x1b[K%s", progressText(step, rows, all, rows-first, now.Sub(began)))
	}
}

// progressText says how far a step is: done in this run is what took the time.
func progressText(step string, rows, all, done int64, took time.Duration) string {
	text := fmt.Sprintf("%s: %d rows", step, rows)
	if all > 0 {
		text = fmt.Sprintf("%s: %d of %d rows (%d %%)", step, rows, all, min(100, 100*rows/all))
	}
	if done <= 0 || took < time.Second {
		return text
	}
	rate := float64(done) / took.Seconds()
	text += fmt.Sprintf(", %.0f rows/s", rate)
	if left := float64(all - rows); left > 0 {
		text += fmt.Sprintf(", %s left", time.Duration(left/rate*float64(time.Second)).Round(time.Second))
	}
	return text
}

// clear takes the line off the terminal.
func (p *progressLine) clear() {
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
