package api

import (
	"fmt"
	"net/http"
	"slices"
)

// cors decides which web pages may use the server. Without configured origins a page may neither read an
// answer nor post: anybody's page could otherwise change the data of a developer's local server.
type cors struct {
	origins    []string
	all        bool
	protection *http.CrossOriginProtection
}

func newCORS(origins []string) (*cors, error) {
	c := &cors{origins: origins, all: slices.Contains(origins, "*"), protection: http.NewCrossOriginProtection()}
	for _, origin := range origins {
		if origin == "*" {
			continue
		}
		if err := c.protection.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("CORS origin %q: it must be * or a scheme and a host as in https://example.com:8443, without a path: %w", origin, err)
		}
	}
	return c, nil
}

// check reports why a request must be refused: it comes from a web page of an origin that may not post.
func (c *cors) check(r *http.Request) error {
	if c.all {
		return nil
	}
	return c.protection.Check(r)
}

// Values of headers. Nobody writes to them once they are set.
var (
	anyValue = []string{"*"}
	vary     = []string{"origin, access-control-request-method, access-control-request-headers"}
	methods  = []string{"GET,POST,PUT,PATCH,DELETE,OPTIONS"}
	headers  = []string{"origin,content-length,content-type,authorization,traceparent,tracestate"}
)

// serve adds the headers of CORS and answers OPTIONS, on any path, if there are configured origins. True if
// the request is answered. (docs/protocol.md, Routes)
func (c *cors) serve(w http.ResponseWriter, r *http.Request) bool {
	if len(c.origins) == 0 {
		return false
	}
	h := w.Header()
	preflight := r.Method == http.MethodOptions
	h["Vary"] = vary
	if c.all {
		h["Access-Control-Allow-Origin"] = anyValue
		if preflight {
			h["Access-Control-Allow-Methods"] = anyValue
			h["Access-Control-Allow-Headers"] = anyValue
		} else {
			h["Access-Control-Expose-Headers"] = anyValue
		}
	} else {
		if origin := r.Header.Get("Origin"); slices.Contains(c.origins, origin) {
			h.Set("Access-Control-Allow-Origin", origin)
		}
		if preflight {
			h["Access-Control-Allow-Methods"] = methods
			h["Access-Control-Allow-Headers"] = headers
		}
	}
	if preflight {
		w.WriteHeader(http.StatusOK)
	}
	return preflight
}
