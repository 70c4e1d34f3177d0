//go:build !linux && !darwin && !freebsd

package main

// diskFree is not known on this platform.
func diskFree(storeAddress) int64 { return -1 }
