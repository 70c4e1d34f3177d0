package pgkv

import "time"

// LookFor makes a store look for lost commits for so long.
func (s *Store) LookFor(d time.Duration) { s.writer.resolveWithin.Store(int64(d)) }
