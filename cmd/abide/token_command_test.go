package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHelpOfSettingsAndTokens(t *testing.T) {
	for _, command := range []string{"config check", "token", "token keygen", "token new", "token show"} {
		r := runWith(nil, append(strings.Fields(command), "--help")...)
		if r.code != exitOK {
			t.Errorf("%s: exit %d", command, r.code)
		}
		if command != "config check" { // it is that of serve
			golden(t, "help_"+strings.ReplaceAll(command, " ", "_")+".txt", r.stdout)
		}
	}
}

// keygen makes a key in a new folder and returns that.
func keygen(t *testing.T, args ...string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "keys")
	if r := runWith(nil, append([]string{"token", "keygen", "--out", folder}, args...)...); r.code != exitOK {
		t.Fatalf("keygen: exit %d: %s", r.code, r.stderr)
	}
	return folder
}

func newToken(t *testing.T, folder string, args ...string) string {
	t.Helper()
	r := runWith(nil, append([]string{"token", "new", "--key", filepath.Join(folder, "private.pem")}, args...)...)
	if r.code != exitOK || strings.Count(r.stdout, "\n") != 1 || strings.Count(r.stdout, ".") != 2 {
		t.Fatalf("token new %v: exit %d: %s%s", args, r.code, r.stdout, r.stderr)
	}
	return strings.TrimSpace(r.stdout)
}

func TestKeysAndTokens(t *testing.T) {
	other := keygen(t)
	for _, alg := range []string{"EdDSA", "ES256", "RS256"} {
		folder := keygen(t, "--alg", alg)
		if info, err := os.Stat(filepath.Join(folder, "private.pem")); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: the private key is open to others: %v %v", alg, info.Mode(), err)
		}
		token := newToken(t, folder, "--prefix", "a.", "--workspace", "w,v", "--group", "g", "--iss", "i", "--aud", "abide", "--sub", "s", "--for", "1h")
		for _, key := range []string{"public.pem", "jwks.json"} {
			r := runWith(nil, "token", "show", token, "--key", filepath.Join(folder, key), "--iss", "i", "--aud", "abide")
			if r.code != exitOK || !strings.Contains(r.stdout, "would accept it") || !strings.Contains(r.stdout, `"alg": "`+alg+`"`) || !strings.Contains(r.stdout, "good until ") {
				t.Errorf("%s, %s: exit %d: %s%s", alg, key, r.code, r.stdout, r.stderr)
			}
		}
		r := runWith(nil, "token", "show", token, "--key", filepath.Join(other, "public.pem"))
		if r.code != exitFailure || !strings.Contains(r.stderr, "would refuse it") {
			t.Errorf("%s: with another key: exit %d: %s", alg, r.code, r.stderr)
		}
		if r := runWith(nil, "token", "keygen", "--out", folder); r.code != exitFailure || !strings.Contains(r.stderr, "is there already") {
			t.Errorf("%s: a key is overwritten: exit %d: %s", alg, r.code, r.stderr)
		}
	}
}

func TestTokenMistakes(t *testing.T) {
	folder := keygen(t)
	key := filepath.Join(folder, "private.pem")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"token new --key " + key, exitUsage, "--role admin"},
		{"token new --role admin --for 0 --key " + key, exitUsage, "--for"},
		{"token new --role admin --for 4000d --key " + key, exitUsage, "--for"},
		{"token new --role admin --key " + filepath.Join(folder, "none.pem"), exitFailure, "abide token keygen"},
		{"token new --role admin --key " + filepath.Join(folder, "public.pem"), exitFailure, "PRIVATE KEY"},
		{"token keygen --alg HS256", exitUsage, "EdDSA"},
		{"token show nonsense", exitFailure, "no token"},
		{"token show", exitFailure, "no token"},
	} {
		if r := runWith(nil, strings.Fields(c.args)...); r.code != c.code || !strings.Contains(r.stderr, c.says) || r.stdout != "" {
			t.Errorf("%s: exit %d: %s%s", c.args, r.code, r.stdout, r.stderr)
		}
	}
}
