package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// clock is a clock that tests move.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Unix(1_800_000_000, 0)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// The keys of the tests, made once: RSA takes its time.
var pairs = sync.OnceValue(func() map[string]KeyPair {
	made := map[string]KeyPair{}
	for _, algorithm := range []string{EdDSA, ES256, RS256} {
		for _, name := range []string{"", "2"} {
			pair, err := GenerateKey(algorithm)
			if err != nil {
				panic(err)
			}
			made[algorithm+name] = pair
		}
	}
	return made
})

func writeFile(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// open makes a verifier of public keys in PEM.
func open(t *testing.T, c *clock, o Options, public []byte) *Verifier {
	t.Helper()
	if public != nil {
		o.PublicKey = writeFile(t, "public.pem", public)
	}
	o.Now = c.now
	v, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func keyOf(t *testing.T, pair KeyPair) any {
	t.Helper()
	key, err := parsePrivateKey(pair.Private)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// signed makes a token of any header and claims.
func signed(t *testing.T, pair KeyPair, algorithm string, header, claims map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.GetSigningMethod(algorithm), jwt.MapClaims(claims))
	for name, value := range header {
		token.Header[name] = value
	}
	text, err := token.SignedString(keyOf(t, pair))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func b64(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// raw signs a header and a payload exactly as they are written, with Ed25519.
func raw(t *testing.T, pair KeyPair, header, payload string) string {
	t.Helper()
	text := b64(header) + "." + b64(payload)
	sig, err := jwt.SigningMethodEdDSA.Sign(text, keyOf(t, pair))
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

func (c *clock) in(d time.Duration) int64 { return c.now().Add(d).Unix() }

func verdict(v *Verifier, token string) Reason {
	_, refusal := v.Verify(context.Background(), token)
	if refusal != nil && refusal.Status != 401 {
		return Reason(fmt.Sprint("status ", refusal.Status))
	}
	return reason(refusal)
}

func TestEveryAlgorithmOfAKey(t *testing.T) {
	c := newClock()
	for key, algorithms := range map[string][]string{EdDSA: {"EdDSA"}, ES256: {"ES256"}, RS256: {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}} {
		for source, o := range map[string]Options{
			"pem":               {PublicKey: writeFile(t, "p", pairs()[key].Public)},
			"jwks":              {JWKS: writeFile(t, "j", pairs()[key].JWKS)},
			"jwks as publickey": {PublicKey: writeFile(t, "j", pairs()[key].JWKS)},
		} {
			v := open(t, c, o, nil)
			for _, algorithm := range algorithms {
				want := Reason("")
				if source != "pem" && algorithm != key {
					want = ReasonUnknownKey // the key set says which algorithm it is for
				}
				token := signed(t, pairs()[key], algorithm, nil, map[string]any{"exp": c.in(time.Minute), "prefix": ""})
				if got := verdict(v, token); got != want {
					t.Errorf("%s as %s: %s: %q, want %q", key, source, algorithm, got, want)
				}
				if algorithm == key {
					if got := verdict(v, signed(t, pairs()[key+"2"], algorithm, nil, map[string]any{"exp": c.in(time.Minute)})); got != ReasonSignature {
						t.Errorf("%s: signed by another key: %q", key, got)
					}
				}
			}
		}
	}
}

// The public key of a server is known to everybody. Whoever uses it as the secret of an HMAC must not get in, nor who
// says that there is no signature, or that it is of another type than the key.
func TestAlgorithmConfusion(t *testing.T) {
	c := newClock()
	rsa, ec, ed := pairs()[RS256], pairs()[ES256], pairs()[EdDSA]
	payload := fmt.Sprintf(`{"exp":%d,"role":"admin"}`, c.in(time.Minute))
	der, _ := pem.Decode(rsa.Public)
	hs := func(header string, secret []byte) string {
		text := b64(header) + "." + b64(payload)
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(text))
		return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	edToken := raw(t, ed, `{"alg":"EdDSA"}`, payload)
	parts := strings.Split(edToken, ".")
	for name, x := range map[string]struct {
		key   KeyPair
		token string
		want  Reason
	}{
		"HS256 with the PEM":       {rsa, hs(`{"alg":"HS256"}`, rsa.Public), ReasonAlgorithm},
		"HS256 with the DER":       {rsa, hs(`{"alg":"HS256"}`, der.Bytes), ReasonAlgorithm},
		"HS256 with the EC key":    {ec, hs(`{"alg":"HS256"}`, ec.Public), ReasonAlgorithm},
		"HS256 with nothing":       {ed, hs(`{"alg":"HS256"}`, nil), ReasonAlgorithm},
		"HMAC called RS256":        {rsa, hs(`{"alg":"RS256"}`, rsa.Public), ReasonSignature},
		"none":                     {rsa, b64(`{"alg":"none"}`) + "." + b64(payload) + ".", ReasonAlgorithm},
		"None":                     {rsa, b64(`{"alg":"None"}`) + "." + b64(payload) + ".", ReasonAlgorithm},
		"none with a signature":    {ed, b64(`{"alg":"none"}`) + "." + b64(payload) + "." + parts[2], ReasonAlgorithm},
		"no alg":                   {ed, b64(`{}`) + "." + b64(payload) + "." + parts[2], ReasonMalformed},
		"alg of another case":      {ed, b64(`{"alg":"eddsa"}`) + "." + b64(payload) + "." + parts[2], ReasonAlgorithm},
		"alg member of other case": {ed, b64(`{"ALG":"EdDSA"}`) + "." + b64(payload) + "." + parts[2], ReasonMalformed},
		"alg is a list":            {ed, b64(`{"alg":["EdDSA"]}`) + "." + b64(payload) + "." + parts[2], ReasonMalformed},
		"two algs":                 {ed, raw(t, ed, `{"alg":"none","alg":"EdDSA"}`, payload), ReasonMalformed},
		"a key of its own":         {ed, raw(t, pairs()[EdDSA+"2"], `{"alg":"EdDSA","jwk":{"kty":"OKP"}}`, payload), ReasonSignature},
		"an extension":             {ed, raw(t, ed, `{"alg":"EdDSA","crit":["b64"],"b64":false}`, payload), ReasonMalformed},
		"EdDSA at an RSA key":      {rsa, edToken, ReasonUnknownKey},
		"RS256 at an Ed25519 key":  {ed, signed(t, rsa, "RS256", nil, map[string]any{"exp": c.in(time.Minute)}), ReasonUnknownKey},
		"no signature":             {ed, parts[0] + "." + parts[1] + ".", ReasonSignature},
		"two parts":                {ed, parts[0] + "." + parts[1], ReasonMalformed},
		"four parts":               {ed, edToken + ".x", ReasonMalformed},
		"payload of another token": {ed, parts[0] + "." + b64(strings.Replace(payload, "admin", "Admin", 1)) + "." + parts[2], ReasonSignature},
		"padded":                   {ed, parts[0] + "=." + parts[1] + "." + parts[2], ReasonMalformed},
		"padded signature":         {ed, edToken + "==", ReasonMalformed},
		"line feed inside":         {ed, parts[0] + ".\n" + parts[1] + "." + parts[2], ReasonMalformed},
		"with Bearer":              {ed, "Bearer " + edToken, ReasonMalformed},
		"words":                    {ed, "secret", ReasonMalformed},
		"empty":                    {ed, "", ReasonMissing},
		"oversized":                {ed, edToken + strings.Repeat("A", MaxTokenBytes), ReasonOversized},
		"the right one":            {ed, edToken, ""},
	} {
		v := open(t, c, Options{}, x.key.Public)
		if got := verdict(v, x.token); got != x.want {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}

func TestClaims(t *testing.T) {
	c := newClock()
	pair := pairs()[EdDSA]
	v := open(t, c, Options{Issuer: "me", Audience: "abide", Leeway: time.Minute}, pair.Public)
	good := func() map[string]any {
		return map[string]any{"exp": c.in(time.Hour), "iss": "me", "aud": "abide", "prefix": "a."}
	}
	for _, x := range []struct {
		claim string
		value any // nil takes the claim away
		want  Reason
	}{
		{"x", "anything", ""},
		{"exp", nil, ReasonClaims},
		{"exp", c.in(-59 * time.Second), ""},
		{"exp", c.in(-60 * time.Second), ReasonExpired},
		{"exp", fmt.Sprint(c.in(time.Hour)), ReasonClaims},
		{"exp", json.RawMessage("null"), ReasonClaims},
		{"exp", json.RawMessage("1e300"), ReasonClaims},
		{"exp", json.RawMessage("-1"), ReasonClaims},
		{"exp", json.RawMessage("253402300799"), ""},
		{"exp", json.RawMessage("253402300800"), ReasonClaims},
		{"exp", float64(c.in(0)) + 0.5, ""},
		{"nbf", c.in(60 * time.Second), ""},
		{"nbf", c.in(61 * time.Second), ReasonNotYetValid},
		{"nbf", "soon", ReasonClaims},
		{"iat", c.in(time.Hour), ""}, // says nothing: clocks differ
		{"iss", nil, ReasonClaims},
		{"iss", "you", ReasonIssuer},
		{"iss", "ME", ReasonIssuer},
		{"iss", []string{"me"}, ReasonClaims},
		{"aud", nil, ReasonClaims},
		{"aud", "other", ReasonAudience},
		{"aud", []string{"other", "abide"}, ""},
		{"aud", []string{}, ReasonClaims},
		{"aud", []any{"abide", 7}, ReasonClaims},
		{"aud", 7, ReasonClaims},
		{"role", 7, ReasonClaims},
		{"role", []string{"admin"}, ReasonClaims},
		{"role", "reader", ""},
		{"prefix", 7, ""}, // counts as none
		{"workspace", 7, ReasonClaims},
		{"workspace", []any{"a", nil}, ReasonClaims},
		{"workspace", make([]string, MaxPatterns+1), ReasonClaims},
		{"worker_groups", 7, ReasonClaims},
		{"worker_groups", make([]string, MaxPatterns+1), ReasonClaims},
	} {
		claims := good()
		if x.value == nil {
			delete(claims, x.claim)
		} else {
			claims[x.claim] = x.value
		}
		if got := verdict(v, signed(t, pair, "EdDSA", nil, claims)); got != x.want {
			t.Errorf("%s %v: %q, want %q", x.claim, x.value, got, x.want)
		}
	}
	for _, payload := range []string{`null`, `[]`, `"x"`, `7`, ``, `{`, `{"exp":1,"exp":2}`, `{"exp":99999999999,"prefix":"a","prefix":""}`, "{\"exp\":99999999999,\"prefix\":\"\xff\"}"} {
		if got := verdict(v, raw(t, pair, `{"alg":"EdDSA"}`, payload)); got != ReasonClaims {
			t.Errorf("payload %q: %q", payload, got)
		}
	}
}

func TestWhatClaimsMean(t *testing.T) {
	c := newClock()
	pair := pairs()[EdDSA]
	v := open(t, c, Options{}, pair.Public)
	for _, x := range []struct {
		claims map[string]any
		want   Claims
	}{
		{map[string]any{}, Claims{}},
		{map[string]any{"role": "admin"}, Claims{Admin: true}},
		{map[string]any{"role": "ADMIN"}, Claims{Admin: true}},
		{map[string]any{"role": "admin "}, Claims{}},
		{map[string]any{"Role": "admin", "Prefix": ""}, Claims{}}, // names are told apart by case
		{map[string]any{"prefix": ""}, Claims{HasPrefix: true}},
		{map[string]any{"prefix": "p"}, Claims{HasPrefix: true, Prefix: "p"}},
		{map[string]any{"prefix": nil}, Claims{}},
		{map[string]any{"prefix": []string{""}}, Claims{}},
		{map[string]any{"workspace": "w"}, Claims{Workspaces: []string{"w"}}},
		{map[string]any{"workspace": []string{"w", "x*"}}, Claims{Workspaces: []string{"w", "x*"}}},
		{map[string]any{"worker_groups": "g"}, Claims{HasGroups: true, Groups: []string{"g"}}},
		{map[string]any{"worker_groups": []string{}}, Claims{HasGroups: true}},
		{map[string]any{"groups": []string{"g"}}, Claims{}}, // what providers call their users' groups
	} {
		x.claims["exp"] = c.in(time.Hour)
		x.want.Expires = c.now().Add(time.Hour)
		got, refusal := v.Verify(context.Background(), signed(t, pair, "EdDSA", nil, x.claims))
		if refusal != nil {
			t.Errorf("%v: %v", x.claims, refusal)
			continue
		}
		if len(got.Workspaces) == 0 {
			got.Workspaces = nil
		}
		if len(got.Groups) == 0 {
			got.Groups = nil
		}
		if !got.Expires.Equal(x.want.Expires) {
			t.Errorf("%v: expires %s", x.claims, got.Expires)
		}
		got.Expires, x.want.Expires = time.Time{}, time.Time{}
		if !reflect.DeepEqual(*got, x.want) {
			t.Errorf("%v: %+v, want %+v", x.claims, *got, x.want)
		}
	}
}

// A token that is remembered ends with its time all the same, and with its key.
func TestRememberedTokens(t *testing.T) {
	c := newClock()
	pair := pairs()[EdDSA]
	path := writeFile(t, "public.pem", pair.Public)
	v := open(t, c, Options{PublicKey: path, Leeway: time.Second}, nil)
	token := signed(t, pair, "EdDSA", nil, map[string]any{"exp": c.in(time.Minute), "nbf": c.in(0), "role": "admin"})
	for range 2 {
		if got := verdict(v, token); got != "" {
			t.Fatal(got)
		}
	}
	if len(v.known.young) != 1 {
		t.Errorf("%d tokens are remembered", len(v.known.young))
	}
	c.advance(-2 * time.Second)
	if got := verdict(v, token); got != ReasonNotYetValid {
		t.Errorf("before its time: %q", got)
	}
	c.advance(62 * time.Second)
	if got := verdict(v, token); got != "" {
		t.Errorf("within the leeway: %q", got)
	}
	c.advance(time.Second)
	if got := verdict(v, token); got != ReasonExpired {
		t.Errorf("after its time: %q", got)
	}
	c.advance(-30 * time.Second)
	if err := os.WriteFile(path, pairs()[EdDSA+"2"].Public, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := v.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := verdict(v, token); got != ReasonSignature {
		t.Errorf("after its key is gone: %q", got)
	}
	for i := range 3 * maxKnown {
		v.known.put(sha256.Sum256(fmt.Append(nil, i)), v.keys.Load(), &Claims{})
	}
	if n := len(v.known.young) + len(v.known.old); n > 2*maxKnown {
		t.Errorf("%d tokens are remembered", n)
	}
}

// Without signatures any token is as good as its claims, and those are checked.
func TestUnsigned(t *testing.T) {
	c := newClock()
	v := open(t, c, Options{PublicKey: Unsigned, Audience: "abide"}, nil)
	payload := fmt.Sprintf(`{"exp":%d,"aud":"abide","role":"admin"}`, c.in(time.Minute))
	for token, want := range map[string]Reason{
		b64(`{"alg":"none"}`) + "." + b64(payload) + ".":                                                 "",
		b64(`{"alg":"HS256"}`) + "." + b64(payload) + "." + b64("whatever"):                              "",
		b64(`{"alg":"none"}`) + "." + b64(strings.Replace(payload, "abide", "other", 1)) + ".":           ReasonAudience,
		b64(`{"alg":"none"}`) + "." + b64(`{"aud":"abide"}`) + ".":                                       ReasonClaims,
		b64(`{"alg":"none"}`) + "." + b64(payload):                                                       ReasonMalformed,
		signed(t, pairs()[EdDSA], "EdDSA", nil, map[string]any{"exp": c.in(-time.Hour), "aud": "abide"}): ReasonExpired,
	} {
		if got := verdict(v, token); got != want {
			t.Errorf("%s: %q, want %q", token, got, want)
		}
	}
}

// No bytes make Verify panic or let somebody in.
func FuzzVerify(f *testing.F) {
	c := newClock()
	pair := pairs()[EdDSA]
	path := filepath.Join(f.TempDir(), "key")
	if err := os.WriteFile(path, pair.Public, 0o600); err != nil {
		f.Fatal(err)
	}
	v, err := Open(context.Background(), Options{PublicKey: path, Now: c.now})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("a.b.c")
	f.Add(b64(`{"alg":"EdDSA"}`) + "." + b64(`{}`) + "." + b64("x"))
	f.Add(b64(`{"alg":"RS256","kid":""}`) + "." + b64(`{"exp":1e9}`) + ".")
	f.Fuzz(func(t *testing.T, token string) {
		if _, refusal := v.Verify(context.Background(), token); refusal == nil {
			t.Errorf("%q was let in", token)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	c := newClock()
	for name, remembered := range map[string]bool{"remembered": true, "new": false} {
		path := filepath.Join(b.TempDir(), "key")
		_ = os.WriteFile(path, pairs()[EdDSA].Public, 0o600)
		v, err := Open(context.Background(), Options{PublicKey: path, Now: c.now})
		if err != nil {
			b.Fatal(err)
		}
		token, err := Sign(pairs()[EdDSA].Private, Token{Role: "admin", Expires: c.now().Add(time.Hour)})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if !remembered {
					clear(v.known.young)
				}
				if _, refusal := v.Verify(context.Background(), token); refusal != nil {
					b.Fatal(refusal)
				}
			}
		})
	}
}
