package mysqlkv

import (
	"bytes"
	"database/sql/driver"
	"slices"
	"strconv"

	"abide/kv"
	"abide/kv/batch"
)

// Statements are sent as text with the values in them, several in one packet: that is one round trip for what a
// batch reads, and one for all that it writes and its commit. Prepared statements cannot be sent together.

// maxListed is how many keys or rows one statement names at most. Beyond some thousands the servers' range
// optimizer gives up and reads the whole table.
const maxListed = 500

// byKey is the table where it is read: by its key, whatever the statistics say. A table that has just grown looks small,
// and the servers read small tables from end to end.
const byKey = table + " FORCE INDEX (PRIMARY)"

// appendLiteral appends a value as a string literal. The session's character set is binary, and its sql_mode
// keeps the backslash an escape (see session.prepare).
func appendLiteral(dst, value []byte) []byte {
	dst = append(dst, '\'')
	from := 0
	for i, c := range value {
		if c != 0 && c != '\'' && c != '\\' {
			continue
		}
		dst = append(append(dst, value[from:i]...), '\\')
		from = i
		if c == 0 {
			dst = append(dst, '0')
			from++
		}
	}
	return append(append(dst, value[from:]...), '\'')
}

// sink takes the rows of one result. It must not keep what it is given.
type sink func(row []driver.Value) error

// script is statements on their way to the server, in as many packets as its limit asks for.
type script struct {
	packets []packet
	limit   int // bytes of a packet
}

type packet struct {
	text  []byte
	sinks []sink // of the statements that have a result, in order
}

// begin starts a statement of about so many bytes and returns its packet. Every statement of s ends with ';'.
func (s *script) begin(size int) *packet {
	if n := len(s.packets); n > 0 && len(s.packets[n-1].text)+size <= s.limit {
		return &s.packets[n-1]
	}
	s.packets = append(s.packets, packet{})
	return &s.packets[len(s.packets)-1]
}

// add adds a short statement; take gets its result, nil if it has none.
func (s *script) add(statement string, take sink) {
	p := s.begin(len(statement) + 1)
	p.text = append(append(p.text, statement...), ';')
	if take != nil {
		p.sinks = append(p.sinks, take)
	}
}

// literalBytes is the most that a value takes as a literal.
func literalBytes(value []byte) int { return 2*len(value) + 2 }

// list adds statements of the form head, items joined by commas, tail: as many as limits ask for. It reports
// for each where its items end.
func (s *script) list(head string, n int, size func(i int) int, item func(dst []byte, i int) []byte, tail string, ended func(p *packet, from, to int)) {
	for from := 0; from < n; {
		total, to := len(head)+len(tail)+1, from
		for to < n && to-from < maxListed && (to == from || total+size(to)+1 <= s.limit) {
			total += size(to) + 1
			to++
		}
		p := s.begin(total)
		p.text = append(slices.Grow(p.text, total), head...)
		for i := from; i < to; i++ {
			if i > from {
				p.text = append(p.text, ',')
			}
			p.text = item(p.text, i)
		}
		p.text = append(append(p.text, tail...), ';')
		if ended != nil {
			ended(p, from, to)
		}
		from = to
	}
}

// fetch adds the reads of f, whose answers are put into f.
func (s *script) fetch(f *batch.Fetch) {
	f.Values = make([][]byte, len(f.Gets))
	s.list("SELECT k,v FROM "+byKey+" WHERE k IN (", len(f.Gets),
		func(i int) int { return literalBytes(f.Gets[i]) },
		func(dst []byte, i int) []byte { return appendLiteral(dst, f.Gets[i]) }, ")",
		func(p *packet, from, to int) {
			keys, values := f.Gets[from:to], f.Values[from:to]
			p.sinks = append(p.sinks, func(row []driver.Value) error {
				k, v := column(row, 0), column(row, 1)
				if i, ok := slices.BinarySearchFunc(keys, k, bytes.Compare); ok {
					values[i] = append([]byte{}, v...)
				}
				return nil
			})
		})
	for i := range f.Scans {
		scan := &f.Scans[i]
		scan.Entries = nil
		text := append([]byte("SELECT k,v FROM "+byKey+" WHERE k>="), appendLiteral(nil, scan.Start)...)
		text = appendLiteral(append(text, " AND k<"...), scan.End)
		text = strconv.AppendInt(append(text, " ORDER BY k LIMIT "...), int64(scan.Limit), 10)
		s.add(string(text), func(row []driver.Value) error {
			k, v := column(row, 0), column(row, 1)
			both := append(append(make([]byte, 0, len(k)+len(v)), k...), v...)
			scan.Entries = append(scan.Entries, kv.Entry{Key: both[:len(k):len(k)], Value: both[len(k):]})
			return nil
		})
	}
}

// column is a value of a row; it belongs to the driver.
func column(row []driver.Value, i int) []byte {
	if i < len(row) {
		switch v := row[i].(type) {
		case []byte:
			return v
		case string:
			return []byte(v)
		case int64:
			return strconv.AppendInt(nil, v, 10)
		case uint64:
			return strconv.AppendUint(nil, v, 10)
		}
	}
	return nil
}

// write adds the writes of a batch. REPLACE changes a row in place where there is one: the table has no other index,
// no foreign key and no trigger.
func (s *script) write(writes []batch.Write) {
	puts, deletes := make([]batch.Write, 0, len(writes)), []batch.Write(nil)
	for _, w := range writes {
		if w.Delete {
			deletes = append(deletes, w)
		} else {
			puts = append(puts, w)
		}
	}
	s.list("REPLACE INTO "+table+" (k,v) VALUES ", len(puts),
		func(i int) int { return literalBytes(puts[i].Key) + literalBytes(puts[i].Value) + 3 },
		func(dst []byte, i int) []byte {
			dst = append(appendLiteral(append(dst, '('), puts[i].Key), ',')
			return append(appendLiteral(dst, puts[i].Value), ')')
		}, "", nil)
	s.list("DELETE FROM "+table+" WHERE k IN (", len(deletes),
		func(i int) int { return literalBytes(deletes[i].Key) },
		func(dst []byte, i int) []byte { return appendLiteral(dst, deletes[i].Key) }, ")", nil)
}
