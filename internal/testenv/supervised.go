package testenv

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Missing ends a test whose engine is not there: it is skipped, or fails if engines are required.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	reason := fmt.Sprintf(format, args...)
	if os.Getenv("ABIDE_REQUIRE_ENGINES") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// cacheFolder is where engines are kept that no system package has.
func cacheFolder() string {
	if dir := os.Getenv("ABIDE_ENGINES"); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), "abide-engines")
}

// script writes one of the scripts beside this file where it can be run.
func script(name, text string) (string, error) {
	dir, err := os.MkdirTemp("", "abide-testenv-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(text), 0o700)
}

// supervised is a server process that a script supervises: it obeys lines and ends when its standard input does.
type supervised struct {
	mu     sync.Mutex
	stdin  io.WriteCloser
	answer *bufio.Reader
	log    string
}

// superviseScript runs a script and waits until it says that the server serves.
func superviseScript(log string, command ...string) (*supervised, error) {
	cmd := exec.Command(command[0], command[1:]...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &supervised{stdin: stdin, answer: bufio.NewReader(stdout), log: log}
	if err := s.wait(); err != nil {
		_ = cmd.Wait()
		return nil, fmt.Errorf("%w: %s", err, said.String())
	}
	return s, nil
}

func (s *supervised) wait() error {
	line, err := s.answer.ReadString('\n')
	if err != nil || line != "ok\n" {
		text, _ := os.ReadFile(s.log)
		return fmt.Errorf("the server did not start or obey (%q, %w); its log: %s", line, err, text)
	}
	return nil
}

// tell has a line obeyed.
func (s *supervised) tell(line string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := io.WriteString(s.stdin, line+"\n"); err != nil {
		return err
	}
	return s.wait()
}

// Name is a name that nobody has used, for a database, schema or user.
func Name() string { return "t_" + strings.ToLower(rand.Text()[:12]) }

// Eventually tries fn until it succeeds, for at most so long, and returns its last error.
func Eventually(longest time.Duration, fn func() error) error {
	var err error
	for deadline := time.Now().Add(longest); ; time.Sleep(20 * time.Millisecond) {
		if err = fn(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

var errNotInstalled = errors.New("not installed")
