package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"abide/protocol"
)

// endpoint is what a path leads to.
type endpoint int

const (
	endpointNone     endpoint = iota
	endpointProtocol          // POST on the base URL
	endpointPoll              // GET poll/{group}/{id}
	endpointHealth            // GET health
	endpointReady             // GET ready
	endpointLegacy            // what SDKs up to 2025 called: promises, schedules, tasks and all below
)

// route is a path understood.
type route struct {
	endpoint  endpoint
	workspace string
	group, id string // of endpointPoll
	legacy    string // of endpointLegacy: promises, schedules or tasks
}

// methods lists what an endpoint accepts; nil if it does not matter.
func (r route) methods() []string {
	switch r.endpoint {
	case endpointProtocol:
		return postOnly
	case endpointPoll:
		return getOnly
	case endpointHealth, endpointReady:
		return getAndHead
	default:
		return nil
	}
}

var (
	postOnly   = []string{http.MethodPost}
	getOnly    = []string{http.MethodGet}
	getAndHead = []string{http.MethodGet, http.MethodHead}
)

// parseRoute understands a path that is still percent-encoded. The error is for a 400: a workspace, group or
// worker that cannot be one.
func parseRoute(path string) (route, error) {
	r := route{workspace: DefaultWorkspace}
	rest := strings.TrimLeft(path, "/")
	if rest == "" {
		// The usual case, and the one that SDKs reach with and without a slash.
		r.endpoint = endpointProtocol
		return r, nil
	}
	if after, ok := strings.CutPrefix(rest, "w/"); ok {
		name, below, _ := strings.Cut(after, "/")
		if name == "" {
			return r, nil
		}
		var err error
		if r.workspace, err = workspaceName(name); err != nil {
			return r, err
		}
		rest = strings.TrimLeft(below, "/")
	}
	first, below, slash := strings.Cut(rest, "/")
	switch {
	case rest == "":
		r.endpoint = endpointProtocol
	case rest == "health":
		r.endpoint = endpointHealth
	case rest == "ready":
		r.endpoint = endpointReady
	case first == "poll" && slash:
		return r.poll(below)
	case first == "promises" || first == "schedules" || first == "tasks":
		if !slash || below != "" {
			r.endpoint, r.legacy = endpointLegacy, first
		}
	}
	return r, nil
}

// poll understands {group}/{id}. The id may hold slashes, written as such or encoded.
func (r route) poll(path string) (route, error) {
	group, id, _ := strings.Cut(path, "/")
	if group == "" || id == "" {
		return r, nil
	}
	var err error
	if r.group, err = segment(group, "group"); err != nil {
		return r, err
	}
	if r.id, err = segment(id, "worker id"); err != nil {
		return r, err
	}
	r.endpoint = endpointPoll
	return r, nil
}

// segment decodes a name from a path, once.
func segment(s, what string) (string, error) {
	name, err := url.PathUnescape(s)
	switch {
	case err != nil || !utf8.ValidString(name):
		return "", fmt.Errorf("the %s in the path is not percent-encoded UTF-8", what)
	case len(name) > protocol.MaxAddressBytes:
		return "", fmt.Errorf("the %s in the path is %d bytes long, the limit is %d (MaxAddressBytes)", what, len(name), protocol.MaxAddressBytes)
	}
	return name, nil
}

// workspaceName checks the name of a workspace: 1 to protocol.MaxWorkspaceBytes letters, digits, dots,
// underscores and hyphens of ASCII, a letter or digit first. Those are the characters that no client and no
// proxy encodes, and no name can be mistaken for a dot segment.
func workspaceName(s string) (string, error) {
	name, err := url.PathUnescape(s)
	ok := err == nil && len(name) > 0 && len(name) <= protocol.MaxWorkspaceBytes && name[0] != '.' && name[0] != '_' && name[0] != '-'
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if !ok {
		return "", errors.New("a workspace is named with 1 to 64 of the characters a-z A-Z 0-9 . _ - and begins with a letter or a digit")
	}
	return name, nil
}
