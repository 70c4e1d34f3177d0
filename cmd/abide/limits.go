package main

import (
	"errors"
	"fmt"
	"log/slog"

	"abide/internal/deliver"
	"abide/protocol"
)

// limitSettings bound what a server takes on. (docs/limits.md)
type limitSettings struct {
	LimitsRequests             int `setting:"limits.requests" default:"4096" placeholder:"N" help:"Requests that may be in work or wait for it at once; one more is answered 503."`
	LimitsRequestsPerWorkspace int `setting:"limits.requests_per_workspace" default:"0" placeholder:"N" help:"The same of one workspace, answered 429; 0 stands for half of --limits-requests."`
	LimitsBufferedBytes        int `setting:"limits.buffered_bytes" default:"134217728" placeholder:"BYTES" help:"Memory that larger request bodies may take until they are answered, and larger answers besides. A body that does not fit is answered 503, or 429 when its workspace has half of it."`
	LimitsConnections          int `setting:"limits.connections" default:"16384" placeholder:"N" help:"Connections that may be open at once besides streams; one more is answered 503. No more than the process may open files."`
	LimitsWorkspaces           int `setting:"limits.workspaces" default:"10000" placeholder:"N" help:"Workspaces that the store may have; a request that would make one more is answered 403."`

	TransportsHTTPPollMaxConnections             int `setting:"transports.http_poll.max_connections" name:"transports-http-poll-max-connections" default:"1000" placeholder:"N" help:"Worker streams that may be open at once; one more is answered 503."`
	TransportsHTTPPollMaxConnectionsPerWorkspace int `setting:"transports.http_poll.max_connections_per_workspace" name:"transports-http-poll-max-connections-per-workspace" default:"0" placeholder:"N" help:"The same of one workspace, answered 429; 0 stands for all of them."`
	TransportsHTTPPollMaxConnectionsPerGroup     int `setting:"transports.http_poll.max_connections_per_group" name:"transports-http-poll-max-connections-per-group" default:"0" placeholder:"N" help:"The same of one group of workers, answered 429; 0 stands for all of them."`
	TransportsHTTPPollBufferSize                 int `setting:"transports.http_poll.buffer_size" name:"transports-http-poll-buffer-size" default:"256" placeholder:"N" help:"Tasks that one stream is handed before its worker claims some of them; more than 256 count as 256."`
}

// Limits of these settings, checked at start.
const (
	maxRequests        = 1_000_000
	minBufferedBytes   = 2 * protocol.MaxBodyBytes
	maxBufferedBytes   = 1 << 40
	maxConnections     = 10_000_000
	maxWorkspaces      = 1_000_000
	maxPollConnections = 1_000_000
	maxPollBuffer      = 100_000
)

// Validate checks the values.
func (s *limitSettings) Validate() error {
	var errs []error
	for _, c := range []struct {
		flag            string
		value, min, max int
	}{
		{"limits-requests", s.LimitsRequests, 1, maxRequests},
		{"limits-requests-per-workspace", s.LimitsRequestsPerWorkspace, 0, s.LimitsRequests},
		{"limits-buffered-bytes", s.LimitsBufferedBytes, minBufferedBytes, maxBufferedBytes},
		{"limits-connections", s.LimitsConnections, 1, maxConnections},
		{"limits-workspaces", s.LimitsWorkspaces, 1, maxWorkspaces},
		{"transports-http-poll-max-connections", s.TransportsHTTPPollMaxConnections, 1, maxPollConnections},
		{"transports-http-poll-max-connections-per-workspace", s.TransportsHTTPPollMaxConnectionsPerWorkspace, 0, maxPollConnections},
		{"transports-http-poll-max-connections-per-group", s.TransportsHTTPPollMaxConnectionsPerGroup, 0, maxPollConnections},
		{"transports-http-poll-buffer-size", s.TransportsHTTPPollBufferSize, 1, maxPollBuffer},
	} {
		if c.value < c.min || c.value > c.max {
			errs = append(errs, fmt.Errorf("--%s is %d: it must be from %d to %d", c.flag, c.value, c.min, c.max))
		}
	}
	return errors.Join(errs...)
}

// maxUnclaimed is the most that one stream is handed before its worker claims some of it.
const maxUnclaimed = 256

// requestsPerWorkspace is how many requests of one workspace may be in.
func (s *limitSettings) requestsPerWorkspace() int {
	if s.LimitsRequestsPerWorkspace == 0 {
		return max(1, s.LimitsRequests/2)
	}
	return s.LimitsRequestsPerWorkspace
}

// streams are the limits of worker streams; the rest is left at its defaults.
func (s *limitSettings) streams() deliver.Limits {
	return deliver.Limits{
		MaxConnections:          s.TransportsHTTPPollMaxConnections,
		MaxWorkspaceConnections: s.TransportsHTTPPollMaxConnectionsPerWorkspace,
		MaxGroupConnections:     s.TransportsHTTPPollMaxConnectionsPerGroup,
		MaxExecutes:             min(s.TransportsHTTPPollBufferSize, maxUnclaimed),
	}
}

// otherFiles is how many files a process holds open besides clients' connections: those of its store, of connections to a
// database, of messages that it sends.
const otherFiles = 256

// connections is how many may be open besides streams: the setting's number, or what files leaves room for beyond the
// streams, but never less than a quarter of what there is. Every stream begins as such a connection, and so does every look at
// /ready: a server that is told of more streams than it can open must not be deaf.
func (s *limitSettings) connections(files int) int {
	available := max(1, files-otherFiles)
	room := max(1, available-s.TransportsHTTPPollMaxConnections, available/4)
	return min(room, s.LimitsConnections)
}

// openConnections is connections with what the system allows the process to open. It warns if that is too little.
func (s *limitSettings) openConnections(logger *slog.Logger) int {
	files, known := maxOpenFiles()
	if !known {
		return s.LimitsConnections
	}
	if wanted := otherFiles + s.TransportsHTTPPollMaxConnections + s.LimitsConnections; wanted > files {
		logger.Warn("the process may open fewer files than there may be connections and streams; raise its limit (ulimit -n, LimitNOFILE=)",
			"files", files, "wanted", wanted, "streams", s.TransportsHTTPPollMaxConnections, "connections", s.connections(files))
	}
	return s.connections(files)
}
