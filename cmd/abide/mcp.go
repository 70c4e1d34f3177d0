package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"abide/internal/mcp"
)

// Times of MCP over HTTP. Answers have no limit: a tool may wait for minutes, and streams stay open.
const (
	mcpHeaderTimeout = 10 * time.Second
	mcpIdleTimeout   = 2 * time.Minute
	mcpStopTimeout   = 2 * time.Second
)

// mcpCommand serves the Model Context Protocol in front of a server.
type mcpCommand struct {
	serverFlags
	HTTP        string   `name:"http" placeholder:"ADDRESS" help:"Serve over HTTP on this port, of the loopback interface, or on this host:port. By default, over standard input and output."`
	AllowOrigin []string `placeholder:"ORIGIN" help:"A web page that may use it over HTTP, as scheme://host. Repeatable."`
	Level       logLevel `default:"info" words:"debug,info,warn,error,off" placeholder:"LEVEL" help:"The least severe log lines to print on standard error: debug, info, warn, error or off."`
}

// Run serves until the input ends, or a signal.
func (c *mcpCommand) Run(in surroundings) error {
	ctx, stop := in.untilSignal()
	defer stop()
	o := mcp.Options{URL: c.Server, Token: c.Token, Version: buildVersion(), NowMs: in.nowMs, Log: newLogger(in.stderr, c.Level)}
	if c.HTTP != "" {
		return c.serve(ctx, in, o)
	}
	if in.stdin == nil {
		return failed("there is no standard input to serve")
	}
	if err := mcp.ServeStdio(ctx, in.stdin, in.stdout, o); err != nil {
		return failed("%v", err)
	}
	return nil
}

// address is where to listen: a bare port, or one without a host, is of the loopback interface.
func (c *mcpCommand) address() (host string, port int, err error) {
	host, text := "", c.HTTP
	if strings.Contains(text, ":") {
		if host, text, err = net.SplitHostPort(c.HTTP); err != nil {
			return "", 0, usageError{fmt.Errorf("--http %s: write a port, or host:port", c.HTTP)}
		}
	}
	if host == "" || host == "localhost" {
		host = "127.0.0.1"
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, usageError{fmt.Errorf("--http %s: the port must be a number from 0 to 65535", c.HTTP)}
	}
	if ip, err := netip.ParseAddr(host); (err != nil || !ip.IsLoopback()) && c.Token != "" {
		return "", 0, usageError{errors.New("who reaches --http " + c.HTTP + " could act with the token of --token or ABIDE_TOKEN; leave that away, callers' own tokens are passed on")}
	}
	return host, port, nil
}

func (c *mcpCommand) serve(ctx context.Context, in surroundings, o mcp.Options) error {
	host, port, err := c.address()
	if err != nil {
		return err
	}
	handler, err := mcp.Handler(o, c.AllowOrigin)
	if err != nil {
		return usageError{err}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return failed("cannot listen on %s: %v", c.HTTP, err)
	}
	fmt.Fprintf(in.stdout, "MCP: http://%s/\n", listener.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: mcpHeaderTimeout, IdleTimeout: mcpIdleTimeout}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return failed("%v", err)
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.Background(), mcpStopTimeout)
	defer cancel()
	if server.Shutdown(late) != nil {
		_ = server.Close() // streams stay open until somebody closes them
	}
	return nil
}
