package pgkv

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"abide/kv"
)

func TestURLs(t *testing.T) {
	for raw, want := range map[string]struct {
		host, user, password, database string
		pool                           int
	}{
		"postgres://u:p@h:5433/d":                               {"h", "u", "p", "d", 0},
		"postgresql://u@h/d?pool_max_conns=7&sslmode=disable":   {"h", "u", "", "d", 7},
		"postgres://u:p[a]ss@h/d":                               {"h", "u", "p[a]ss", "d", 0},
		"postgres://u:p/a:s@s?#{}<>^`|@h/d?sslmode=disable":     {"h", "u", "p/a:s@s?#{}<>^`|", "d", 0},
		"postgres://u:100%25@h/d":                               {"h", "u", "100%", "d", 0},
		"postgres://u:100%@h/d":                                 {"h", "u", "100%", "d", 0},
		"postgres://u:a+b c@h/d":                                {"h", "u", "a+b c", "d", 0},
		"host=h user=u password='p[]' dbname=d sslmode=disable": {"h", "u", "p[]", "d", 0},
		"postgres://u:p@h1:1,h2:2/d":                            {"h1", "u", "p", "d", 0},
	} {
		t.Run(raw, func(t *testing.T) {
			c, pool, err := parseURL(raw)
			if err != nil {
				t.Fatal(err)
			}
			if c.Host != want.host || c.User != want.user || c.Password != want.password || c.Database != want.database || pool != want.pool {
				t.Errorf("host %q, user %q, password %q, database %q, pool %d", c.Host, c.User, c.Password, c.Database, pool)
			}
			if (c.ValidateConnect != nil) != strings.Contains(raw, ",") {
				t.Error("of several hosts the one that can be written is meant, and of one nothing is asked")
			}
		})
	}
	for _, raw := range []string{"", " ", "postgres://u@h:port/d", "postgres://u@h/d?pool_max_conns=0", "postgres://u@h/d?sslmode=what"} {
		if _, _, err := parseURL(raw); err == nil || !strings.HasPrefix(err.Error(), "postgres: ") {
			t.Errorf("%q: %v", raw, err)
		}
	}
	if _, _, err := parseURL("postgres://u:secret]@h:port/d"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("an error shows the password: %v", err)
	}
}

// What a URL leaves out comes from the environment, as for every program of PostgreSQL's.
func TestEnvironment(t *testing.T) {
	for name, value := range map[string]string{"PGHOST": "elsewhere", "PGPORT": "7000", "PGUSER": "anna", "PGPASSWORD": "p", "PGDATABASE": "d", "PGSSLMODE": "disable"} {
		t.Setenv(name, value)
	}
	c, _, err := parseURL("postgres://")
	if err != nil || c.Host != "elsewhere" || c.Port != 7000 || c.User != "anna" || c.Password != "p" || c.Database != "d" || c.TLSConfig != nil {
		t.Errorf("%+v, %v", c, err)
	}
	if c, _, err = parseURL("postgres://otto@h/e"); err != nil || c.Host != "h" || c.User != "otto" || c.Database != "e" || c.Port != 7000 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestIdentities(t *testing.T) {
	for code, want := range map[string]error{
		"40001": kv.ErrConflict, "40P01": kv.ErrConflict, "55P03": kv.ErrConflict, "57014": kv.ErrUnavailable,
		"57P01": kv.ErrUnavailable, "08006": kv.ErrUnavailable, "53300": kv.ErrUnavailable, "53100": kv.ErrUnavailable,
		"25006": kv.ErrUnavailable, "42501": kv.ErrUnavailable, "42P01": kv.ErrUnavailable, "XX001": kv.ErrCorrupt, "XX002": kv.ErrCorrupt,
		"XX000": kv.ErrUnavailable, "12345": kv.ErrUnavailable,
	} {
		err := failure("commit", &pgconn.PgError{Severity: "ERROR", Code: code, Message: "m", Detail: "Key (k)=(secret)"}).(*kv.Error)
		if err.Is != want || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), code) {
			t.Errorf("%s: %v", code, err)
		}
	}
}

func TestFormats(t *testing.T) {
	if _, err := parseFormat(format{formatVersion + 2, formatMinReader, 5}.append(nil)); err != nil {
		t.Errorf("a newer format that older programs may read: %v", err)
	}
	for name, b := range map[string][]byte{
		"newer":     format{formatVersion + 2, formatVersion + 1, 5}.append(nil),
		"short":     {1},
		"none":      nil,
		"no number": format{1, 1, 0}.append(nil),
	} {
		if _, err := parseFormat(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestSignalsInPayloads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes")), rapid.IntRange(0, 50).Draw(t, "times"))
		})
		signals := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) kv.Signal {
			return kv.Signal{Topic: text.Draw(t, "topic"), Body: text.Draw(t, "body")}
		}), 0, 30).Draw(t, "signals")
		payloads := packSignals(7, signals)
		var got []kv.Signal
		for _, p := range payloads {
			if len(p) > maxPayloadBytes {
				t.Fatalf("a payload of %d bytes", len(p))
			}
			writer, some := unpackSignals(p)
			if writer != 7 || len(some) == 0 {
				t.Fatalf("%d signals of %d", len(some), writer)
			}
			got = append(got, some...)
		}
		if len(payloads) > maxPayloads || len(got) > len(signals) || !slices.Equal(got, signals[:len(got)]) || (len(payloads) < maxPayloads && len(got) < len(signals)) {
			t.Fatalf("%d payloads with %d of %d signals", len(payloads), len(got), len(signals))
		}
	})
	rapid.Check(t, func(t *rapid.T) { // whatever anybody notifies
		unpackSignals(rapid.String().Draw(t, "payload"))
		unpackSignals(packSignals(1, []kv.Signal{{Topic: "t"}})[0] + rapid.String().Draw(t, "more"))
	})
}
