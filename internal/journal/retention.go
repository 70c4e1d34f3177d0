package journal

import "abide/kv"

// Limits of Retention, and its defaults.
const (
	// DefaultAgeMs is how long entries are kept by default: a week.
	DefaultAgeMs = 7 * 24 * 60 * 60 * 1000
	// DefaultEntries is how many entries of a workspace are kept by default. An entry takes about 100 bytes of a
	// SQLite file.
	DefaultEntries = 1_000_000
	// MaxEntries is the largest number of entries that can be asked to be kept.
	MaxEntries = 1_000_000_000
)

// Retention says which entries of a workspace are kept: the newest Entries, as far as they are not older than AgeMs.
type Retention struct {
	AgeMs   int64 // >= 1
	Entries int64 // 1..MaxEntries
}

// Bounds on what a Window remembers: a mark stands for up to a 256th of the entries that are kept, at most 65,536 of
// them, and for up to a 32nd of the age. So a window has some hundred marks, for the largest retention about 15,000.
const (
	marksPerEntries = 256
	maxMarkEntries  = 65_536
	marksPerAge     = 32
)

// Window is the retained part of one partition, as far as retention has followed it: a list of marks, each a stretch
// of entries that will go together. Not safe for concurrent use.
type Window struct {
	keep    Retention
	marks   []mark
	entries int64 // of all marks together
}

// mark is a stretch of entries that follow one another.
type mark struct {
	last        kv.EntryPosition
	first, till int64 // earliest and latest instant among them
	entries     int64
}

// NewWindow is an empty window.
func NewWindow(keep Retention) *Window { return &Window{keep: keep} }

// Entries is how many entries the window holds.
func (w *Window) Entries() int64 { return w.entries }

// Add takes the next entry: its position, which is after all others, and its instant.
func (w *Window) Add(at kv.EntryPosition, instant int64) {
	full := max(1, min(w.keep.Entries/marksPerEntries, maxMarkEntries))
	n := len(w.marks)
	if n == 0 || w.marks[n-1].entries >= full || instant-w.marks[n-1].first > w.keep.AgeMs/marksPerAge {
		w.marks = append(w.marks, mark{first: instant, till: instant})
		n++
	}
	m := &w.marks[n-1]
	m.last, m.entries, m.till = at, m.entries+1, max(m.till, instant)
	m.first = min(m.first, instant)
	w.entries++
}

// Target is the last entry that need not be kept at an instant; ok is false if all are to be kept. What goes by
// number goes a mark at a time, so that at most Entries are left, and a little less.
func (w *Window) Target(now int64) (at kv.EntryPosition, ok bool) {
	left := w.entries
	for _, m := range w.marks {
		if left <= w.keep.Entries && m.till > now-w.keep.AgeMs {
			break
		}
		at, ok = m.last, true
		left -= m.entries
	}
	return at, ok
}

// Drop forgets the marks that a floor has passed.
func (w *Window) Drop(floor kv.EntryPosition) {
	n := 0
	for n < len(w.marks) && w.marks[n].last.Compare(floor) <= 0 {
		w.entries -= w.marks[n].entries
		n++
	}
	w.marks = append(w.marks[:0], w.marks[n:]...)
}
