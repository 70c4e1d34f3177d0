package testenv

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Fate is what a Proxy does with a piece of what a client sends.
type Fate int

// The fates of a piece.
const (
	Pass      Fate = iota
	CutBefore      // the connection ends, and the server never gets the piece
	CutAfter       // the server gets the piece, and the connection ends at once
	CutAnswer      // the server gets the piece, and the connection ends when its answer comes, which the client does not get
	Swallow        // the server gets the piece; nothing more passes in either direction, and nobody is told
)

// Proxy is a TCP proxy between a client and a server that makes what networks do. All methods are safe for concurrent use.
type Proxy struct {
	// Address is where it listens, 127.0.0.1:PORT.
	Address string

	listener net.Listener
	mu       sync.Mutex
	target   string
	refuse   bool
	latency  time.Duration
	fate     func(piece []byte) Fate
	links    map[*link]struct{}
	accepted int
}

// link is one connection through a proxy.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	mu             sync.Mutex
	cutAnswer      bool
	stuck          bool
}

// NewProxy starts a proxy to a server at HOST:PORT, which ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: l.Addr().String(), listener: l, target: target, links: map[*link]struct{}{}}
	go p.accept()
	t.Cleanup(func() {
		_ = l.Close()
		p.Cut()
	})
	return p
}

// Target sends new connections to another server.
func (p *Proxy) Target(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = address
}

// Refuse makes the proxy end new connections at once, or stop doing so.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Latency delays what passes, each way by half of a round trip.
func (p *Proxy) Latency(roundTrip time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = roundTrip / 2
}

// Decide sets who decides on what clients send, piece by piece as it arrives; nil lets everything pass. A piece is
// mostly one request, but large ones come in several. fate may be called by several goroutines at once.
func (p *Proxy) Decide(fate func(piece []byte) Fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fate = fate
}

// Cut ends all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.end()
	}
}

// Stick stops all connections from passing anything, without a word to anybody. New ones pass.
func (p *Proxy) Stick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.mu.Lock()
		l.stuck = true
		l.mu.Unlock()
	}
}

// Accepted is how many connections have been made through the proxy.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target, refuse := p.target, p.refuse
		p.mu.Unlock()
		if refuse {
			_ = client.Close()
			continue
		}
		go p.connect(client, target)
	}
}

func (p *Proxy) connect(client net.Conn, target string) {
	server, err := net.Dial("tcp", target)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{proxy: p, client: client, server: server}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.accepted++
	p.mu.Unlock()
	go l.answers()
	l.requests()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (l *link) end() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// requests passes what the client sends.
func (l *link) requests() {
	defer l.end()
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buffer)
		if err != nil {
			return
		}
		l.proxy.mu.Lock()
		latency, decide := l.proxy.latency, l.proxy.fate
		l.proxy.mu.Unlock()
		time.Sleep(latency)
		fate := Pass
		if decide != nil {
			fate = decide(buffer[:n])
		}
		if fate == CutBefore {
			return
		}
		l.mu.Lock()
		stuck := l.stuck
		l.cutAnswer = l.cutAnswer || fate == CutAnswer
		l.stuck = l.stuck || fate == Swallow
		l.mu.Unlock()
		if stuck {
			continue
		}
		if _, err := l.server.Write(buffer[:n]); err != nil || fate == CutAfter {
			return
		}
	}
}

// answers passes what the server sends.
func (l *link) answers() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buffer)
		l.mu.Lock()
		cut, stuck := l.cutAnswer, l.stuck
		l.mu.Unlock()
		if stuck {
			if err != nil {
				return // the client is not told
			}
			continue
		}
		if err != nil || cut {
			l.end()
			return
		}
		l.proxy.mu.Lock()
		latency := l.proxy.latency
		l.proxy.mu.Unlock()
		time.Sleep(latency)
		if _, err := l.client.Write(buffer[:n]); err != nil {
			l.end()
			return
		}
	}
}
