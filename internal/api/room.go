package api

import (
	"crypto/tls"
	"io"
	"net"
)

// DefaultMaxConnections is how many connections may be open at once. An idle one takes some 10 KiB.
const DefaultMaxConnections = 16_384

// roomyListener accepts connections while the server has room for them.
type roomyListener struct {
	net.Listener
	server *Server
}

// Accept returns the next connection that there is room for; those before it are turned away.
func (l roomyListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.server.hasRoom() {
			return c, err
		}
		turnAway(c)
	}
}

// hasRoom tells whether one more connection may be open, and the log of the first that may not.
func (s *Server) hasRoom() bool {
	s.mu.Lock()
	limit, open := s.MaxConnections, s.open
	if limit <= 0 {
		limit = DefaultMaxConnections
	}
	news := open >= limit && !s.crowded
	s.crowded = open >= limit || s.crowded && open > limit-limit/10
	s.mu.Unlock()
	if news {
		s.log.Warn("as many connections are open as there may be; further ones are turned away", "limit", limit)
	}
	return open < limit
}

// turnedAway is the answer to who connects when there is no room.
const turnedAway = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: " + retryAfter +
	"\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 58\r\nConnection: close\r\n\r\n" +
	"The server has too many connections (limits.connections).\n"

// turnAway answers and closes a connection without waiting for anything: not for a handshake, nor for a request. What is
// written to a connection that has just been made fits into its buffer.
func turnAway(c net.Conn) {
	if _, encrypted := c.(*tls.Conn); !encrypted {
		_, _ = io.WriteString(c, turnedAway)
	}
	_ = c.Close()
}
