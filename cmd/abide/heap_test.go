package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// With the reserve the heap may grow by the reserve, at GOGC's default by twice that, before it is collected.
func TestReserveHeap(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	goal := func() uint64 {
		runtime.GC()
		sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	release := reserveHeap()
	with := goal()
	release()
	if with < 2*heapReserveBytes {
		t.Errorf("the heap is collected at %d bytes, before it has grown by the reserve of %d", with, heapReserveBytes)
	}
	if without := goal(); without > with-heapReserveBytes {
		t.Errorf("the heap is collected at %d bytes, with the reserve at %d", without, with)
	}
}
