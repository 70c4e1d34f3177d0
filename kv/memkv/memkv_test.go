package memkv_test

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"abide/kv"
	"abide/kv/kvtest"
	"abide/kv/memkv"
)

// operations is how many operations the random histories have: ABIDE_LONG=1 makes them long.
func operations() int {
	if os.Getenv("ABIDE_LONG") == "1" {
		return 300_000
	}
	return 0
}

func TestConformance(t *testing.T) {
	for name, opt := range map[string]memkv.Options{
		"synchronous":                {},
		"queued":                     {Queued: true},
		"queued, closures run twice": {Queued: true, RunTwice: true},
		"closures run twice":         {RunTwice: true},
		"remote":                     {Queued: true, Remote: true},
		"remote, synchronous":        {Remote: true},
		"remote, run twice":          {Queued: true, Remote: true, RunTwice: true},
	} {
		t.Run(name, func(t *testing.T) {
			var last *memkv.Store
			var failing, unknown atomic.Bool
			opt.BeforeCommit = func() error {
				switch {
				case failing.Load():
					return &kv.Error{Is: kv.ErrUnavailable, Store: "memory", Op: "commit", Detail: "for the test"}
				case unknown.Load():
					return &kv.Error{Is: kv.ErrCommitUnknown, Store: "memory", Op: "commit", Token: "for the test"}
				}
				return nil
			}
			kvtest.Run(t, kvtest.Harness{
				Open: func(_ testing.TB, c kvtest.Config) kv.Store {
					opt := opt
					opt.Keys, opt.Now = c.Keys, c.Now
					if opt.Now == nil && opt.Queued {
						opt.Now = time.Now
					}
					last = memkv.Open(opt)
					return last
				},
				Second:         func(testing.TB, kvtest.Config) kv.Store { return last.Handle() },
				FailCommits:    failing.Store,
				UnknownCommits: func(on, _ bool) { unknown.Store(on) },
				Imports:        true,
				Operations:     operations(),
			})
		})
	}
}
