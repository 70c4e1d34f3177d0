package api

import (
	"log/slog"
	"net/http"
	"time"
)

// Times that an HTTP connection has. An idle one may stay for ever: SDKs pool their sockets, and one that the
// server closes at the wrong moment is a failed request there.
const (
	// headerTimeout is for the head of a request, from its first byte.
	headerTimeout = 10 * time.Second
	// readTimeout is for a whole request, head and body.
	readTimeout = 20 * time.Second
	// writeTimeout is for a request from its head to the end of its answer: reading the body, the engine's
	// time, and a client that is slow to read. Streams set their own deadline for each write.
	writeTimeout = 60 * time.Second
	// maxHeaderBytes is enough for tokens of every sort.
	maxHeaderBytes = 64 << 10
)

// NewServer returns an HTTP server for h with the timeouts that keep slow and silent clients from holding
// it up. What net/http has to say about connections goes to log as debug messages: it is about clients.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       -1, // zero would mean ReadTimeout
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
