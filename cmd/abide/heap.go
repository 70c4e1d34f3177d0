package main

import "runtime"

// heapReserveBytes is what keeps collections of garbage apart. Go collects when the heap has doubled, and that of a server
// with little to remember is a few megabytes: it doubles several times a second, and the collections take a third of the
// server's time. With the reserve the heap grows by twice this more before the next one, which is what a server takes in
// memory for it.
const heapReserveBytes = 16 << 20

// reserveHeap makes the collector count on a heap that is larger by heapReserveBytes, until release is called. They are never
// touched, so they take address space and no memory. GOGC still says how far the heap grows.
func reserveHeap() (release func()) {
	reserve := make([]byte, heapReserveBytes)
	return func() { runtime.KeepAlive(reserve) }
}
