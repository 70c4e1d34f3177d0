package testenv_test

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"abide/internal/testenv"
)

// echo is a server that answers every piece with itself, and counts the bytes that it got.
func echo(t *testing.T) (address string, got *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	got = &atomic.Int64{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buffer := make([]byte, 1024)
				for {
					n, err := c.Read(buffer)
					if err != nil {
						return
					}
					got.Add(int64(n))
					if _, err := c.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), got
}

func TestProxy(t *testing.T) {
	for name, tc := range map[string]struct {
		fate     testenv.Fate
		reaches  bool // the server gets the piece
		answered bool
		ends     bool // the client's connection does
	}{
		"pass":       {testenv.Pass, true, true, false},
		"cut before": {testenv.CutBefore, false, false, true},
		"cut after":  {testenv.CutAfter, true, false, true},
		"cut answer": {testenv.CutAnswer, true, false, true},
		"swallow":    {testenv.Swallow, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			address, got := echo(t)
			p := testenv.NewProxy(t, address)
			p.Decide(func(piece []byte) testenv.Fate {
				if bytes.Contains(piece, []byte("now")) {
					return tc.fate
				}
				return testenv.Pass
			})
			c, err := net.Dial("tcp", p.Address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			send := func(text string, wait time.Duration) (answer string, err error) {
				if _, err := io.WriteString(c, text); err != nil {
					return "", err
				}
				_ = c.SetReadDeadline(time.Now().Add(wait))
				buffer := make([]byte, 1024)
				n, err := c.Read(buffer)
				return string(buffer[:n]), err
			}
			if answer, err := send("first", time.Minute); answer != "first" {
				t.Fatalf("%q, %v", answer, err)
			}
			wait := time.Minute
			if !tc.answered && !tc.ends {
				wait = 300 * time.Millisecond // for nothing
			}
			answer, err := send("now", wait)
			timeout, _ := err.(net.Error)
			if (answer == "now") != tc.answered || (err != nil && (timeout == nil || !timeout.Timeout())) != tc.ends {
				t.Errorf("the answer is %q, %v", answer, err)
			}
			if err := testenv.Eventually(time.Minute, func() error {
				if reached := got.Load() == int64(len("firstnow")); reached != tc.reaches {
					return io.ErrNoProgress
				}
				return nil
			}); err != nil {
				t.Errorf("the server got %d bytes", got.Load())
			}
		})
	}
}
