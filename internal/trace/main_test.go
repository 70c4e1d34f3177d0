package trace

import (
	"os"
	"strings"
	"testing"
)

// TestMain forgets the settings of traces in the environment that the tests are started in: tests set what they are about.
func TestMain(m *testing.M) {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OTEL_") {
			_ = os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}
