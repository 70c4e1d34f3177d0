package mysqlkv

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	"abide/internal/testenv"
	"abide/kv"
	"abide/kv/batch"
)

// Reads go by the key in a table of a few rows, and everything does in one that has just grown and that nobody has analysed.
func TestPlans(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Options{URL: testenv.MySQL(t, kind)})
			defer s.Close()
			var keys [][]byte
			for i := range 300 {
				keys = append(keys, fmt.Appendf(nil, "k%05d", 3*i))
			}
			reads, deletes := &script{limit: maxPacketBytes}, &script{limit: maxPacketBytes}
			reads.fetch(&batch.Fetch{Gets: keys[:3]})
			reads.fetch(&batch.Fetch{Gets: keys, Scans: []batch.Scan{
				{Range: kv.Range{Start: []byte("k"), End: []byte("l")}, Limit: 100},
				{Range: kv.Range{Start: []byte("a"), End: []byte("b")}, Limit: 1},
				{Range: kv.AllEntries(), Limit: kv.MaxScanRows},
			}})
			reads.add(beginSnapshot, nil)
			reads.add(lockCounter, nil)
			wantByKey(t, s, "a table of a few rows", reads)
			for page := range 6 {
				_, err := s.Update(context.Background(), kv.Hints{}, func(tx kv.Tx) error {
					var errs []error
					for i := range 5000 {
						errs = append(errs, tx.Put(fmt.Appendf(nil, "k%05d", page*5000+i), nil))
					}
					return errors.Join(errs...)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			var writes []batch.Write
			for _, key := range keys {
				writes = append(writes, batch.Write{Key: key, Delete: true})
			}
			deletes.write(writes)
			deletes.write(writes[:2])
			wantByKey(t, s, "a table that has grown", reads)
			wantByKey(t, s, "deletions", deletes)
		})
	}
}

// wantByKey demands that every statement of a script finds its rows by the primary key.
func wantByKey(t *testing.T, s *Store, name string, script *script) {
	t.Helper()
	s.engine.turn.Lock()
	defer s.engine.turn.Unlock()
	for _, p := range script.packets {
		for statement := range strings.SplitSeq(strings.TrimSuffix(string(p.text), ";"), ";") {
			plan := ""
			err := s.engine.session.run("EXPLAIN FORMAT=JSON "+statement, func(row []driver.Value) error {
				plan += string(column(row, 0))
				return nil
			})
			impossible := strings.Contains(plan, "mpossible") || strings.Contains(plan, "no matching row")
			if err != nil || !impossible && (!strings.Contains(plan, `"key": "PRIMARY"`) || strings.Contains(plan, `"access_type": "index"`) || strings.Contains(plan, `"access_type": "ALL"`)) {
				t.Errorf("%s: %.60s...: %v\n%s", name, statement, err, plan[:min(len(plan), 600)])
			}
		}
	}
}
