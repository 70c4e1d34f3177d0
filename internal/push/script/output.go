package script

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

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
