package pgkv

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// connectTimeout bounds the making of a connection unless the URL has a connect_timeout.
	connectTimeout = 5 * time.Second
	// keepAlive is how soon a connection whose other end has gone is noticed while nothing is sent.
	keepAlive = 15 * time.Second
	// maxConnections is the largest pool that a URL may ask for.
	maxConnections = 1000
)

// parseURL reads a connection URL, or keywords and values, as libpq does, with what PG* variables and the service
// and password files add. pool is its pool_max_conns, 0 if it has none.
func parseURL(raw string) (config *pgconn.Config, pool int, err error) {
	if strings.TrimSpace(raw) == "" {
		return nil, 0, fmt.Errorf("postgres: no URL: give one like postgres://user:password@host:5432/database")
	}
	config, err = pgconn.ParseConfig(raw)
	if err != nil && strings.Contains(raw, "://") {
		config, err = pgconn.ParseConfig(escapeUser(raw))
	}
	if err != nil {
		return nil, 0, fmt.Errorf("postgres: the URL cannot be read; write characters that have a meaning in URLs as %%XX: %w", err)
	}
	for name := range config.RuntimeParams {
		if !strings.HasPrefix(name, "pool_") {
			continue
		}
		if name == "pool_max_conns" {
			if pool, err = strconv.Atoi(config.RuntimeParams[name]); err != nil || pool < 1 || pool > maxConnections {
				return nil, 0, fmt.Errorf("postgres: pool_max_conns must be 1 to %d", maxConnections)
			}
		}
		delete(config.RuntimeParams, name) // they are meant for the client, and the server would refuse them
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "abide"
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.ValidateConnect == nil && severalHosts(config) {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	config.DialFunc = (&net.Dialer{KeepAlive: keepAlive, Timeout: config.ConnectTimeout}).DialContext
	return config, pool, nil
}

// severalHosts reports whether a URL names more than one server: then the one that can be written is meant.
func severalHosts(c *pgconn.Config) bool {
	for _, f := range c.Fallbacks {
		if f.Host != c.Host || f.Port != c.Port {
			return true
		}
	}
	return false
}

// escapeUser escapes in the user and password of a URL what URLs do not allow there, such as brackets: passwords
// are pasted as they are.
func escapeUser(raw string) string {
	scheme, rest, _ := strings.Cut(raw, "://")
	hostAndMore := rest
	at := strings.LastIndexByte(beforeQuery(rest), '@')
	if at < 0 {
		return raw
	}
	user, password, hasPassword := strings.Cut(rest[:at], ":")
	hostAndMore = rest[at+1:]
	escaped := escapePart(user)
	if hasPassword {
		escaped += ":" + escapePart(password)
	}
	return scheme + "://" + escaped + "@" + hostAndMore
}

// beforeQuery is the part of a URL before a query that names a parameter.
func beforeQuery(rest string) string {
	if i := strings.LastIndexByte(rest, '?'); i >= 0 && strings.Contains(rest[i:], "=") && !strings.Contains(rest[i:], "@") {
		return rest[:i]
	}
	return rest
}

// escapePart escapes a user or a password that may be escaped in parts.
func escapePart(part string) string {
	if plain, err := url.PathUnescape(part); err == nil {
		part = plain
	}
	return strings.ReplaceAll(url.QueryEscape(part), "+", "%20")
}
