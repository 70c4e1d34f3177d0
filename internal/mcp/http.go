package mcp

import (
	"net/http"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxBodyBytes bounds one message over HTTP: a payload of our protocol's size, escaped.
const maxBodyBytes = 8 << 20

// Handler serves MCP's streamable HTTP on one path. A caller's bearer token is passed on to the server of the promises;
// who brings none acts with Options.Token.
//
// There are no sessions: without notifications nothing needs one, and whoever can reach the address could begin them
// without end, since it is the server of the promises that looks at tokens.
//
// Web pages are kept out: a request that names an Origin is refused unless that is listed, and one that reaches a
// loopback address under another host name is refused as well, which is what a page does whose name was made to
// resolve to this machine. The error names a URL that is none.
func Handler(o Options, origins []string) (http.Handler, error) {
	s, err := newServer(o, nil)
	if err != nil {
		return nil, err
	}
	built := s.build()
	inner := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return built },
		&sdk.StreamableHTTPOptions{Logger: s.o.Log, Stateless: true, MaxRequestBodyBytes: maxBodyBytes})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origin := r.Header.Get("Origin"); origin != "" {
			if !slices.Contains(origins, origin) {
				http.Error(w, "Refused: this request comes from a web page; allow its origin with --allow-origin", http.StatusForbidden)
				return
			}
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", origin)
			h.Add("Vary", "Origin")
			h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id")
			if r.Method == http.MethodOptions {
				h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
				h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-Id, Mcp-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name")
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		inner.ServeHTTP(w, r)
	}), nil
}
