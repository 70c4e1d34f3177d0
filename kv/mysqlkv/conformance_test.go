package mysqlkv

import (
	"context"
	"testing"
	"time"

	"abide/internal/testenv"
	"abide/kv"
	"abide/kv/kvtest"
)

func TestConformance(t *testing.T) {
	for _, kind := range testenv.MySQLKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var url string
			open := func(t testing.TB, c kvtest.Config) kv.Store {
				opt := Options{URL: url, Keys: c.Keys, Now: c.Now}
				if opt.Now == nil {
					opt.Now = time.Now
				}
				s, err := Open(context.Background(), opt)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			kvtest.Run(t, kvtest.Harness{
				Open: func(t testing.TB, c kvtest.Config) kv.Store {
					url = testenv.MySQL(t, kind)
					return open(t, c)
				},
				Reopen:     open,
				Second:     open,
				Operations: 1500,
			})
		})
	}
}
