package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	// fetchTimeout is for one fetch of a key set.
	fetchTimeout = 10 * time.Second
	// maxRedirects is how many redirects a fetch follows.
	maxRedirects = 3
	// maxKeyFileBytes bounds a file of keys; a key set may be as large as one that is fetched.
	maxKeyFileBytes = MaxJWKSBytes
)

// source is one place that keys come from. It keeps the last good set. Only one goroutine loads it.
type source struct {
	name  string // for messages: its setting and its value
	read  func(ctx context.Context) ([]byte, error)
	parse func([]byte) (*KeySet, error)
	far   bool // it is fetched: not looked at more often than need be

	text []byte
	set  *KeySet
	// After a failure: how many in a row.
	failures int
}

// load reads the source again. changed is whether the keys may be others than before; on an error the last good
// ones stay.
func (s *source) load(ctx context.Context) (changed bool, err error) {
	text, err := s.read(ctx)
	if err == nil && s.set != nil && bytes.Equal(text, s.text) {
		s.failures = 0
		return false, nil
	}
	var set *KeySet
	if err == nil {
		set, err = s.parse(text)
	}
	if err != nil {
		s.failures++
		return false, fmt.Errorf("%s: %w", s.name, err)
	}
	s.text, s.set, s.failures = text, set, 0
	return true, nil
}

// fileSource reads keys from a file: PEM, or a JSON Web Key Set, told apart by the first character.
func fileSource(setting, path string) *source {
	return &source{
		name: setting + " " + path,
		read: func(context.Context) ([]byte, error) { return readFile(path) },
		parse: func(text []byte) (*KeySet, error) {
			if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
				return ParseJWKS(text)
			}
			return ParsePEM(text)
		},
	}
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, errors.New("there is no such file")
	case err != nil:
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	return readAtMost(f, maxKeyFileBytes)
}

func readAtMost(r io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, fmt.Errorf("it is larger than %d bytes", limit)
	}
	return text, err
}

// urlSource fetches a key set. Whoever can change what is fetched can make tokens, so it must come over TLS, except
// from this machine.
func urlSource(setting, address string, client *http.Client) (*source, error) {
	if err := CheckJWKS(address); err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	fetcher := *client
	fetcher.Timeout = fetchTimeout
	fetcher.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects || !fetchable(r.URL) {
			return errors.New("it redirects too often, or away from https")
		}
		return nil
	}
	return &source{
		name:  setting + " " + u.Redacted(),
		far:   true,
		parse: ParseJWKS,
		read:  func(ctx context.Context) ([]byte, error) { return fetch(ctx, &fetcher, address) },
	}, nil
}

// CheckJWKS checks a value of Options.JWKS as far as it can be without the network: a URL that keys may not be fetched from
// is an error.
func CheckJWKS(value string) error {
	if !isURL(value) {
		return nil
	}
	if u, err := url.Parse(value); err != nil || !fetchable(u) {
		return errors.New("it must be a path, or a URL that begins with https:// (http:// for loopback addresses alone), without a user")
	}
	return nil
}

// fetchable reports whether keys may be fetched from u.
func fetchable(u *url.URL) bool {
	if u.Host == "" || u.User != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || (u.Scheme == "http" && (u.Hostname() == "localhost" || (ip != nil && ip.IsLoopback())))
}

func fetch(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it was answered %s", response.Status)
	}
	return readAtMost(response.Body, MaxJWKSBytes)
}

// isURL tells an address from a path.
func isURL(text string) bool { return strings.Contains(text, "://") }
