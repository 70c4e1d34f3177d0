package cli

import (
	"strings"
	"unicode/utf8"
)

// cell is one field of a table.
type cell struct {
	text   string
	colour colour
}

// maxCell is the widest that a field of a table may be, in characters; what is longer loses its middle. A record shows
// it whole.
const maxCell = 60

// table lays rows out in columns, two blanks between them, the last one ragged. Texts are made printable.
func (s Screen) table(header []string, rows [][]cell) string {
	all := make([][]cell, 0, len(rows)+1)
	head := make([]cell, len(header))
	for i, name := range header {
		head[i] = cell{name, bold}
	}
	all = append(all, head)
	all = append(all, rows...)
	widths := make([]int, len(header))
	for _, row := range all {
		for i := range row {
			row[i].text = middle(Printable(row[i].text))
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
	}
	var b strings.Builder
	for _, row := range all {
		gap := 0
		for i, c := range row {
			if c.text != "" {
				b.WriteString(strings.Repeat(" ", gap))
				gap = 0
				b.WriteString(s.paint(c.colour, c.text))
			}
			gap += widths[i] - utf8.RuneCountInString(c.text) + 2
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// middle takes out the middle of a long text: ids differ at their ends.
func middle(text string) string {
	if n := utf8.RuneCountInString(text); n > maxCell {
		r := []rune(text)
		return string(r[:maxCell/2]) + "…" + string(r[n-maxCell/2+1:])
	}
	return text
}

// fields lays a record out, one field a line. A field without a text is left out; one of several lines is indented.
type fields struct {
	screen Screen
	lines  []line
}

type line struct {
	name string
	text string
}

func (f *fields) add(name, text string) {
	if text != "" {
		f.lines = append(f.lines, line{name, text})
	}
}

func (f *fields) String() string {
	width := 0
	for _, l := range f.lines {
		width = max(width, len(l.name))
	}
	var b strings.Builder
	for _, l := range f.lines {
		indent := strings.Repeat(" ", width+2)
		b.WriteString(f.screen.paint(bold, l.name) + indent[len(l.name):])
		b.WriteString(strings.ReplaceAll(l.text, "\n", "\n"+indent))
		b.WriteByte('\n')
	}
	return b.String()
}
