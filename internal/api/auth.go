package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"
	"time"

	"abide/internal/auth"
	"abide/protocol"
)

// Auth makes a Handler ask for a token with every request of the protocol and every stream. /health, /ready and the
// answers of removed endpoints need none. (docs/auth.md)
type Auth struct {
	Verifier Verifier
	Policy   auth.Policy
	// Now is the clock of the log, which tells of each reason for a refusal once a minute: time.Now.
	Now func() time.Time
}

// Verifier tells what the bearer of a token may claim; auth.Verifier is one. It is called from many goroutines at once.
type Verifier interface {
	Verify(ctx context.Context, token string) (*auth.Claims, *auth.Refusal)
}

// refusalInterval is how long the log is silent about a reason after it has told of it.
const refusalInterval = time.Minute

// tally counts refusals.
type tally struct {
	mu     sync.Mutex
	counts map[auth.Reason]uint64
	told   map[auth.Reason]told
}

// told is what the log has said of a reason.
type told struct {
	at    time.Time
	count uint64
}

// add counts a refusal. news is how many there have been since the log last told of the reason; 0 while it is to
// be silent.
func (t *tally) add(reason auth.Reason, now time.Time) (news uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts, t.told = map[auth.Reason]uint64{}, map[auth.Reason]told{}
	}
	t.counts[reason]++
	last, ok := t.told[reason]
	if ok && now.Sub(last.at) < refusalInterval {
		return 0
	}
	t.told[reason] = told{now, t.counts[reason]}
	return t.counts[reason] - last.count
}

// Refusals counts the requests and streams that were refused for want of a good token or of a right, by reason. The
// caller owns the map.
func (h *Handler) Refusals() map[auth.Reason]uint64 {
	h.refusals.mu.Lock()
	defer h.refusals.mu.Unlock()
	counts := make(map[auth.Reason]uint64, len(h.refusals.counts))
	for reason, n := range h.refusals.counts {
		counts[reason] = n
	}
	return counts
}

// noteRefusal counts a refusal and tells the log of it now and then: never with the token or anything that it claims.
func (h *Handler) noteRefusal(r *http.Request, refusal *auth.Refusal, workspace, kind string) {
	news := h.refusals.add(refusal.Reason, h.o.Auth.Now())
	if news == 0 {
		return
	}
	if kind != pollKind && !protocol.Known(kind) {
		kind = "unknown"
	}
	h.o.Log.Warn("refused", "reason", string(refusal.Reason), "kind", kind, "workspace", workspace, "client", r.RemoteAddr, "times", news)
}

// pollKind stands for a stream in the log, where requests have their kind.
const pollKind = "poll"

// authenticate tells what the bearer of a request claims. The token is in the envelope, which is where the reference
// server looks for it, or in the Authorization header; in both it must be the same, since whatever stands in front of the
// server may have looked at one of them.
func (h *Handler) authenticate(r *http.Request, inEnvelope string) (*auth.Claims, *auth.Refusal) {
	token, ok := bearer(r.Header["Authorization"])
	switch {
	case !ok || (token != "" && inEnvelope != "" && token != inEnvelope):
		return nil, &auth.Refusal{Status: protocol.StatusUnauthorized, Reason: auth.ReasonAmbiguous}
	case token == "":
		token = inEnvelope
	}
	return h.o.Auth.Verifier.Verify(r.Context(), token)
}

// bearer is the token in Authorization headers; empty if they hold none. Not ok if there are several. Besides a bearer's
// token it takes one as the password of Basic: the Go SDK has no way to send a header with its poll, and sends the user and
// password of its URL.
func bearer(headers []string) (token string, ok bool) {
	if len(headers) == 0 {
		return "", true
	}
	scheme, rest, _ := strings.Cut(headers[0], " ")
	rest = strings.Trim(rest, " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		token = rest
	case strings.EqualFold(scheme, "Basic"):
		if pair, err := base64.StdEncoding.DecodeString(rest); err == nil {
			// Another password is for whatever stands in front of the server.
			if _, password, _ := strings.Cut(string(pair), ":"); strings.Count(password, ".") == 2 {
				token = password
			}
		}
	}
	return token, len(headers) == 1
}

// admit authenticates a request and judges its workspace and kind. Without Options.Auth the claims are nil.
func (h *Handler) admit(r *http.Request, workspace string, env *protocol.Envelope) (*auth.Claims, *auth.Refusal) {
	if h.o.Auth == nil {
		return nil, nil
	}
	claims, refusal := h.authenticate(r, env.Auth)
	if refusal == nil {
		refusal = h.o.Auth.Policy.Enter(claims, workspace, env.Kind)
	}
	if refusal != nil {
		h.noteRefusal(r, refusal, workspace, env.Kind)
	}
	return claims, refusal
}

// judge judges a decoded request of an admitted bearer, and bounds it to what the bearer may see.
func (h *Handler) judge(r *http.Request, workspace string, claims *auth.Claims, req protocol.Request) *auth.Refusal {
	if h.o.Auth == nil {
		return nil
	}
	if refusal := h.o.Auth.Policy.Request(claims, req); refusal != nil {
		h.noteRefusal(r, refusal, workspace, string(req.Kind()))
		return refusal
	}
	h.o.Auth.Policy.Limit(claims, req)
	return nil
}

// trim takes out of a reply what the bearer may not see.
func (h *Handler) trim(claims *auth.Claims, reply protocol.Reply) protocol.Reply {
	if h.o.Auth == nil {
		return reply
	}
	return h.o.Auth.Policy.Trim(claims, reply)
}

// admitWorker authenticates a worker that asks for its stream, and judges its group. False if it has been refused, and
// answered.
func (h *Handler) admitWorker(w http.ResponseWriter, r *http.Request, worker *Worker) bool {
	if h.o.Auth == nil {
		return true
	}
	claims, refusal := h.authenticate(r, "")
	if refusal == nil {
		refusal = h.o.Auth.Policy.Listen(claims, worker.Workspace, worker.Group)
	}
	if refusal != nil {
		h.noteRefusal(r, refusal, worker.Workspace, pollKind)
		challenge(w, refusal.Status)
		plain(w, refusal.Status, refusal.Message())
		return false
	}
	// Messages for a whole workspace are as if they were for a group of its name.
	worker.GroupOnly = !h.o.Auth.Policy.Group(claims, worker.Workspace)
	return true
}

// challenge says in the answer to a request without a good token what to come with. (RFC 9110, 11.6.1)
func challenge(w http.ResponseWriter, status int) {
	if status == protocol.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
}

// refuse is the reply to a refused request.
func refuse(refusal *auth.Refusal) protocol.Reply {
	return protocol.Fail(refusal.Status, refusal.Message())
}
