package conform

import (
	"bytes"
	"fmt"
	"net/http"

	"abide/protocol"
)

func checkHTTP(p *probe) {
	plain := func(check, method, path string, want int) {
		status, body, err := p.method(method, p.base+path)
		p.row(check, fmt.Sprint(want), err == nil && status == want, fmt.Sprintf("%d %q %v", status, clip(string(body), 200), err))
	}
	plain("GET /health", http.MethodGet, "/health", http.StatusOK)
	plain("GET /ready", http.MethodGet, "/ready", http.StatusOK)
	plain("GET / is not the method", http.MethodGet, "/", http.StatusMethodNotAllowed)
	plain("an unknown path", http.MethodGet, "/no-such-path", http.StatusNotFound)
	plain("promises of old SDKs", http.MethodGet, "/promises", http.StatusGone)
	plain("a promise of old SDKs", http.MethodPost, "/promises/x", http.StatusGone)
	plain("schedules of old SDKs", http.MethodGet, "/schedules/x", http.StatusGone)
	plain("tasks of old SDKs", http.MethodPost, "/tasks/claim", http.StatusGone)
	large := p.post(bytes.Repeat([]byte(" "), protocol.MaxBodyBytes+1))
	p.row("a body beyond 2 MiB", "413", large.err == nil && large.status == http.StatusRequestEntityTooLarge, large.String())
}

func checkEnvelope(p *probe) {
	const good = `"head":{"corrId":"e","version":"` + protocol.Version + `"}`
	for _, c := range []struct {
		check, body  string
		kind, corrID string // echoed
		status       int
	}{
		{"an empty body", ``, "unknown", "0", 400},
		{"no JSON", `{"kind":`, "unknown", "0", 400},
		{"an array", `[]`, "unknown", "0", 400},
		{"no head", `{"kind":"promise.get","data":{"id":"x"}}`, "promise.get", "0", 400},
		{"no kind", `{` + good + `,"data":{}}`, "unknown", "e", 400},
		{"no data", `{"kind":"promise.get",` + good + `}`, "promise.get", "e", 400},
		{"no version", `{"kind":"promise.get","head":{"corrId":"e"},"data":{"id":"x"}}`, "promise.get", "e", 400},
		{"no corrId", `{"kind":"promise.get","head":{"version":"` + protocol.Version + `"},"data":{"id":"x"}}`, "promise.get", "0", 400},
		{"a kind that is no text", `{"kind":1,` + good + `,"data":{}}`, "unknown", "e", 400},
		{"an empty kind", `{"kind":"",` + good + `,"data":{}}`, "", "e", 400},
		{"data that is no object", `{"kind":"promise.get",` + good + `,"data":[]}`, "promise.get", "e", 400},
		{"another version", `{"kind":"promise.get","head":{"corrId":"e","version":"2020-01-01"},"data":{"id":"x"}}`, "promise.get", "e", 400},
		{"an unknown kind", `{"kind":"promise.dance",` + good + `,"data":{}}`, "promise.dance", "e", 400},
		{"a missing member", `{"kind":"promise.get",` + good + `,"data":{}}`, "promise.get", "e", 400},
		{"a member of another type", `{"kind":"promise.get",` + good + `,"data":{"id":1}}`, "promise.get", "e", 400},
		{"a null where none may be", `{"kind":"promise.create",` + good + `,"data":{"id":"x","timeoutAt":1,"tags":null}}`, "promise.create", "e", 400},
		{"a number with a fraction", `{"kind":"promise.create",` + good + `,"data":{"id":"x","timeoutAt":1.5}}`, "promise.create", "e", 400},
		{"a number beyond 64 bits", `{"kind":"promise.create",` + good + `,"data":{"id":"x","timeoutAt":9223372036854775808}}`, "promise.create", "e", 400},
		{"a member twice", `{"kind":"promise.get","kind":"promise.get",` + good + `,"data":{"id":"x"}}`, "promise.get", "e", 400},
		{"unknown members do no harm", `{"extra":1,"kind":"promise.get",` + good + `,"data":{"id":"` + p.config.Prefix + `.none","more":[]}}`, "promise.get", "e", 404},
	} {
		p.judge(c.check, p.post([]byte(c.body)), c.kind, c.corrID, c.status)
	}
}
