package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	settings, err := Parse([]byte(`# comment
level = "debug"
debug = true

[server]
port = 9_000
"host" = 'h'
cors.allow_origins = ["https://a", "https://b"]
tls = { cert_file = "c", key_file = "k" }

[ storage . sqlite ]
path = """
x"""
[transports.http_push]
auth.token = "t" # comment
ratio = 0.5
[auth]
[nothing.here]
`))
	want := []Setting{
		{"level", "debug", 2}, {"debug", true, 3}, {"server.port", int64(9000), 6}, {"server.host", "h", 7},
		{"server.cors.allow_origins", []any{"https://a", "https://b"}, 8}, {"server.tls.cert_file", "c", 9}, {"server.tls.key_file", "k", 9},
		{"storage.sqlite.path", "x", 12}, {"transports.http_push.auth.token", "t", 15}, {"transports.http_push.ratio", 0.5, 16},
		{"auth", nil, 17}, {"nothing.here", nil, 18},
	}
	if err != nil || !reflect.DeepEqual(settings, want) {
		t.Errorf("%+v\n%v", settings, err)
	}
	if settings, err := Parse(nil); err != nil || len(settings) != 0 {
		t.Errorf("an empty file: %v, %v", settings, err)
	}
}

func TestParseErrors(t *testing.T) {
	for text, says := range map[string]string{
		"a = ":                         "1: ",
		"a = 1\nb = [":                 "2: ",
		"a = 1\n\na = 2":               "3: ",
		"a.b = 1\n[a]\nb = 2":          "2: ",
		"a = b":                        "1: ",
		"server: 1":                    "1: ",
		"x = 1\nday = 2020-01-01":      "2: day: no setting is a date",
		"x = 07:32:00":                 "1: x: no setting is a date",
		"x = 2020-01-01T00:00:00Z":     "1: x: no setting is a date",
		"x = [[1]]":                    "1: x: settings are lists of",
		"[[server]]\nport = 1":         "1: server: settings are lists of",
		"x = \"\xff\"":                 "1: ",
		"a = \"" + "unfinished\nb = 1": "1: ",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%q: %v does not begin with %q", text, err, says)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.toml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a = 1\nb = ")
	if _, err := Load(path); err == nil || !strings.HasPrefix(err.Error(), path+":2: ") {
		t.Errorf("%v", err)
	}
	write(strings.Repeat("#", MaxFileBytes+1))
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{filepath.Join(dir, "none"), dir} {
		if _, err := Load(bad); err == nil {
			t.Errorf("%s is loaded", bad)
		}
	}
}

func TestSearch(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b")
	if err := os.MkdirAll(filepath.Join(deep, "abide.toml"), 0o700); err != nil { // a folder of that name is none
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		got, err := Search(deep)
		if err != nil || (want != "" && got != filepath.Join(root, want)) || (want == "" && strings.HasPrefix(got, root)) {
			t.Errorf("found %q, %v, want %q", got, err, want)
		}
	}
	expect("")
	for _, name := range []string{"abide.toml", "a/resonate.toml", "a/abide.toml", "a/b/resonate.toml"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		expect(name)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"level", "debug", "server.port", "server.host", "server.url", "storage.sqlite.path", "transports.http_poll.max_connections", "transports.http_push.enabled"}
	for word, want := range map[string]string{
		"server.prot":                          "server.port",
		"server.ports":                         "server.port",
		"Server.Port":                          "server.port",
		"sever.port":                           "server.port",
		"levle":                                "level",
		"transports.http-poll.max-connections": "transports.http_poll.max_connections",
		"transports.http_poll.max_conections":  "transports.http_poll.max_connections",
		"sqlite.path":                          "storage.sqlite.path",
		"database.path":                        "storage.sqlite.path",
		"server.database.path":                 "storage.sqlite.path",
		"entirely.different":                   "",
		"x":                                    "",
		"":                                     "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := Nearest("anything", nil); got != "" {
		t.Errorf("of none: %q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "abd", 1}, {"abc", "bc", 1}, {"kitten", "sitting", 3}, {"äb", "ab", 1}, {"prot", "port", 1}} {
		if got := distance([]rune(c.a), []rune(c.b)); got != c.want || distance([]rune(c.b), []rune(c.a)) != c.want {
			t.Errorf("%s %s: %d", c.a, c.b, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a = 1\n[b]\nc = { d = [1, \"x\"] }\n[[e]]\nf.\"g.h\" = 1")
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := Parse([]byte(text))
		for _, s := range settings {
			if err == nil && (s.Line < 1 || s.Line > strings.Count(text, "\n")+1) {
				t.Errorf("%q: %+v", text, s)
			}
		}
	})
}

// TestReadFile: what has no end is not read to its end. A device says that it is empty.
func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(path, 5); err != nil || string(text) != "12345" {
		t.Errorf("%q, %v", text, err)
	}
	for _, path := range []string{path, "/dev/zero"} {
		if _, err := ReadFile(path, 4); err == nil || !strings.Contains(err.Error(), "larger than 4 bytes") && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Load("/dev/zero"); err == nil {
		t.Error("a file without an end was read")
	}
}
