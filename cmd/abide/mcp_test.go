package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMCPOfTheProgram: a process of its own, as a client of MCP starts it.
func TestMCPOfTheProgram(t *testing.T) {
	_, url := live(t)
	command := exec.Command(os.Args[0], "mcp")
	command.Env = append(os.Environ(), "BE_THE_PROGRAM=1", "ABIDE_URL="+url)
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: command}, nil)
	if err != nil {
		t.Fatal(err)
	}
	result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "promise-create", Arguments: map[string]any{"id": "p", "timeout_at": time.Now().Add(time.Hour).UnixMilli()}})
	if err != nil || result.IsError {
		t.Fatalf("%+v %v", result, err)
	}
	if err := session.Close(); err != nil {
		t.Errorf("it does not end with its input: %v", err)
	}
	if r := atTerminal(url, "promises get p"); r.code != exitOK {
		t.Errorf("%+v", r)
	}
}

// announced hands on what is written to it.
type announced chan string

func (a announced) Write(p []byte) (int, error) {
	a <- string(p)
	return len(p), nil
}

func TestMCPOverHTTP(t *testing.T) {
	_, url := live(t)
	signals := make(chan os.Signal, 1)
	stdout, code := make(announced, 1), make(chan int, 1)
	go func() {
		code <- run([]string{"mcp", "--http", "0"}, surroundings{environ: []string{"ABIDE_URL=" + url}, stdout: stdout, stderr: io.Discard, signals: signals, abort: func() {}})
	}()
	line := <-stdout
	endpoint := strings.TrimSpace(strings.TrimPrefix(line, "MCP: "))
	if !strings.HasPrefix(endpoint, "http://127.0.0.1:") {
		t.Fatalf("%q", line)
	}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: endpoint}, nil)
	if err != nil {
		t.Fatal(err)
	}
	result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "promise-search"})
	if err != nil || result.IsError {
		t.Errorf("%+v %v", result, err)
	}
	signals <- os.Interrupt
	if got := <-code; got != exitOK {
		t.Errorf("exit %d", got)
	}
	if _, err := http.Get(endpoint); err == nil {
		t.Error("it still answers")
	}
}

func TestMCPUsage(t *testing.T) {
	for args, says := range map[string]string{
		"mcp --http many":               "port",
		"mcp --http a:b:c":              "host:port",
		"mcp --http 0.0.0.0:0 -T t":     "token",
		"mcp --http host.example:0 -Tt": "token",
		"mcp --http 0 -S localhost":     "http://",
		"mcp --level loud":              "debug",
	} {
		if r := person(false, nil, "", args); r.code != exitUsage || !strings.Contains(r.stderr, says) {
			t.Errorf("%s: %+v, want %q", args, r, says)
		}
	}
	var stdout, stderr bytes.Buffer
	code := run([]string{"mcp"}, surroundings{stdin: strings.NewReader("\n"), stdout: &stdout, stderr: &stderr, signals: make(chan os.Signal), abort: func() {}})
	if code != exitOK || stdout.Len() > 0 {
		t.Errorf("the end of the input: exit %d, %q %q", code, stdout.String(), stderr.String())
	}
}
