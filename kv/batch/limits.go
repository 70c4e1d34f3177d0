package batch

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"abide/kv"
)

// fault builds the store's error for an operation on a key (nil: on none).
func (o *Options) fault(is error, op string, key []byte, format string, args ...any) error {
	return &kv.Error{Is: is, Store: o.Name, Op: op, KeyKind: o.kind(key), Detail: fmt.Sprintf(format, args...)}
}

// entryKey and floorKey stand for keys of their kind in errors.
var entryKey, floorKey = kv.AllEntries().Start, kv.AllFloors().Start

// kind names the kind of a key; "" for nil, which stands for none.
func (o *Options) kind(key []byte) string {
	switch {
	case key == nil:
		return ""
	case bytes.HasPrefix(key, entryKey):
		return kv.KindEntry
	case bytes.HasPrefix(key, floorKey):
		return kv.KindFloor
	case o.Keys.Kind == nil:
		return ""
	}
	return o.Keys.Kind(key)
}

// driverFault gives an error of the driver its operation and kind of key. An error without an identity is
// one that the driver did not expect: the engine is unavailable.
func (o *Options) driverFault(err error, op string, key []byte) error {
	var known *kv.Error
	if err == errMissed {
		return err
	}
	if !errors.As(err, &known) {
		return &kv.Error{Is: kv.ErrUnavailable, Store: o.Name, Op: op, KeyKind: o.kind(key), Err: err}
	}
	if known.KeyKind != "" || key == nil {
		return err
	}
	named := *known
	named.KeyKind = o.kind(key)
	return &named
}

// budget is what one closure or snapshot may still use, and whether it is over.
type budget struct {
	opt      *Options
	ops      int
	bytes    int
	deadline time.Time // zero: no limit
	done     bool
}

func newBudget(opt *Options) budget {
	b := budget{opt: opt}
	if opt.Now != nil {
		b.deadline = opt.Now().Add(kv.MaxTxSeconds * time.Second)
	}
	return b
}

// spend takes n operations from the budget.
func (b *budget) spend(op string, n int) error {
	if b.done {
		return b.opt.fault(kv.ErrTxDone, op, nil, "used after its closure had returned")
	}
	if b.ops += n; b.ops > kv.MaxTxOps {
		return b.opt.fault(kv.ErrTooLarge, op, nil, "more than %d operations", kv.MaxTxOps)
	}
	if b.opt.Now != nil && b.opt.Now().After(b.deadline) {
		return b.opt.fault(kv.ErrTooLarge, op, nil, "open for more than %d s", kv.MaxTxSeconds)
	}
	return nil
}

// rowsPerLook is after how many rows of a scan the clock is looked at: it costs a tenth of a row.
const rowsPerLook = 64

// spendRow takes one row of a scan from the budget.
func (b *budget) spendRow(op string) error {
	if b.ops%rowsPerLook == 0 || b.ops >= kv.MaxTxOps || b.done {
		return b.spend(op, 1)
	}
	b.ops++
	return nil
}

// write takes n bytes from the budget.
func (b *budget) write(op string, key []byte, n int) error {
	if b.bytes += n; b.bytes > kv.MaxTxBytes {
		return b.opt.fault(kv.ErrTooLarge, op, key, "more than %d bytes written", kv.MaxTxBytes)
	}
	return nil
}

// checkKey checks a key of the caller's. Of the store's own keys, those that isOwn accepts are let through.
func (b *budget) checkKey(op string, key []byte, isOwn func([]byte) bool) error {
	switch {
	case len(key) == 0:
		return b.opt.fault(kv.ErrLimit, op, nil, "a key of no bytes; it needs at least one")
	case len(key) > kv.MaxKeyBytes:
		return b.opt.fault(kv.ErrLimit, op, key, "a key of %d bytes; at most %d", len(key), kv.MaxKeyBytes)
	case key[0] >= kv.ReservedPrefix && !isOwn(key):
		return b.opt.fault(kv.ErrLimit, op, key, "the key is in the store's own key space, which begins at %02X", kv.ReservedPrefix)
	}
	return nil
}

func isFloor(key []byte) bool {
	_, err := kv.ParseFloorKey(key)
	return err == nil
}

func isEntry(key []byte) bool {
	_, _, err := kv.ParseJournalKey(key)
	return err == nil
}

func (b *budget) checkValue(op string, key, value []byte) error {
	if len(value) > kv.MaxValueBytes {
		return b.opt.fault(kv.ErrLimit, op, key, "a value of %d bytes; at most %d", len(value), kv.MaxValueBytes)
	}
	return nil
}

func (b *budget) checkPartition(op string, partition []byte) error {
	if len(partition) > kv.MaxPartitionBytes {
		return b.opt.fault(kv.ErrLimit, op, entryKey, "a journal partition of %d bytes; at most %d", len(partition), kv.MaxPartitionBytes)
	}
	return nil
}

func (b *budget) checkRows(op string, limit int) error {
	if limit < 1 || limit > kv.MaxScanRows {
		return b.opt.fault(kv.ErrLimit, op, nil, "a limit of %d rows; it must be 1 to %d", limit, kv.MaxScanRows)
	}
	return nil
}

func (b *budget) checkRange(op string, r kv.Range) error {
	switch {
	case len(r.End) == 0:
		return b.opt.fault(kv.ErrLimit, op, r.Start, "a range without an end")
	case len(r.Start) > kv.MaxKeyBytes+1 || len(r.End) > kv.MaxKeyBytes+1:
		return b.opt.fault(kv.ErrLimit, op, r.Start, "a range from %d to %d bytes; each at most %d",
			len(r.Start), len(r.End), kv.MaxKeyBytes+1)
	case r.End[0] >= kv.ReservedPrefix && len(r.End) > 1 && !isWithin(r, kv.AllEntries()) && !isWithin(r, kv.AllFloors()):
		return b.opt.fault(kv.ErrLimit, op, r.Start, "the range reaches into the store's own key space, which begins at %02X",
			kv.ReservedPrefix)
	}
	return nil
}

// isWithin reports whether r lies within outer.
func isWithin(r, outer kv.Range) bool {
	return bytes.Compare(r.Start, outer.Start) >= 0 && bytes.Compare(r.End, outer.End) <= 0
}
