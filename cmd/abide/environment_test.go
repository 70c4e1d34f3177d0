package main

import (
	"os"
	"slices"
	"strings"
)

// forgetEnvironment unsets what means something to the program, to its libraries or to shells, so that no test rests on where
// it is started: tests, and the processes that they start, set what they are about. What tells the tests about engines stays.
func forgetEnvironment() {
	forgotten := []string{"ABIDE_", "RESONATE_", "OTEL_", "PG", "MYSQL_", "PUBSUB_", "GOOGLE_", "NOTIFY_SOCKET", "WATCHDOG_", "LC_", "LANG", "BASH_ENV", "ENV",
		"COLUMNS", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_", "XDG_", "DOCKER_"}
	kept := []string{"ABIDE_TEST_", "ABIDE_ENGINES", "ABIDE_REQUIRE_ENGINES", "ABIDE_LONG"}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		begins := func(prefix string) bool { return strings.HasPrefix(strings.ToUpper(name), prefix) }
		if slices.ContainsFunc(forgotten, begins) && !slices.ContainsFunc(kept, begins) {
			_ = os.Unsetenv(name)
		}
	}
}
