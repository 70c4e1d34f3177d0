package script

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
	"unicode/utf8"
)

// reading is a process that was started, and what reads its output. That is not left to exec.Cmd, which drops what it has not read a while
// after the end of the process, though the machine may only have been busy.
type reading struct {
	pipes []*os.File
	done  chan struct{} // of each pipe, once nobody holds its other end
	wait  func() error  // waits for the process, as exec.Cmd's Wait
	ended int
}

// start starts cmd, with its output read into e. An error leaves nothing behind.
func (x *execution) start(cmd *exec.Cmd, e *ending) (*reading, error) {
	r := &reading{done: make(chan struct{}, 2)}
	var theirs []*os.File
	open := func(into *output) (io.Writer, error) {
		ours, their, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		r.pipes, theirs = append(r.pipes, ours), append(theirs, their)
		go func() {
			_, _ = io.Copy(into, ours)
			r.done <- struct{}{}
		}()
		return their, nil
	}
	var err, err2 error
	cmd.Stdout, err = open(&e.stdout)
	cmd.Stderr, err2 = open(&e.stderr)
	if err = errors.Join(err, err2); err == nil {
		r.wait, err = x.opt.Children.Start(cmd)
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		r.end()
		return nil, err
	}
	return r, nil
}

// await waits until all output is read, and no longer than limit.
func (r *reading) await(limit time.Duration) {
	late := time.NewTimer(limit)
	defer late.Stop()
	for r.ended < len(r.pipes) {
		select {
		case <-r.done:
			r.ended++
		case <-late.C:
			return
		}
	}
}

// end reads no more. Afterwards nobody writes to the outputs.
func (r *reading) end() {
	for _, f := range r.pipes {
		_ = f.Close()
	}
	for ; r.ended < len(r.pipes); r.ended++ {
		<-r.done
	}
}

// output keeps the beginning and the end of what is written to it, half of its limit each. What matters in a long output
// stands there: how it began, and how it ended.
type output struct {
	limit int
	head  []byte
	tail  []byte // a ring, once it is full
	next  int    // where the ring is written next
	total int64
}

// Write takes all of p.
func (o *output) Write(p []byte) (int, error) {
	n := len(p)
	o.total += int64(n)
	room := min(o.limit-o.limit/2-len(o.head), n)
	o.head, p = append(o.head, p[:room]...), p[room:]
	size := o.limit / 2
	if len(p) > size { // only its end can stay
		p = p[len(p)-size:]
	}
	room = min(size-len(o.tail), len(p))
	o.tail, p = append(o.tail, p[:room]...), p[room:]
	for len(p) > 0 {
		copied := copy(o.tail[o.next:], p)
		p, o.next = p[copied:], (o.next+copied)%size
	}
	return n, nil
}

// leftOut is how many bytes are not kept.
func (o *output) leftOut() int64 { return o.total - int64(len(o.head)+len(o.tail)) }

// text is what was kept, with a line in place of what was not. Bytes that are not UTF-8 become U+FFFD.
func (o *output) text() string {
	end := append(append([]byte(nil), o.tail[o.next:]...), o.tail[:o.next]...)
	n := o.leftOut()
	if n == 0 {
		return strings.ToValidUTF8(string(o.head)+string(end), "\uFFFD")
	}
	head := o.head
	for i := 1; i < utf8.UTFMax && i <= len(head); i++ { // no half character at the cut
		if last := head[len(head)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				head = head[:len(head)-i]
			}
			break
		}
	}
	for i := 1; i < utf8.UTFMax && len(end) > 0 && !utf8.RuneStart(end[0]); i++ {
		end = end[1:]
	}
	return strings.ToValidUTF8(fmt.Sprintf("%s\n[... %d bytes left out ...]\n%s", head, n, end), "\uFFFD")
}
