package webhook

import (
	"context"
	"fmt"
	"net/url"
	"sync"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials/idtoken"

	"abide/internal/push"
)

// maxAudiences bounds the credentials that are kept: clients name the addresses that audiences are made of.
const maxAudiences = 256

// idTokens mints Google's ID tokens with the application default credentials. Each audience has a credential of its own,
// which keeps its token until that is about to end. Safe for concurrent use.
type idTokens struct {
	mu    sync.Mutex
	kept  map[string]*auth.Credentials
	order []string // as they were made
}

// token is a token for an audience.
func (i *idTokens) token(ctx context.Context, audience string) (string, error) {
	c, err := i.credentials(audience)
	if err != nil {
		return "", err
	}
	t, err := c.Token(ctx)
	if err != nil {
		return "", err
	}
	return t.Value, nil
}

func (i *idTokens) credentials(audience string) (*auth.Credentials, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if c := i.kept[audience]; c != nil {
		return c, nil
	}
	c, err := idtoken.NewCredentials(&idtoken.Options{Audience: audience})
	if err != nil {
		return nil, err
	}
	if i.kept == nil {
		i.kept = map[string]*auth.Credentials{}
	}
	if len(i.order) == maxAudiences {
		delete(i.kept, i.order[0])
		i.order = i.order[1:]
	}
	i.kept[audience] = c
	i.order = append(i.order, audience)
	return c, nil
}

// audienceOf is what a token for a URL is made for unless the settings say: the URL, without what is nobody's business.
func audienceOf(u *url.URL) string {
	bare := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return bare.String()
}

// mint is a token, or a refusal: nothing is sent without the credential that was asked for.
func (t *Transport) mint(ctx context.Context, u *url.URL) (string, error) {
	audience := t.options.Audience
	if audience == "" {
		audience = audienceOf(u)
	}
	token, err := t.options.IDToken(ctx, audience)
	if err == nil && token == "" {
		err = fmt.Errorf("it is empty")
	}
	if err != nil {
		return "", fmt.Errorf("%w: no ID token for the destination: %w", push.ErrRefused, err)
	}
	return token, nil
}
