package sqlitekv

import (
	"context"
	"fmt"

	"abide/kv"
)

// maxFindings is how many findings SQLite reports before it stops looking.
const maxFindings = 100

// CheckFile reads every page of the file and reports what is wrong with it, at most maxFindings times by SQLite: its
// own integrity check (pages, cells, indexes that lack a row or hold one too many), rows that stand in the wrong
// table, and a counter that does not decode. It takes seconds for each gigabyte and changes nothing. What the rows say
// is not its business. Errors: ErrCorrupt if SQLite gives up on the file, ErrUnavailable, ErrClosed, a cancelled ctx.
func (s *Store) CheckFile(ctx context.Context, report func(finding string)) error {
	c, err := s.readers.take(ctx)
	if err != nil {
		return err
	}
	old := c.db.SetInterrupt(ctx)
	err = c.checkFile(report)
	c.db.SetInterrupt(old)
	s.readers.give(c, err != nil)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (c *conn) checkFile(report func(finding string)) error {
	check, _, err := c.db.Prepare(fmt.Sprintf(`PRAGMA integrity_check(%d)`, maxFindings))
	if err != nil {
		return failure("check", err)
	}
	defer check.Close()
	for check.Step() {
		if text := check.ColumnText(0); text != "ok" {
			report(text)
		}
	}
	if err := check.Err(); err != nil {
		return failure("check", err)
	}
	for finding, sql := range map[string]string{
		"%d rows of the store's own key space stand in the table of keys":  `SELECT count(*) FROM kv WHERE k >= x'FF'`,
		"%d rows of the table of the journal are not of the store's space": `SELECT count(*) FROM journal WHERE k < x'FF'`,
	} {
		n, err := c.int(sql)
		if err != nil {
			return err
		}
		if n != 0 {
			report(fmt.Sprintf(finding, n))
		}
	}
	return c.checkOwnRows(report)
}

// checkOwnRows reports rows of the journal's table that are no entry, no floor and not the counter.
func (c *conn) checkOwnRows(report func(finding string)) error {
	if _, err := c.sequence(); err != nil {
		report(err.Error())
	}
	entries, floors := kv.AllEntries(), kv.AllFloors()
	strange, _, err := c.db.Prepare(`SELECT count(*) FROM journal WHERE k >= x'FF' AND k <> ?1
		AND NOT (k >= ?2 AND k < ?3) AND NOT (k >= ?4 AND k < ?5)`)
	if err != nil {
		return failure("check", err)
	}
	defer strange.Close()
	for i, key := range [][]byte{counterKey, entries.Start, entries.End, floors.Start, floors.End} {
		if err := strange.BindBlob(i+1, key); err != nil {
			return failure("check", err)
		}
	}
	if !strange.Step() {
		return failure("check", fmt.Errorf("no count of rows: %w", strange.Err()))
	}
	if n := strange.ColumnInt64(0); n != 0 {
		report(fmt.Sprintf("%d rows of the table of the journal are no entry, no floor and not the counter", n))
	}
	return nil
}
