package batch

import "abide/kv"

// counterSpace follows the journal's entries: drivers that keep their sequence number as a row put it there,
// so that it shares a page with the end of the journal.
const counterSpace = 'z'

// CounterKey is the key of the row in which a driver may keep the sequence number of the last commit. Of the
// keys that a store can hold, it comes after the journal's entries and before the floors.
func CounterKey() []byte { return []byte{kv.ReservedPrefix, counterSpace} }
