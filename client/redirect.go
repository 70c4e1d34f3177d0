package client

import (
	"fmt"
	"net/http"
)

// stay keeps a request where it was sent. The token is in the body as well, where net/http does not see it: a redirect 307 or 308
// would carry it to whatever host, or from https to http.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// staying is h without redirects, unless it has rules of its own for them.
func staying(h *http.Client) *http.Client {
	if h.CheckRedirect != nil {
		return h
	}
	own := *h
	own.CheckRedirect = stay
	return &own
}

// redirected is the error of an answer that sends the client elsewhere; nil for any other.
func redirected(answer *http.Response) error {
	switch answer.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil
	}
	to := "nowhere"
	if u, err := answer.Location(); err == nil {
		to = u.Scheme + "://" + u.Host + u.Path // a query may be a secret
	}
	return fmt.Errorf("the server answers %d and sends requests to %s; they are not sent there, since they hold the token: make that the server's URL if it is right", answer.StatusCode, to)
}
