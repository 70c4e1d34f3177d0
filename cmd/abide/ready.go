package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"abide/internal/cli"
)

// readyCommand asks a server whether it can serve: the health check of a container that has no shell. Without --url it asks the
// server of this machine that serve would be with the same settings.
type readyCommand struct {
	fileSettings

	URL           string   `name:"url" placeholder:"URL" help:"The server. By default the one on this machine that these settings are of."`
	Deadline      duration `default:"5s" placeholder:"DURATION" help:"How long the answer may take."`
	ServerBind    string   `setting:"server.bind" default:"0.0.0.0" placeholder:"ADDRESS" help:"Address that it listens on."`
	ServerPort    int      `setting:"server.port" default:"8001" placeholder:"PORT" help:"Port that it listens on."`
	ServerTLSCert string   `setting:"server.tls.cert_file" name:"server-tls-cert" placeholder:"FILE" help:"Certificate of the server, if TLS is on. It is not looked at: a connection to this machine needs no proof."`
}

// Validate checks the values; kong calls it.
func (c *readyCommand) Validate() error {
	switch {
	case c.URL == "" && (c.ServerPort < 1 || c.ServerPort > 65535):
		return fmt.Errorf("--server-port is %d: it must be from 1 to 65535", c.ServerPort)
	case c.URL == "":
		return checkBind(c.ServerBind)
	}
	if err := checkBaseURL(c.URL); err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	return nil
}

// maxReadyBytes is how much of an answer is read.
const maxReadyBytes = 64 << 10

// Run asks.
func (c *readyCommand) Run(in surroundings) error {
	interrupted, stop := in.untilSignal()
	defer stop()
	ctx, cancel := context.WithTimeout(interrupted, time.Duration(c.Deadline)*time.Millisecond)
	defer cancel()
	base, transport := c.target()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/ready", nil)
	if err != nil {
		return usageError{err}
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return failed("%s: no answer within %s (--deadline)", withoutPassword(base), cli.Span(int64(c.Deadline)))
		}
		return failed("%s: %s", withoutPassword(base), cli.Printable(err.Error()))
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxReadyBytes))
	if err != nil {
		return failed("%s: %s", withoutPassword(base), cli.Printable(err.Error()))
	}
	var body struct{ Reason, Note string }
	_ = json.Unmarshal(text, &body) // another server's body may be anything
	if answer.StatusCode != http.StatusOK {
		reason := fmt.Sprintf("/ready answers %d", answer.StatusCode)
		if body.Reason != "" {
			reason += ": " + cli.Printable(body.Reason)
		}
		return failed("not ready: %s", reason)
	}
	said := "ready"
	if body.Note != "" {
		said += ": " + cli.Printable(body.Note)
	}
	_, err = fmt.Fprintln(in.stdout, said)
	return err
}

// target is where the server is, and how it is reached. Proxies are for others than this machine.
func (c *readyCommand) target() (base string, by *http.Transport) {
	by = http.DefaultTransport.(*http.Transport).Clone()
	if c.URL != "" {
		return strings.TrimRight(c.URL, "/"), by
	}
	by.Proxy = nil
	host := strings.Trim(c.ServerBind, "[]")
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.To4() == nil {
			host = "::1"
		}
	}
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(host, strconv.Itoa(c.ServerPort))}
	if c.ServerTLSCert != "" {
		u.Scheme = "https"
		by.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // no secret is sent, and the answer is one bit
	}
	return u.String(), by
}
