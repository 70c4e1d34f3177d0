package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
)

// The key types that GenerateKey makes, by the algorithm of their tokens.
const (
	EdDSA = "EdDSA" // Ed25519
	ES256 = "ES256" // the curve P-256
	RS256 = "RS256" // RSA of 3072 bits
)

const generatedRSABits = 3072

// KeyPair is a new key in the forms that files have.
type KeyPair struct {
	// Private and Public are PEM, PKCS #8 and SubjectPublicKeyInfo.
	Private, Public []byte
	// JWKS is the public key as a JSON Web Key Set of one.
	JWKS []byte
	// ID is the key's name in JWKS and in the tokens that Sign makes with it: its thumbprint (RFC 7638).
	ID string
}

// GenerateKey makes a key for an algorithm: EdDSA, ES256 or RS256.
func GenerateKey(algorithm string) (KeyPair, error) {
	var private crypto.Signer
	var err error
	switch algorithm {
	case EdDSA:
		_, private, err = ed25519.GenerateKey(rand.Reader)
	case ES256:
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case RS256:
		private, err = rsa.GenerateKey(rand.Reader, generatedRSABits)
	default:
		err = fmt.Errorf("there are no keys for the algorithm %q: use %s, %s or %s", algorithm, EdDSA, ES256, RS256)
	}
	if err != nil {
		return KeyPair{}, err
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return KeyPair{}, err
	}
	publicDER, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return KeyPair{}, err
	}
	members := publicJWK(private.Public())
	id, err := thumbprint(members)
	if err != nil {
		return KeyPair{}, err
	}
	members["kid"], members["alg"], members["use"] = id, algorithm, "sig"
	set, err := json.Marshal(map[string]any{"keys": []any{members}}, json.Deterministic(true), jsontext.Multiline(true))
	if err != nil {
		return KeyPair{}, err
	}
	return KeyPair{
		Private: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: privateDER}),
		Public:  pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER}),
		JWKS:    append(set, '\n'),
		ID:      id,
	}, nil
}

// publicJWK is the required members of a public key of a type that GenerateKey and ParsePrivateKey know.
func publicJWK(public crypto.PublicKey) map[string]string {
	b64 := base64.RawURLEncoding.EncodeToString
	switch k := public.(type) {
	case ed25519.PublicKey:
		return map[string]string{"kty": "OKP", "crv": "Ed25519", "x": b64(k)}
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			return nil
		}
		point = point[1:]
		half := len(point) / 2
		return map[string]string{"kty": "EC", "crv": k.Params().Name, "x": b64(point[:half]), "y": b64(point[half:])}
	case *rsa.PublicKey:
		return map[string]string{"kty": "RSA", "n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes())}
	}
	return nil
}

// thumbprint names a key by the hash of its required members. (RFC 7638)
func thumbprint(members map[string]string) (string, error) {
	text, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// Token is what Sign puts into a token. Empty members are left out.
type Token struct {
	Role         string
	Prefix       *string
	Workspaces   []string
	WorkerGroups []string
	Issuer       string
	Audience     string
	Subject      string
	IssuedAt     time.Time
	Expires      time.Time
}

// Sign makes a token with a private key in PEM: PKCS #8, or the older forms of RSA and elliptic keys.
func Sign(private []byte, t Token) (string, error) {
	key, err := parsePrivateKey(private)
	if err != nil {
		return "", err
	}
	all, err := algorithmsOf(key.Public())
	if err != nil {
		return "", err
	}
	id, err := thumbprint(publicJWK(key.Public()))
	if err != nil {
		return "", err
	}
	claims := jwt.MapClaims{"iat": t.IssuedAt.Unix(), "exp": t.Expires.Unix()}
	for name, value := range map[string]string{"role": t.Role, "iss": t.Issuer, "aud": t.Audience, "sub": t.Subject} {
		if value != "" {
			claims[name] = value
		}
	}
	if t.Prefix != nil {
		claims["prefix"] = *t.Prefix
	}
	if len(t.Workspaces) > 0 {
		claims["workspace"] = t.Workspaces
	}
	if len(t.WorkerGroups) > 0 {
		claims["worker_groups"] = t.WorkerGroups
	}
	token := jwt.NewWithClaims(jwt.GetSigningMethod(all[0]), claims)
	token.Header["kid"] = id
	return token.SignedString(key)
}

func parsePrivateKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("there is no PEM block in it: it must hold a private key, as abide token keygen writes it")
	}
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("it holds a PEM block %.40q: tokens are made with a PRIVATE KEY without a passphrase", block.Type)
	}
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return nil, errors.New("its private key cannot be read")
	}
	return signer, nil
}

// Shown is a token taken apart, for people. Nothing of it is verified.
type Shown struct {
	Header, Claims jsontext.Value // JSON, indented
	Expires        time.Time      // zero if it names no such time
}

// Show takes a token apart without verifying anything.
func Show(token string) (Shown, error) {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 || len(token) > MaxTokenBytes {
		return Shown{}, fmt.Errorf("that is no token: it must be three parts with a dot between them, of %d bytes at most", MaxTokenBytes)
	}
	var shown Shown
	for i, out := range []*jsontext.Value{&shown.Header, &shown.Claims} {
		text, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil {
			return Shown{}, errors.New("that is no token: part " + strconv.Itoa(i+1) + " is not base64url")
		}
		if *out = text; out.Indent() != nil || out.Kind() != '{' {
			return Shown{}, errors.New("that is no token: part " + strconv.Itoa(i+1) + " is not a JSON object")
		}
	}
	var times struct {
		Exp float64 `json:"exp"`
	}
	if err := json.Unmarshal(shown.Claims, &times); err == nil && times.Exp > 0 && times.Exp <= maxSeconds {
		shown.Expires = time.Unix(int64(times.Exp), 0).UTC()
	}
	return shown, nil
}
