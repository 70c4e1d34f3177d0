package batch_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"abide/kv"
	"abide/kv/batch"
)

// A scan sees what the closures before it in its batch have put and deleted, also if its own has written nothing.
func TestAScanSeesItsNeighbours(t *testing.T) {
	d := newFake()
	d.content["a"], d.content["c"] = "old", "old"
	g := newGated(t, d, batch.Options{Name: "fake"})
	g.enqueue(context.Background(), kv.Hints{}, "writing", func(tx kv.Tx) error {
		return errors.Join(tx.Put([]byte("b"), []byte("new")), tx.Delete([]byte("c")))
	}, discard)
	g.enqueue(context.Background(), kv.Hints{}, "scanning", func(tx kv.Tx) error {
		rows, err := tx.Scan(kv.Range{Start: []byte("a"), End: []byte("z")}, 10)
		var seen []string
		for _, row := range rows {
			seen = append(seen, string(row.Key)+"="+string(row.Value))
		}
		if want := []string{"a=old", "b=new"}; !slices.Equal(seen, want) {
			t.Errorf("the scan finds %v, want %v", seen, want)
		}
		return err
	}, discard)
	g.order()
}
