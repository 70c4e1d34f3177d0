package api

import "testing"

// A page that was served by evil.example, whose name then resolves to this machine, is of the same origin to
// the browser. Its posts must not reach a developer's server.
func TestKnownHost(t *testing.T) {
	h := &Handler{o: Options{Hosts: []string{"localhost", "dev.box"}}}
	for host, want := range map[string]bool{
		"localhost:8001": true, "localhost": true, "LOCALHOST.": true, "abide.localhost:1": true, "dev.box:8001": true,
		"127.0.0.1:8001": true, "127.0.0.1": true, "[::1]:8001": true, "[::1]": true, "": true,
		"evil.example:8001": false, "evil.example": false, "localhost.evil.example": false, "notlocalhost": false,
		"127.0.0.1.evil.example:8001": false,
	} {
		if got := h.knownHost(host); got != want {
			t.Errorf("Host %q: %v, want %v", host, got, want)
		}
	}
	if open := (&Handler{}); !open.knownHost("evil.example") {
		t.Error("without a list every name is served")
	}
}
