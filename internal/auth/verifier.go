package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// MaxTokenBytes is the longest token that is looked at.
const MaxTokenBytes = 8 << 10

// Defaults of Options.
const (
	// DefaultLeeway is how far the clock of whoever makes tokens may be off. It is the reference server's.
	DefaultLeeway = 60 * time.Second
	// DefaultRefresh is how often a key set is fetched.
	DefaultRefresh = 5 * time.Minute
	// MaxLeeway is the largest leeway: beyond it an expiry means nothing.
	MaxLeeway = time.Hour
)

// Unsigned as Options.PublicKey accepts tokens without looking at their signatures: anybody can make one. For tests on
// one's own machine.
const Unsigned = "none"

// Options of a Verifier.
type Options struct {
	// PublicKey is the path of a file of PEM public keys, or of a key set, or Unsigned.
	PublicKey string
	// JWKS is the path of a JSON Web Key Set, or a URL to fetch it from. Its keys are good beside those of PublicKey.
	JWKS string
	// Issuer and Audience, if not empty, are what a token must claim as iss and among its aud.
	Issuer, Audience string
	// Leeway is how long after its exp and before its nbf a token is still, or already, good. Zero is none.
	Leeway time.Duration
	// Refresh is how often a URL is fetched. Zero stands for DefaultRefresh.
	Refresh time.Duration
	// Now is the clock that tokens are judged by: time.Now.
	Now func() time.Time
	// Client fetches keys; nil stands for one of its own. Its Timeout and CheckRedirect are replaced.
	Client *http.Client
	// Log gets loaded and failed keys, never a token. Nil: nowhere.
	Log *slog.Logger
}

// Verifier tells what the bearer of a token may claim. It is safe for concurrent use.
type Verifier struct {
	o         Options
	parser    *jwt.Parser
	validator *jwt.Validator // of the parser, for tokens whose signature is not looked at
	sources   []*source
	keys      atomic.Pointer[KeySet]
	known     known

	loading sync.Mutex // held through a round of loading; guards sources

	mu      sync.Mutex    // guards what follows
	round   chan struct{} // closed when the whole round of loading under way, or else the next one, has ended
	endedAt time.Time     // of the last whole round
	waiting int           // requests that wait for one

	wake chan struct{}
}

// Open loads the keys. It fails if a source cannot be read or holds no usable key, so that a server that cannot
// verify anything does not begin to serve. Run keeps the keys up to date.
func Open(ctx context.Context, o Options) (*Verifier, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Client == nil {
		o.Client = &http.Client{}
	}
	if o.Refresh <= 0 {
		o.Refresh = DefaultRefresh
	}
	if o.Leeway < 0 || o.Leeway > MaxLeeway {
		return nil, fmt.Errorf("auth.leeway: it must be from 0 to %s", MaxLeeway)
	}
	v := &Verifier{o: o, round: make(chan struct{}), wake: make(chan struct{}, 1), known: newKnown()}
	if err := v.addSources(); err != nil {
		return nil, err
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods(algorithms), jwt.WithStrictDecoding(), jwt.WithExpirationRequired(), jwt.WithLeeway(o.Leeway), jwt.WithTimeFunc(o.Now),
	}
	if o.Issuer != "" {
		options = append(options, jwt.WithIssuer(o.Issuer))
	}
	if o.Audience != "" {
		options = append(options, jwt.WithAudience(o.Audience))
	}
	v.parser, v.validator = jwt.NewParser(options...), jwt.NewValidator(options...)
	v.keys.Store(&KeySet{})
	if err := v.Reload(ctx); err != nil {
		return nil, err
	}
	return v, nil
}

func (v *Verifier) addSources() error {
	switch v.o.PublicKey {
	case "", Unsigned:
	default:
		v.sources = append(v.sources, fileSource("auth.publickey", v.o.PublicKey))
	}
	switch {
	case v.o.JWKS == "":
	case v.o.PublicKey == Unsigned:
		return errors.New("auth.publickey is none and auth.jwks is given: either signatures are checked or they are not")
	case isURL(v.o.JWKS):
		s, err := urlSource("auth.jwks", v.o.JWKS, v.o.Client)
		if err != nil {
			return err
		}
		v.sources = append(v.sources, s)
	default:
		v.sources = append(v.sources, fileSource("auth.jwks", v.o.JWKS))
	}
	if len(v.sources) == 0 && v.o.PublicKey != Unsigned {
		return errors.New("authentication needs a key: set auth.publickey or auth.jwks")
	}
	return nil
}

// unsigned reports whether signatures are not looked at.
func (v *Verifier) unsigned() bool { return v.o.PublicKey == Unsigned }

// Verify tells what a token claims. It may wait up to two seconds, within ctx, for the key of a token whose key has a name
// that is not known yet. The claims must not be changed: they are handed out again.
func (v *Verifier) Verify(ctx context.Context, token string) (*Claims, *Refusal) {
	switch {
	case token == "":
		return nil, unauthorized(ReasonMissing)
	case len(token) > MaxTokenBytes:
		return nil, unauthorized(ReasonOversized)
	}
	sum := sha256.Sum256([]byte(token))
	keys := v.keys.Load()
	if c := v.known.get(sum, keys); c != nil {
		return c, v.inTime(c)
	}
	head, err := headerOf(token)
	if err != nil {
		return nil, unauthorized(ReasonMalformed)
	}
	wire, refusal := v.check(token, head, keys)
	if refusal != nil && refusal.Reason == ReasonUnknownKey {
		v.awaitRound(ctx)
		// The keys may also have changed just before.
		if fresh := v.keys.Load(); fresh != keys {
			keys = fresh
			wire, refusal = v.check(token, head, keys)
		}
	}
	if refusal != nil {
		return nil, refusal
	}
	c := wire.claims()
	v.known.put(sum, keys, c)
	return c, nil
}

// inTime judges the times of claims that were good once.
func (v *Verifier) inTime(c *Claims) *Refusal {
	switch now := v.o.Now(); {
	case !now.Before(c.Expires.Add(v.o.Leeway)):
		return unauthorized(ReasonExpired)
	case !c.NotBefore.IsZero() && now.Before(c.NotBefore.Add(-v.o.Leeway)):
		return unauthorized(ReasonNotYetValid)
	}
	return nil
}

// check verifies the signature, unless signatures are not looked at, and the registered claims.
func (v *Verifier) check(token string, head header, keys *KeySet) (*wireClaims, *Refusal) {
	claims := &wireClaims{}
	if v.unsigned() {
		_, _, err := v.parser.ParseUnverified(token, claims)
		if err == nil {
			err = v.validator.Validate(claims)
		}
		return claims, refusalOf(err, ReasonMalformed)
	}
	if !slices.Contains(algorithms, head.Alg) {
		return nil, unauthorized(ReasonAlgorithm)
	}
	candidates, named := keys.candidates(head.Alg, head.Kid)
	if len(candidates) == 0 {
		return nil, unauthorized(ReasonUnknownKey)
	}
	_, err := v.parser.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) {
		set := jwt.VerificationKeySet{Keys: make([]jwt.VerificationKey, len(candidates))}
		for i, key := range candidates {
			set.Keys[i] = key
		}
		return set, nil
	})
	if named {
		return claims, refusalOf(err, ReasonSignature)
	}
	return claims, refusalOf(err, ReasonUnknownKey) // the key that it names is not here, and those without a name do not fit
}

// refusalOf sorts the errors of the JWT library; signature is the reason for a signature that no key fits.
func refusalOf(err error, signature Reason) *Refusal {
	if err == nil {
		return nil
	}
	for _, known := range []struct {
		err    error
		reason Reason
	}{
		{jwt.ErrTokenMalformed, ReasonClaims}, // the header has been read before
		{jwt.ErrTokenSignatureInvalid, signature},
		{jwt.ErrTokenExpired, ReasonExpired},
		{jwt.ErrTokenNotValidYet, ReasonNotYetValid},
		{jwt.ErrTokenInvalidAudience, ReasonAudience},
		{jwt.ErrTokenInvalidIssuer, ReasonIssuer},
		{jwt.ErrTokenRequiredClaimMissing, ReasonClaims},
		{jwt.ErrTokenInvalidClaims, ReasonClaims},
	} {
		if errors.Is(err, known.err) {
			return unauthorized(known.reason)
		}
	}
	return unauthorized(ReasonMalformed)
}
