package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"abide/internal/keyspace"
	"abide/kv"
)

const (
	// maxMembersRead is how many rows of servers are looked at.
	maxMembersRead = 1000
	// maxLeaseWait bounds how long somebody waits for a server that does not renew its lease, whatever the row says.
	maxLeaseWait = 2 * time.Minute
	// memberLookInterval is how often it is looked whether one does.
	memberLookInterval = 250 * time.Millisecond
)

// refuseLive is an error if a server lives on the store: one whose row there changes within its lease. A file needs no
// look, since its lock tells. waiting is told when a row stands whose server may be dead.
func refuseLive(ctx context.Context, s kv.Store, a storeAddress, waiting func(text string)) error {
	before, err := members(ctx, s)
	if err != nil || len(before) == 0 {
		return err
	}
	var wait time.Duration
	for _, m := range before {
		wait = max(wait, min(time.Duration(m.LeaseMs)*time.Millisecond, maxLeaseWait))
	}
	waiting(fmt.Sprintf("%s has rows of servers (%s); waiting %s to see whether one of them lives", a, describeMembers(before), wait))
	for end := time.Now().Add(wait); time.Now().Before(end); {
		select {
		case <-time.After(memberLookInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
		after, err := members(ctx, s)
		if err != nil {
			return err
		}
		live := map[string]keyspace.Member{}
		for id, m := range after {
			if old, there := before[id]; !there || old.Life != m.Life || old.Renewals != m.Renewals {
				live[id] = m
			}
		}
		if len(live) > 0 {
			return fmt.Errorf("a server runs on %s: stop %s first", a, describeMembers(live))
		}
		if len(after) == 0 {
			return nil
		}
	}
	return nil
}

// members reads the rows of the servers of a store by their ids.
func members(ctx context.Context, s kv.Store) (map[string]keyspace.Member, error) {
	found := map[string]keyspace.Member{}
	err := s.View(ctx, func(v kv.Snapshot) error {
		clear(found)
		rows, err := v.Scan(keyspace.Members(), maxMembersRead)
		if err != nil {
			return err
		}
		for _, row := range rows {
			m, err := keyspace.ParseMember(row.Value)
			if err != nil {
				continue // it is no server's that can live; abide check reports it
			}
			key, err := keyspace.ParseRow(row.Key, row.Value)
			if err != nil {
				continue
			}
			found[key.ID] = m
		}
		return nil
	})
	return found, err
}

// describeMembers names servers for a person.
func describeMembers(all map[string]keyspace.Member) string {
	var names []string
	for _, id := range slices.Sorted(maps.Keys(all)) {
		names = append(names, fmt.Sprintf("%s (process %d on host %q)", id, all[id].ProcessID, all[id].Host))
	}
	return strings.Join(names, ", ")
}
