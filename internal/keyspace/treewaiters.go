package keyspace

import "abide/kv"

// TreeWaiters is the range of the waiters of all promises of id's tree.
func (k Keys) TreeWaiters(id string) kv.Range { return Prefix(k.tree(Tree(id), treeWaiter)) }
