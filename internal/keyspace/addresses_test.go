package keyspace

import (
	"bytes"
	"slices"
	"testing"

	"abide/internal/machine"
	"abide/kv"
	"abide/protocol"
)

// A walk that passes each queue as a whole meets all of them that are no poll queue, in the order of keys.
func TestWaiting(t *testing.T) {
	var entries []kv.Entry
	for _, workspace := range []string{"a", "b", "default"} {
		k := For(workspace, Layout{Shards: 3})
		for _, address := range []string{"http://h/", "http://h/1", "poll://any@g", "poll://uni@g", "poll://uni@g/p", "gcps://p/t", "poll://any@a/poll"} {
			for _, id := range []string{"t1", "t2", "t2.1", "u"} {
				o := machine.Object{ID: id, State: protocol.Pending, Tags: protocol.Tags{}.With(protocol.TagTarget, address), Task: &machine.Task{State: protocol.TaskPending, Queued: true}}
				entries = append(entries, k.Derive(nil, &o)...)
				entries = append(entries, k.DeriveUnblock(id, address))
			}
		}
	}
	slices.SortFunc(entries, func(a, b kv.Entry) int { return bytes.Compare(a.Key, b.Key) })
	for _, all := range []kv.Range{AllExecutes(), AllUnblocks()} {
		var met []string
		rest, reads := all, 0
		for _, e := range entries {
			if bytes.Compare(e.Key, rest.Start) < 0 || bytes.Compare(e.Key, rest.End) >= 0 {
				continue
			}
			reads++
			w, err := ParseWaiting(e.Key)
			if err != nil {
				t.Fatal(err)
			}
			if rest = w.Rest(rest); !w.To.Poll {
				met = append(met, w.Workspace+" "+w.To.Other)
			}
		}
		var want []string
		for _, workspace := range []string{"a", "b", "default"} {
			for _, address := range []string{"gcps://p/t", "http://h/", "http://h/1", "poll://uni@g"} {
				want = append(want, workspace+" "+address)
			}
		}
		if !slices.Equal(met, want) || reads != len(want)+3 {
			t.Errorf("met %q in %d reads, want %q", met, reads, want)
		}
	}
	k := For("a", Layout{Shards: 1})
	for _, key := range [][]byte{nil, {0}, k.Object("t"), k.OpenTasks().Start, k.executes(Destination{Poll: true, Group: "g", PID: "p"}, 0)[:9], Timers(0, 0, 0).Start} {
		if w, err := ParseWaiting(key); err == nil {
			t.Errorf("%x is taken for an entry of %+v", key, w)
		}
	}
}
