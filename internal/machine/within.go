package machine

import "strings"

// within is the prefix of the ids that a search may show; empty: all. In the order of searches, by (tree, id), as in that of
// bytes, the ids that begin with a prefix lie side by side: a search within one begins before the first of them, ends at
// the first that is none of them, and no cursor of it names another.
type within string

// has reports whether id is one of them.
func (w within) has(id string) bool { return strings.HasPrefix(id, string(w)) }

// start is what a walk by (tree, id) continues after: after itself if a cursor gave it, else a string between all
// ids of the prefix and all others that sort before them. It is no id itself.
func (w within) start(after string) string {
	if after != "" || w == "" {
		return after
	}
	switch at := strings.IndexAny(string(w), ".:"); {
	case at == len(w)-1 && w[at] == '.':
		return string(w[:at]) // the tree's root; what descends from it follows
	case at == len(w)-1:
		return string(w[:at]) + ".\xff"
	case at >= 0:
		return w.before(1)
	}
	if last := w[len(w)-1]; last == '.'+1 || last == ':'+1 {
		return w.before(2) // a separator would end the tree; no tree's name has one
	}
	return w.before(1)
}

// startBytes is start for a walk by the bytes of ids, which is that of schedules.
func (w within) startBytes(after string) string {
	if after != "" || w == "" {
		return after
	}
	return w.before(1)
}

// before is above everything that sorts before the prefix and shares all but its last byte: that byte lowered, and one
// that UTF-8 does not have. No id holds a NUL, so nothing begins with a prefix that ends in one.
func (w within) before(down byte) string {
	end := len(w) - 1
	if w[end] < down {
		return string(w)
	}
	return string(w[:end]) + string([]byte{w[end] - down, 0xff})
}

// filter is the state that a search filters by, together with the prefix, for the digest in its cursors.
func (w within) filter(state string) string {
	if w == "" {
		return state
	}
	return state + "\x00" + string(w)
}

// cursor is the cursor of a search that goes on after next. A walk that has left the prefix has nothing more to find.
func (w within) cursor(next string, filter [8]byte) string {
	if next == "" || !w.has(next) {
		return ""
	}
	return cursorFor(next, filter)
}
