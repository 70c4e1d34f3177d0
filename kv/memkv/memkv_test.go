package memkv_test

import (
	"testing"
	"time"

	"abide/kv"
	"abide/kv/kvtest"
	"abide/kv/memkv"
)

func TestConformance(t *testing.T) {
	for name, opt := range map[string]memkv.Options{
		"synchronous":        {},
		"queued":             {Queued: true, Now: time.Now},
		"closures run twice": {RunTwice: true},
	} {
		t.Run(name, func(t *testing.T) {
			kvtest.Run(t, kvtest.Harness{Open: func(*testing.T) kv.Store { return memkv.Open(opt) }})
		})
	}
}
