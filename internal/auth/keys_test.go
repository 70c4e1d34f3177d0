package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"
	"time"
)

func pemOf(t *testing.T, public any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func TestPEM(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ed, rs := pairs()[EdDSA], pairs()[RS256]
	block, _ := pem.Decode(rs.Public)
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(public.(*rsa.PublicKey))})
	for name, x := range map[string]struct {
		text []byte
		keys int
		says string
	}{
		"one":             {ed.Public, 1, ""},
		"PKCS #1":         {pkcs1, 1, ""},
		"two":             {append(append([]byte("a comment\n"), ed.Public...), rs.Public...), 2, ""},
		"empty":           {nil, 0, "no public key"},
		"words":           {[]byte("key"), 0, "no public key"},
		"private":         {ed.Private, 0, "private key"},
		"both":            {append(append([]byte{}, ed.Public...), ed.Private...), 0, "private key"},
		"certificate":     {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), 0, "CERTIFICATE"},
		"damaged":         {pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}), 0, "asn1"},
		"a weak RSA key":  {pemOf(t, &small.PublicKey), 0, "1024 bits"},
		"a curve too far": {pemOf(t, &p224.PublicKey), 0, "P-256"},
		"too many":        {[]byte(strings.Repeat(string(ed.Public), MaxKeys+1)), 0, "MaxKeys"},
	} {
		set, err := ParsePEM(x.text)
		switch {
		case x.says == "" && (err != nil || set.Len() != x.keys):
			t.Errorf("%s: %v, %v", name, set, err)
		case x.says != "" && (err == nil || !strings.Contains(err.Error(), x.says)):
			t.Errorf("%s: %v does not say %q", name, err, x.says)
		}
	}
}

// members is the only key of a set, to be changed.
func members(t *testing.T, pair KeyPair) map[string]any {
	t.Helper()
	var doc struct{ Keys []map[string]any }
	if err := json.Unmarshal(pair.JWKS, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Keys[0]
}

func setOf(t *testing.T, keys ...map[string]any) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"keys": keys, "other": 1})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestJWKS(t *testing.T) {
	with := func(algorithm, name string, value any) map[string]any {
		m := members(t, pairs()[algorithm])
		m[name] = value
		return m
	}
	good := members(t, pairs()[EdDSA])
	for name, x := range map[string]struct {
		text []byte
		keys int
		says string
	}{
		"one of each":            {setOf(t, good, members(t, pairs()[ES256]), members(t, pairs()[RS256])), 3, ""},
		"no kid":                 {setOf(t, with(EdDSA, "kid", "")), 1, ""},
		"for encryption":         {setOf(t, good, with(RS256, "use", "enc")), 1, ""},
		"for signing alone":      {setOf(t, good, with(RS256, "key_ops", []string{"sign"})), 1, ""},
		"for verifying":          {setOf(t, with(RS256, "key_ops", []string{"verify"})), 1, ""},
		"symmetric":              {setOf(t, good, map[string]any{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}), 1, ""},
		"symmetric alone":        {setOf(t, map[string]any{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}), 0, "no key in it"},
		"an RSA key for HS256":   {setOf(t, with(RS256, "alg", "HS256")), 0, "no key in it"},
		"an algorithm of others": {setOf(t, with(EdDSA, "alg", "RS256")), 0, "not one for the key's type"},
		"of a wrong curve":       {setOf(t, with(ES256, "alg", "ES384")), 0, "not one for the key's type"},
		"X25519":                 {setOf(t, good, with(EdDSA, "crv", "X25519")), 1, ""},
		"secp256k1":              {setOf(t, good, with(ES256, "crv", "secp256k1")), 1, ""},
		"private":                {setOf(t, good, with(EdDSA, "d", "AAAA")), 0, "key 2 of it: it is a private key"},
		"d is null":              {setOf(t, with(EdDSA, "d", nil)), 1, ""},
		"short x":                {setOf(t, with(EdDSA, "x", "AAAA")), 0, "32 bytes"},
		"x is not base64url":     {setOf(t, with(EdDSA, "x", "+/==")), 0, "32 bytes"},
		"no point":               {setOf(t, with(ES256, "x", strings.Repeat("A", 43))), 0, "not a point"},
		"short y":                {setOf(t, with(ES256, "y", "AAAA")), 0, "32 bytes each"},
		"even e":                 {setOf(t, with(RS256, "e", "AAQ")), 0, "even"},
		"e of one":               {setOf(t, with(RS256, "e", "AQ")), 0, "out of range"},
		"huge e":                 {setOf(t, with(RS256, "e", "AAAAAAAAAAAAAAAB_____w")), 0, "not a number for an RSA key"},
		"no n":                   {setOf(t, with(RS256, "n", "")), 0, "not a number for an RSA key"},
		"weak n":                 {setOf(t, with(RS256, "n", strings.Repeat("_", 172))), 0, "bits"},
		"kid is a number":        {setOf(t, with(RS256, "kid", 7)), 0, "JSON Web Key Set"},
		"empty":                  {[]byte(`{"keys":[]}`), 0, "no key in it"},
		"no list":                {[]byte(`{}`), 0, "no key in it"},
		"two lists":              {[]byte(`{"keys":[],"keys":[]}`), 0, "JSON Web Key Set"},
		"a list":                 {[]byte(`[]`), 0, "JSON Web Key Set"},
		"nothing":                {nil, 0, "JSON Web Key Set"},
		"too many":               {setOf(t, make([]map[string]any, MaxKeys+1)...), 0, "MaxKeys"},
	} {
		set, err := ParseJWKS(x.text)
		switch {
		case x.says == "" && (err != nil || set.Len() != x.keys):
			t.Errorf("%s: %v, %v", name, set, err)
		case x.says != "" && (err == nil || !strings.Contains(err.Error(), x.says)):
			t.Errorf("%s: %v does not say %q", name, err, x.says)
		}
	}
}

// While keys are changed the old and the new one are good side by side, in a key set by name and in PEM by trial.
func TestTwoKeysInRotation(t *testing.T) {
	c := newClock()
	first, second, third := pairs()[EdDSA], pairs()[EdDSA+"2"], pairs()[ES256]
	claims := map[string]any{"exp": c.in(time.Hour)}
	sign := func(pair KeyPair, kid any) string {
		header := map[string]any{}
		if kid != nil {
			header["kid"] = kid
		}
		algorithm := EdDSA
		if pair.ID == third.ID {
			algorithm = ES256
		}
		return signed(t, pair, algorithm, header, claims)
	}
	jwks := open(t, c, Options{JWKS: writeFile(t, "jwks", setOf(t, members(t, first), members(t, second)))}, nil)
	both := open(t, c, Options{JWKS: writeFile(t, "jwks", second.JWKS)}, first.Public)
	files := open(t, c, Options{}, append(append([]byte{}, first.Public...), second.Public...))
	for _, x := range []struct {
		name  string
		v     *Verifier
		token string
		want  Reason
	}{
		{"first by name", jwks, sign(first, first.ID), ""},
		{"second by name", jwks, sign(second, second.ID), ""},
		{"second without a name", jwks, sign(second, nil), ""},
		{"second under the name of the first", jwks, sign(second, first.ID), ReasonSignature},
		{"unknown name", jwks, sign(second, "third"), ReasonUnknownKey},
		{"a key that is not there", jwks, sign(third, third.ID), ReasonUnknownKey},
		{"name of another case", jwks, sign(first, strings.ToUpper(first.ID)), ReasonUnknownKey},
		{"PEM, any name", files, sign(second, "any"), ""},
		{"PEM, no name", files, sign(first, nil), ""},
		{"PEM and key set: PEM", both, sign(first, "any"), ""},
		{"PEM and key set: set", both, sign(second, second.ID), ""},
		{"PEM and key set: unknown name", both, sign(second, "any"), ReasonUnknownKey},
		{"kid is a number", jwks, raw(t, first, `{"alg":"EdDSA","kid":7}`, `{}`), ReasonMalformed},
	} {
		if got := verdict(x.v, x.token); got != x.want {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
}

// What keygen writes, the server reads, and what Sign makes, it accepts.
func TestSign(t *testing.T) {
	c := newClock()
	prefix := "a."
	for _, algorithm := range []string{EdDSA, ES256, RS256} {
		pair := pairs()[algorithm]
		token, err := Sign(pair.Private, Token{Prefix: &prefix, Workspaces: []string{"w"}, WorkerGroups: []string{"g"}, Issuer: "i", Audience: "x", Subject: "s",
			IssuedAt: c.now(), Expires: c.now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		for name, o := range map[string]Options{"pem": {PublicKey: writeFile(t, "p", pair.Public)}, "jwks": {JWKS: writeFile(t, "j", pair.JWKS)}} {
			o.Issuer, o.Audience = "i", "x"
			got, refusal := open(t, c, o, nil).Verify(context.Background(), token)
			if refusal != nil {
				t.Errorf("%s, %s: %v", algorithm, name, refusal)
			} else if got.Prefix != prefix || got.Workspaces[0] != "w" || got.Groups[0] != "g" || got.Admin {
				t.Errorf("%s, %s: %+v", algorithm, name, got)
			}
		}
		shown, err := Show(token + "\n")
		if err != nil || !strings.Contains(string(shown.Claims), `"a."`) || !strings.Contains(string(shown.Header), pair.ID) || !shown.Expires.Equal(c.now().Add(time.Hour)) {
			t.Errorf("shown: %s %s %s %v", shown.Header, shown.Claims, shown.Expires, err)
		}
	}
	if _, err := Sign(pairs()[EdDSA].Public, Token{}); err == nil || !strings.Contains(err.Error(), "PRIVATE KEY") {
		t.Errorf("signed with a public key: %v", err)
	}
	if _, err := Sign(nil, Token{}); err == nil {
		t.Error("signed with nothing")
	}
	if _, err := GenerateKey("HS256"); err == nil || !strings.Contains(err.Error(), "EdDSA, ES256 or RS256") {
		t.Errorf("a key for HS256: %v", err)
	}
	for _, text := range []string{"", "a.b", "a.b.c", "e30.e30", "!!!.e30.x", "WzFd.e30.x", strings.Repeat("A", MaxTokenBytes) + ".b.c"} {
		if _, err := Show(text); err == nil || !strings.Contains(err.Error(), "no token") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}
