package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"abide/internal/journal"
)

// serverSettings are the settings that serve and dev share. Names, defaults and meanings are those of the
// reference server unless the help says otherwise. The `setting` tag is the setting's key, from which the
// name of its environment variable is made.
type serverSettings struct {
	fileSettings

	loggingSettings
	Debug bool `setting:"debug" help:"Allow debug.* requests and resonate:debug_time."`

	ServerHost            string       `setting:"server.host" default:"localhost" placeholder:"NAME" help:"Host name in the default of --server-url."`
	ServerPort            int          `setting:"server.port" default:"8001" placeholder:"PORT" help:"Port to listen on; 0 takes a free one and logs it."`
	ServerURL             string       `setting:"server.url" name:"server-url" placeholder:"URL" help:"Where workers reach this server, told to them in every message; by default http://HOST:PORT, or https:// with TLS."`
	ServerID              string       `setting:"server.id" name:"server-id" placeholder:"NAME" help:"Name of this server among those that share a store; it should be the same after a restart. By default HOSTNAME:PORT."`
	ServerShutdownTimeout milliseconds `setting:"server.shutdown_timeout" default:"10s" placeholder:"DURATION" help:"How long a stop waits for what is in flight before it gives up on it."`
	ServerCORSAllowOrigin []string     `setting:"server.cors.allow_origins" name:"server-cors-allow-origin" placeholder:"ORIGIN" sep:"," help:"Origin whose web pages may call the server, such as https://app.example, or *; repeatable."`

	tlsSettings
	authSettings
	storageSettings

	TasksRetryTimeout milliseconds `setting:"tasks.retry_timeout" default:"30s" placeholder:"DURATION" help:"How long after its delivery an unclaimed task is sent again."`
	TasksLeaseTimeout milliseconds `setting:"tasks.lease_timeout" default:"15s" placeholder:"DURATION" help:"Lease of tasks whose scripts the server itself runs (transports.bash_exec); renewed while they run."`

	TimeoutsPollInterval milliseconds `setting:"timeouts.poll_interval" default:"1s" placeholder:"DURATION" help:"Longest sleep between two looks for what is due. The server wakes for the next due entry anyway; this only bounds a missed wake-up."`
	MessagesPollInterval milliseconds `setting:"messages.poll_interval" default:"1s" placeholder:"DURATION" help:"Longest sleep between two looks for undelivered messages. Messages are sent when they are committed; this only bounds a missed wake-up."`
	MessagesBatchSize    int          `setting:"messages.batch_size" default:"100" placeholder:"N" help:"Accepted, without effect: the server sizes its reads itself."`

	JournalRetentionAge     milliseconds `setting:"journal.retention_age" default:"7d" placeholder:"DURATION" help:"How long entries of the journal, which records every change of state, are kept."`
	JournalRetentionEntries int          `setting:"journal.retention_entries" default:"1000000" placeholder:"N" help:"How many entries of the journal are kept for each workspace, whatever their age; about 100 bytes of disk each."`

	observabilitySettings
	limitSettings
	tracingSettings
	pushSettings
	transportSettings
}

// Limits of settings, checked at start.
const (
	maxBatchSize     = 1000
	maxServerIDBytes = 255
)

// Validate checks every setting that has a wrong value; kong calls it once all sources are read.
func (s *serverSettings) Validate() error {
	counts := []struct {
		flag            string
		value, min, max int
	}{
		{"server-port", s.ServerPort, 0, 65535},
		{"messages-batch-size", s.MessagesBatchSize, 1, maxBatchSize},
		{"journal-retention-entries", s.JournalRetentionEntries, 1, journal.MaxEntries},
	}
	for _, c := range counts {
		if c.value < c.min || c.value > c.max {
			return fmt.Errorf("--%s is %d: it must be from %d to %d", c.flag, c.value, c.min, c.max)
		}
	}
	spans := []struct {
		flag  string
		value milliseconds
	}{
		{"server-shutdown-timeout", s.ServerShutdownTimeout},
		{"tasks-retry-timeout", s.TasksRetryTimeout},
		{"tasks-lease-timeout", s.TasksLeaseTimeout},
		{"timeouts-poll-interval", s.TimeoutsPollInterval},
		{"messages-poll-interval", s.MessagesPollInterval},
		{"journal-retention-age", s.JournalRetentionAge},
	}
	for _, span := range spans {
		if span.value < 1 {
			return fmt.Errorf("--%s is 0: it must be at least 1 ms", span.flag)
		}
	}
	if err := errors.Join(s.tlsSettings.Validate(), s.authSettings.Validate(), s.storageSettings.Validate(), s.observabilitySettings.Validate(), s.limitSettings.Validate(), s.tracingSettings.Validate(), s.pushSettings.Validate(),
		s.transportSettings.validate(s.TasksLeaseTimeout)); err != nil {
		return err
	}
	return s.validateNames()
}

func (s *serverSettings) validateNames() error {
	if s.ServerURL != "" {
		if err := checkBaseURL(s.ServerURL); err != nil {
			return fmt.Errorf("--server-url: %w", err)
		}
	}
	if s.ServerHost == "" || strings.ContainsAny(s.ServerHost, "/ ?#@") {
		return fmt.Errorf("--server-host is %q: it must be a host name or an address; a whole URL goes into --server-url", s.ServerHost)
	}
	if len(s.ServerID) > maxServerIDBytes || strings.ContainsFunc(s.ServerID, unicode.IsControl) || !utf8.ValidString(s.ServerID) {
		return fmt.Errorf("--server-id is %.50q: it must be a name of at most %d bytes", s.ServerID, maxServerIDBytes)
	}
	for _, origin := range s.ServerCORSAllowOrigin {
		if err := checkOrigin(origin); err != nil {
			return fmt.Errorf("--server-cors-allow-origin: %w", err)
		}
	}
	return nil
}

// baseURL is where workers reach the server if it listens on port: without a slash at the end, since paths
// are appended.
func (s *serverSettings) baseURL(port int) string {
	if s.ServerURL != "" {
		return strings.TrimRight(s.ServerURL, "/")
	}
	scheme := "http://"
	if s.encrypts() {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(strings.Trim(s.ServerHost, "[]"), strconv.Itoa(port))
}

func checkBaseURL(text string) error {
	u, err := url.Parse(text)
	text = withoutPassword(text)
	switch of := (*url.Error)(nil); {
	case errors.As(err, &of):
		return fmt.Errorf("%q is not a URL: %w", text, of.Err)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fmt.Errorf("%q must begin with http:// or https:// and a host", text)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q must have no query and no fragment: paths are appended to it", text)
	}
	return nil
}

// checkOrigin refuses what a browser never sends as an Origin, since such an entry would silently match
// nothing.
func checkOrigin(origin string) error {
	if origin == "*" {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
		return fmt.Errorf("%q is not an origin: write scheme://host or scheme://host:port without a path, or *", origin)
	}
	return nil
}

// checkBind refuses what cannot be listened on before anything is opened. Brackets around an IPv6 address
// are allowed, as the reference's configurations have them.
func checkBind(bind string) error {
	return checkAddress("server-bind", "server-port", bind)
}

// checkAddress is checkBind for any flag; port is the flag of its port.
func checkAddress(flag, port, bind string) error {
	if bind == "" || strings.ContainsAny(bind, "/ ") {
		return fmt.Errorf("--%s is %q: it must be an address or a host name, such as :: or 127.0.0.1", flag, bind)
	}
	if host := strings.Trim(bind, "[]"); strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return fmt.Errorf("--%s is %q: the port goes into --%s", flag, bind, port)
	}
	return nil
}

// checkDataFile refuses the spellings that SQLite itself would take for something else than a file.
func checkDataFile(path string) error {
	if path == "" || path == ":memory:" || strings.HasPrefix(path, "file:") {
		return fmt.Errorf("--storage-sqlite-path is %q: it must be the path of a file; for data that is gone afterwards use abide dev --ephemeral", path)
	}
	return nil
}

// logLevel is the least severe level that is logged.
type logLevel slog.Level

// logOff is above every level that is used.
const logOff = slog.Level(1000)

// UnmarshalText parses a level's name; kong calls it.
func (l *logLevel) UnmarshalText(text []byte) error {
	levels := map[string]slog.Level{
		"trace": slog.LevelDebug, // the reference has one level more
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError, "off": logOff,
	}
	level, ok := levels[strings.ToLower(string(text))]
	if !ok {
		return fmt.Errorf("%q is not a level: use debug, info, warn, error or off", text)
	}
	*l = logLevel(level)
	return nil
}
