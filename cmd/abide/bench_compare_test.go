package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"abide/internal/bench"
)

func TestBenchFlood(t *testing.T) {
	t.Chdir(t.TempDir())
	for forMs := 200; ; forMs *= 2 { // a busy machine may do nothing for a while
		r := runWith([]string{"BE_THE_PROGRAM=1"}, "bench", "flood", "--flood", "5", "--patient", "--clients", "2", "--every", "5ms", "--rounds", "1", "--for", fmt.Sprint(forMs))
		var flood bench.FloodReport
		if err := json.Unmarshal([]byte(r.stdout), &flood); r.code != exitOK || err != nil {
			t.Fatalf("exit %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
		}
		if flood.RatioP99 != nil && flood.OverElsewhereP99 != nil && flood.FloodOperationsPerSecond > 0 && flood.FloodPatient {
			return
		}
		if forMs > 20_000 {
			t.Fatal(r.stdout)
		}
	}
}

func TestBenchElsewhere(t *testing.T) {
	const first = "--storage-postgres-url postgres://a@h/d "
	for args, want := range map[string]string{
		"flood --elsewhere other.db":                                        "own servers on files",
		"cost --elsewhere other.db":                                         "--elsewhere",
		"flood --storage-mysql-url mysql://a@h/d":                           "--elsewhere",
		"flood " + first + "--elsewhere mysql://a@h/d":                      "postgres",
		"flood " + first + "--elsewhere postgres://a@h/d":                   "store of the first server",
		"flood --storage-mysql-url mysql://a@h/d --elsewhere mysql://a@h/d": "store of the first server",
	} {
		r := runWith(nil, append([]string{"bench"}, strings.Fields(args)...)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit %d, stderr %q, want %q", args, r.code, r.stderr, want)
		}
	}
	for first, want := range map[string]string{
		"postgres://a@h/d":          "postgres://a@h/d schema abide_elsewhere",
		"postgres://a@h/d?schema=x": "postgres://a@h/d schema x_elsewhere",
	} {
		c := benchCommand{storageSettings: storageSettings{StoragePostgresURL: first}}
		if second, err := c.elsewhere(); err != nil || second.String() != want {
			t.Errorf("beside %s: %s, %v, want %s", first, second, err, want)
		}
	}
}
