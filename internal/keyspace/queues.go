package keyspace

import (
	"abide/kv"
	"abide/kv/tuple"
)

// AllExecutes is the index range of the queued executes of all workspaces and destinations.
func AllExecutes() kv.Range { return Prefix(tuple.AppendInt(nil, nsExecute)) }
