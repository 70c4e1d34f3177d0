package main

import (
	"strings"
	"testing"
)

// TestMistakesNameWhatWasWritten: a setting that is wrong has one name in the message, that of the flag, the variable, or the
// place in the file, whichever the value came from.
func TestMistakesNameWhatWasWritten(t *testing.T) {
	file := func(lines ...string) string { return writeIn(t, "abide.toml", strings.Join(lines, "\n")+"\n") }
	for _, c := range []struct {
		name    string
		args    string
		environ []string
		file    string
		says    string // @ stands for the file's path
	}{
		{"no number, flag", "--server-port abc", nil, "", `abide: --server-port: expected a valid 64 bit int but got "abc"`},
		{"no number, variable", "", []string{"ABIDE_SERVER__PORT=abc"}, "", `abide: environment variable ABIDE_SERVER__PORT: expected a valid 64 bit int but got "abc"`},
		{"no number, file", "", nil, file("[server]", `port = "abc"`), `abide: @:2: server.port: expected a valid 64 bit int but got "abc"`},
		{"too large, flag", "--server-port 99999", nil, "", "abide: --server-port is 99999: it must be from 0 to 65535"},
		{"too large, variable", "", []string{"RESONATE_SERVER__PORT=99999"}, "", "abide: environment variable RESONATE_SERVER__PORT is 99999: it must be from 0 to 65535"},
		{"too large, file", "", nil, file("[server]", "port = 99999"), "abide: @:2: server.port is 99999: it must be from 0 to 65535"},
		{"flag over file", "--server-port 99999", nil, file("[server]", "port = 1"), "abide: --server-port is 99999: it must be from 0 to 65535"},
		{"one of two, flag", "--server-tls-cert x", nil, "", "abide: --server-tls-cert and --server-tls-key go together: give both or none"},
		{"one of two, variable", "", []string{"ABIDE_SERVER__TLS__KEY_FILE=x"}, "",
			"abide: ABIDE_SERVER__TLS__CERT_FILE and environment variable ABIDE_SERVER__TLS__KEY_FILE go together: give both or none"},
		{"one of two, file", "", nil, file("[server.tls]", `cert_file = "x"`), "abide: @:2: server.tls.cert_file and server.tls.key_file go together: give both or none"},
		{"a word, file", "", nil, file("[observability]", `log_format = "xml"`), `abide: @:2: observability.log_format must be one of "text","json" but got "xml"`},
		{"list, variable", "", []string{"ABIDE_TRANSPORTS__HTTP_PUSH__DENY=a/b"}, "", `abide: environment variable ABIDE_TRANSPORTS__HTTP_PUSH__DENY: "a/b" is no rule`},
		{"list, flag", "--transports-http-push-allow a/b", nil, "", `abide: --transports-http-push-allow: "a/b" is no rule`},
		{"protocol without a collector, flag", "--observability-otlp-protocol xx", nil, "", `abide: --observability-otlp-protocol is "xx": it must be grpc or http/protobuf`},
		{"protocol without a collector, somebody else's variable", "", []string{"OTEL_EXPORTER_OTLP_PROTOCOL=http/json"}, "",
			`abide: environment variable OTEL_EXPORTER_OTLP_PROTOCOL is "http/json": it must be grpc or http/protobuf`},
		{"known at start, file", "--server-port 0", nil, file("[auth]", `publickey = "none"`), "abide: @:2: auth.publickey none lets in whoever writes a token: it needs debug, or abide dev"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, command := range []string{"serve --server-bind 127.0.0.1", "config check"} {
				args := append(strings.Fields(command), "--config", c.file)
				r := runWith(c.environ, append(args, strings.Fields(c.args)...)...)
				want := strings.ReplaceAll(c.says, "@", c.file)
				if r.code != exitUsage || r.stdout != "" || !strings.Contains("\n"+r.stderr, "\n"+want) {
					t.Errorf("%s: exit %d, stdout %q, stderr\n%s\nwant exit 2 and\n%s", command, r.code, r.stdout, r.stderr, want)
				}
			}
		})
	}
}
