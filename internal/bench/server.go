package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ListeningMessage is the log message with which abide serve says that it listens; the attribute that
// follows it is ListeningAddress. The runner learns from that line which free port an own server has taken.
const (
	ListeningMessage = "listening"
	ListeningAddress = "address"
)

// readyPause is between two questions whether a server is ready.
const readyPause = 5 * time.Millisecond

// ownServer is a running child process.
type ownServer struct {
	command *exec.Cmd
	folder  string
	url     string
	metrics string     // URL of its metrics
	ended   chan error // closed after the process has ended; holds its result
	log     *lastLines
}

// startServer starts an own server on a new data file and returns once it listens.
func startServer(ctx context.Context, own OwnServer, clients int) (*ownServer, error) {
	folder, err := os.MkdirTemp(own.Folder, "bench-")
	if err != nil {
		return nil, fmt.Errorf("cannot make a folder for the data: %w", err)
	}
	s, err := launchServer(ctx, own, folder, clients)
	if err != nil {
		_ = os.RemoveAll(folder)
	}
	return s, err
}

// launchServer starts an own server on the data in folder and returns once it listens.
func launchServer(ctx context.Context, own OwnServer, folder string, clients int) (*ownServer, error) {
	metricsPort, err := freePort()
	if err != nil {
		return nil, err
	}
	args := []string{"serve", "--server-bind", "127.0.0.1", "--server-port", "0", "--observability-metrics-port", strconv.Itoa(metricsPort)}
	args = append(args, own.Storage...)
	args = append(args, own.Flags...)
	args = append(args, "--storage-sqlite-path", filepath.Join(folder, "abide.db"),
		"--transports-http-poll-max-connections", strconv.Itoa(max(1000, 2*clients)))
	command := exec.Command(own.Binary, args...)
	command.Env = own.Environ
	stderr, err := command.StderrPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", own.Binary, err)
	}
	s := &ownServer{command: command, folder: folder, ended: make(chan error, 1), log: &lastLines{},
		metrics: fmt.Sprintf("http://127.0.0.1:%d/metrics", metricsPort)}
	listening := make(chan string, 1)
	go s.watch(stderr, listening)
	select {
	case address := <-listening:
		s.url = "http://" + address
		return s, nil
	case err = <-s.ended:
		err = fmt.Errorf("the server ended before it listened (%v); its last lines were:\n%s", err, s.log)
	case <-time.After(readyTimeout):
		err = fmt.Errorf("the server does not listen after %s; its last lines were:\n%s", readyTimeout, s.log)
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.end()
	return nil, err
}

// watch reads the server's log until it ends, and then reaps it.
func (s *ownServer) watch(stderr io.Reader, listening chan<- string) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		line := lines.Text()
		s.log.add(line)
		if strings.Contains(line, "msg="+ListeningMessage+" ") {
			_, rest, _ := strings.Cut(line, " "+ListeningAddress+"=")
			address, _, _ := strings.Cut(rest, " ")
			select {
			case listening <- address:
			default: // a server may listen on more than one address
			}
		}
	}
	_, _ = io.Copy(io.Discard, stderr)
	s.ended <- s.command.Wait()
	close(s.ended)
}

// stop ends the server in its regular way, so that its file is whole, and returns the size of its data.
func (s *ownServer) stop() (dataBytes int64, err error) {
	if runtime.GOOS == "windows" {
		// There is no signal there that asks a process to end; its file is measured as a crash leaves it.
		err = s.command.Process.Kill()
	} else {
		err = s.command.Process.Signal(os.Interrupt)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, fmt.Errorf("cannot stop the server: %w", err)
	}
	select {
	case <-s.ended:
	case <-time.After(stopTimeout):
		return 0, fmt.Errorf("the server does not end after %s", stopTimeout)
	}
	err = filepath.WalkDir(s.folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			dataBytes += info.Size()
		}
		return err
	})
	return dataBytes, err
}

// end has the process gone, whatever it was doing.
func (s *ownServer) end() {
	_ = s.command.Process.Kill()
	for range s.ended { // until it is closed
	}
}

// kill ends the server if it still runs, and removes its data.
func (s *ownServer) kill() {
	s.end()
	_ = os.RemoveAll(s.folder)
}

// lastLines keeps the end of a log. Safe for concurrent use.
type lastLines struct {
	mu    sync.Mutex
	lines []string
}

const keptLines = 20

func (l *lastLines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == keptLines {
		l.lines = append(l.lines[:0], l.lines[1:]...)
	}
	l.lines = append(l.lines, line)
}

// String joins the kept lines.
func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// waitReady polls /ready until the server says that it can work.
func waitReady(ctx context.Context, t target) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	scheme := "http://"
	if t.tls {
		scheme = "https://"
	}
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+t.host+"/ready", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("/ready answers %d", answer.StatusCode)
		} else if ctx.Err() == nil {
			return fmt.Errorf("cannot reach %s: %w", t.url, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", t.url, err)
		case <-time.After(readyPause):
		}
	}
}
