package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"abide/client"
)

// process is a server in a process of its own.
type process struct {
	cmd   *exec.Cmd
	log   *lockedBuffer
	url   string
	ended chan error
}

// startProcess starts the program with args until it listens; prepare may change how. The log is what it writes to standard
// error, which prepare may lead elsewhere after it has listened.
func startProcess(t *testing.T, prepare func(*exec.Cmd), args ...string) *process {
	t.Helper()
	p := &process{log: &lockedBuffer{}, ended: make(chan error, 1)}
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), "BE_THE_PROGRAM=1")
	p.cmd.Stderr = p.log
	if prepare != nil {
		prepare(p.cmd)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("stderr:\n%s", p.log.String())
		}
	})
	eventually(t, "the server listens", func() bool {
		said := listeningLine.FindStringSubmatch(p.log.String())
		if said != nil {
			p.url = "http://" + said[1]
		}
		return said != nil
	})
	return p
}

func (p *process) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: p.url})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantReady wants that the server can serve.
func (p *process) wantReady(t *testing.T) {
	t.Helper()
	eventually(t, "the server is ready", func() bool { return runWith(nil, "ready", "--url", p.url).code == exitOK })
}

// wantStop asks it to end, and wants that it has ended well.
func (p *process) wantStop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("SIGTERM does not end it")
	}
}

// TestHangUp: the hang-up of a terminal that closes has a server read its files again, if it has any, and ends none.
func TestHangUp(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.pair("localhost")
	tls := files(t, cert, key, nil)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"serve":     {serveArgs(filepath.Join(t.TempDir(), "x.db")), "there are no keys and no certificates to read again; the server runs on"},
		"serve tls": {serveArgs(filepath.Join(t.TempDir(), "y.db"), "--server-tls-cert", tls.ServerTLSCert, "--server-tls-key", tls.ServerTLSKey), "keys and certificates are read again"},
		"dev":       {[]string{"dev", "--ephemeral", "--server-port", "0", "--observability-metrics-port", "0"}, "the server runs on"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProcess(t, func(cmd *exec.Cmd) { cmd.Dir = t.TempDir() }, c.args...)
			for n := 1; n <= 2; n++ {
				if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the log says "+c.says, func() bool { return strings.Count(p.log.String(), c.says) == n })
			}
			if !strings.Contains(name, "tls") {
				p.wantReady(t)
			}
			p.wantStop(t)
		})
	}
}

// TestLogNobodyReads: what a server's log is piped into ends with the terminal, and the server does not.
func TestLogNobodyReads(t *testing.T) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	copied := make(chan struct{})
	p := startProcess(t, func(cmd *exec.Cmd) {
		log := cmd.Stderr
		cmd.Stderr = theirs
		go func() {
			defer close(copied)
			buffer := make([]byte, 4096)
			for {
				n, err := ours.Read(buffer)
				if err != nil {
					return
				}
				_, _ = log.Write(buffer[:n])
				if strings.Contains(string(buffer[:n]), "the server runs on") {
					return
				}
			}
		}()
	}, serveArgs(filepath.Join(t.TempDir(), "x.db"))...)
	_ = theirs.Close()
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-copied:
	case <-time.After(60 * time.Second):
		t.Fatal("a hang-up says nothing")
	}
	_ = ours.Close()
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil { // another line, which nobody reads
		t.Fatal(err)
	}
	p.wantReady(t)
	p.wantStop(t) // with some lines more
}
