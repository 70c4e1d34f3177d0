// Package bench is the load runner behind abide bench: it drives a server over real sockets with a fixed
// number of clients, each of which starts its next operation when the last one has ended (a closed loop),
// and reports how many it did, how long each took, and what that cost the server. It counts and times; it
// asserts nothing, so a run never fails because a machine is slow.
//
// The runner shares its machine with the server, so it is lean: one persistent connection per client,
// requests appended into a kept buffer, answers read with the least HTTP that does, no allocation per
// request.
//
// An own server is a child process of the same binary with production settings on a temporary file, so that
// its CPU time and memory are the server's alone.
package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Mode is what one operation consists of.
type Mode string

// The modes. Latency is that of the whole operation, but for Dispatch and Workflow as said there.
const (
	// Noop posts an unknown kind: the floor that HTTP and JSON set. Its 400 is the expected answer.
	Noop Mode = "noop"
	// Create creates an untargeted promise.
	Create Mode = "create"
	// Get reads one of the preloaded promises, at random.
	Get Mode = "get"
	// Lifecycle creates a promise and settles it.
	Lifecycle Mode = "lifecycle"
	// Dispatch creates a targeted promise, waits for its execute message on the client's stream, acquires
	// the task and fulfils it. Its latency ends when the message is received.
	Dispatch Mode = "dispatch"
	// Workflow creates a targeted parent, waits, acquires it, creates a targeted child under its fence,
	// suspends it, waits, acquires and fulfils the child, waits for the parent to be resumed, acquires it again and
	// fulfils it. Its latency ends with that last answer.
	Workflow Mode = "workflow"
)

// Modes lists every mode in the order of growing work.
func Modes() []Mode { return []Mode{Noop, Create, Get, Lifecycle, Dispatch, Workflow} }

// Limits of a Config.
const (
	// MaxClients bounds Config.Clients: each holds one connection, and a second one for messages.
	MaxClients = 10_000
	// MaxSizeBytes bounds Config.SizeBytes, so that a request stays below the protocol's largest body.
	MaxSizeBytes = 1 << 20
	// MaxPreload bounds Config.Preload.
	MaxPreload = 100_000_000
)

const (
	operationTimeout = 30 * time.Second // of one operation, a wait for its messages included
	readyTimeout     = 60 * time.Second // until the server must be ready
	stopTimeout      = 30 * time.Second // until an own server that was told to stop is killed
	endGrace         = 10 * time.Second // for operations in flight when the time is over: a busy disk may need seconds
	defaultGetSet    = 1000             // promises that Get makes for itself if none are preloaded
	preloaders       = 64               // clients that preload, so that commits are shared
)

// Config says what to run. The zero value is not valid.
type Config struct {
	Mode    Mode
	Clients int           // 1 to MaxClients
	For     time.Duration // measured time, above 0
	Warmup  time.Duration // before it, not measured; 0 or more
	// SizeBytes is the length of each param's and value's data, 0 to MaxSizeBytes.
	SizeBytes int
	// Seed fixes the payload and the random choices of Get. Ids are unique to each run whatever the seed is.
	Seed uint64
	// Preload is how many promises are created and settled before the warmup, 0 to MaxPreload.
	Preload int
	// URL is the base URL of the server to measure; a path in it names a workspace. Empty starts an own one.
	URL string
	// Token is sent with every request, to a server that asks for tokens; empty for none.
	Token string
	// Patient clients wait as long as the Retry-After of an answer tells them, at most five seconds, as the Go client does;
	// SDKs of other languages do not.
	Patient bool
	// MetricsURL is where the server of URL shows its metrics; empty if that is not known. An own server's is known.
	MetricsURL string
	// Own says how an own server is started; unused with a URL.
	Own OwnServer
	// EngineCommit, if not nil, commits one row in the server's storage engine without the server, durably; it is
	// called by one goroutine. It is timed before the run and after it.
	EngineCommit func(ctx context.Context) error
	// Progress is told in a few words what is going on, at most once a second, from one goroutine at a time;
	// nil says nothing.
	Progress func(text string)
}

// OwnServer says how to start a server of one's own.
type OwnServer struct {
	// Binary is the abide binary.
	Binary string
	// Environ is the child's whole environment. It should hold no settings: production's defaults are what
	// is measured.
	Environ []string
	// Storage are the flags that say which database the server runs on; none for a new file in Folder.
	Storage []string
	// Flags are further flags of the server.
	Flags []string
	// Folder is where the temporary data folder is made; it must be on a real disk, or a sync costs nothing
	// and the run says nothing.
	Folder string
}

// Validate says what is wrong with c, nil if nothing is.
func (c Config) Validate() error {
	switch {
	case !slices.Contains(append(Modes(), PushModes()...), c.Mode):
		return fmt.Errorf("unknown mode %q: use one of %s", c.Mode, ModeNames())
	case c.Clients < 1 || c.Clients > MaxClients:
		return fmt.Errorf("%d clients: use 1 to %d", c.Clients, MaxClients)
	case c.For <= 0:
		return errors.New("the measured time must be longer than 0")
	case c.Warmup < 0:
		return errors.New("the warmup must not be negative")
	case c.SizeBytes < 0 || c.SizeBytes > MaxSizeBytes:
		return fmt.Errorf("a payload of %d bytes: use 0 to %d", c.SizeBytes, MaxSizeBytes)
	case c.Preload < 0 || c.Preload > MaxPreload:
		return fmt.Errorf("a preload of %d: use 0 to %d", c.Preload, MaxPreload)
	case !isToken(c.Token):
		return errors.New("the token has characters that no token has")
	case c.URL != "":
		_, err := parseTarget(c.URL)
		return err
	case c.Own.Binary == "" || c.Own.Folder == "":
		return errors.New("neither a URL nor an own server to measure")
	}
	return nil
}

// isToken tells whether text can stand in a header's line.
func isToken(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7F })
}

// ModeNames lists the modes for a person.
func ModeNames() string {
	names := make([]string, 0, len(Modes()))
	for _, m := range append(Modes(), PushModes()...) {
		names = append(names, string(m))
	}
	return strings.Join(names, ", ")
}

// target is where requests go.
type target struct {
	url     string // as given, without a slash at the end
	address string // host:port
	host    string // the Host header
	path    string // of the base URL, without a slash at the end
	tls     bool
	token   string // empty: none is sent
}

// authorization is the header line that carries the token, with the end of the line before it; empty without one.
func (t target) authorization() string {
	if t.token == "" {
		return ""
	}
	return "\r\nAuthorization: Bearer " + t.token
}

// at is t with path in the place of its own.
func (t target) at(path string) target {
	t.url, t.path = strings.TrimSuffix(t.url, t.path)+path, path
	return t
}

func parseTarget(text string) (target, error) {
	u, err := url.Parse(text)
	if err != nil {
		return target{}, fmt.Errorf("%q is not a URL: %w", text, err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return target{}, fmt.Errorf("%q must begin with http:// or https:// and a host", text)
	}
	t := target{
		url:  strings.TrimRight(text, "/"),
		host: u.Host,
		path: strings.TrimRight(u.EscapedPath(), "/"),
		tls:  u.Scheme == "https",
	}
	port := u.Port()
	switch {
	case port == "" && t.tls:
		port = "443"
	case port == "":
		port = "80"
	}
	t.address = net.JoinHostPort(u.Hostname(), port)
	return t, nil
}
