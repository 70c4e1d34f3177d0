package batch

import (
	"context"

	"abide/kv"
)

// AsRemote makes a remote engine of a driver, so that what is written for round trips runs, and is tested, where
// there are none.
func AsRemote(d Driver) Remote { return driverAsRemote{d} }

type driverAsRemote struct{ driver Driver }

func (r driverAsRemote) Begin(f *Fetch) (uint64, error) {
	sequence, err := r.driver.Begin()
	if err != nil {
		return 0, err
	}
	if err := answer(r.driver, f); err != nil {
		r.driver.Rollback()
		return 0, err
	}
	return sequence, nil
}

func (r driverAsRemote) Fetch(f *Fetch) error { return answer(r.driver, f) }

func (r driverAsRemote) Commit(c Commit) error { return commitDriver(r.driver, c) }

func (r driverAsRemote) Rollback()    { r.driver.Rollback() }
func (r driverAsRemote) Close() error { return r.driver.Close() }

func (r driverAsRemote) Resolve(ctx context.Context, token kv.Token) (kv.Outcome, error) {
	return r.driver.Resolve(ctx, token)
}

func (r driverAsRemote) Snapshot(ctx context.Context) (RemoteSnapshot, error) {
	s, err := r.driver.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return snapshotAsRemote{s}, nil
}

type snapshotAsRemote struct{ snapshot DriverSnapshot }

func (s snapshotAsRemote) Fetch(f *Fetch) (uint64, error) {
	if err := answer(s.snapshot, f); err != nil {
		return 0, err
	}
	return s.snapshot.Sequence()
}

func (s snapshotAsRemote) Release() { s.snapshot.Release() }

// answer fills f in from r.
func answer(r DriverReader, f *Fetch) error {
	f.Values = make([][]byte, len(f.Gets))
	for i, key := range f.Gets {
		value, err := r.Get(key)
		if err != nil {
			return err
		}
		f.Values[i] = value
	}
	for i := range f.Scans {
		s := &f.Scans[i]
		err := r.Scan(s.Range, func(key, value []byte) bool {
			s.Entries = append(s.Entries, kv.Entry{Key: key, Value: value})
			return len(s.Entries) < s.Limit
		})
		if err != nil {
			return err
		}
	}
	return nil
}
