//go:build !unix

package main

// maxOpenFiles is not known here.
func maxOpenFiles() (n int, known bool) { return 0, false }
