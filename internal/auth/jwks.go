package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxJWKSBytes is the largest JSON Web Key Set that is read.
const MaxJWKSBytes = 1 << 20

// jwk is one key as RFC 7517 writes it.
type jwk struct {
	Kty    string         `json:"kty"`
	Use    string         `json:"use"`
	KeyOps []string       `json:"key_ops"`
	Alg    string         `json:"alg"`
	Kid    string         `json:"kid"`
	Crv    string         `json:"crv"`
	N      string         `json:"n"`
	E      string         `json:"e"`
	X      string         `json:"x"`
	Y      string         `json:"y"`
	D      jsontext.Value `json:"d"`
}

// ParseJWKS reads a JSON Web Key Set (RFC 7517). Keys that are not for signatures, and types and curves that are not
// supported, are passed over, as providers publish them side by side; symmetric keys are among those, always. A key
// that is damaged, too weak or private is an error, and so is a set without a usable key.
func ParseJWKS(text []byte) (*KeySet, error) {
	var doc struct {
		Keys []jwk `json:"keys"`
	}
	switch err := json.Unmarshal(text, &doc); {
	case err != nil:
		return nil, errors.New("it is not a JSON Web Key Set: it must be a JSON object with a list keys")
	case len(doc.Keys) > MaxKeys:
		return nil, fmt.Errorf("there are %d keys in it, the limit is %d (MaxKeys)", len(doc.Keys), MaxKeys)
	}
	set := &KeySet{}
	for i, k := range doc.Keys {
		key, usable, err := k.key()
		if err != nil {
			return nil, fmt.Errorf("key %d of it: %w", i+1, err)
		}
		if usable {
			set.keys = append(set.keys, key)
		}
	}
	if len(set.keys) == 0 {
		return nil, errors.New("there is no key in it that can verify tokens: none is of the types OKP (Ed25519), EC and RSA and for signatures")
	}
	return set, nil
}

// key is the key; not usable if it is to be passed over.
func (k jwk) key() (key Key, usable bool, err error) {
	switch {
	case k.Kty != "RSA" && k.Kty != "EC" && k.Kty != "OKP":
		return Key{}, false, nil
	case len(k.D) != 0 && k.D.Kind() != 'n':
		return Key{}, false, errors.New("it is a private key, with which anybody can make tokens: publish the public key alone")
	case k.Use != "" && k.Use != "sig", len(k.KeyOps) != 0 && !slices.Contains(k.KeyOps, "verify"):
		return Key{}, false, nil
	case k.Alg != "" && !slices.Contains(algorithms, k.Alg):
		return Key{}, false, nil
	}
	public, err := k.public()
	if err != nil || public == nil {
		return Key{}, false, err
	}
	key, err = newKey(k.Kid, k.Alg, public)
	return key, err == nil, err
}

// public decodes the key's numbers; nil for a curve that is not supported.
func (k jwk) public() (crypto.PublicKey, error) {
	switch {
	case k.Kty == "OKP" && k.Crv == "Ed25519":
		x, err := number(k.X)
		if err != nil || len(x) != ed25519.PublicKeySize {
			return nil, errors.New("its x is not the 32 bytes of an Ed25519 key")
		}
		return ed25519.PublicKey(x), nil
	case k.Kty == "OKP":
		return nil, nil
	case k.Kty == "RSA":
		return k.rsa()
	}
	curves := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}
	curve := curves[k.Crv]
	if curve == nil {
		return nil, nil
	}
	x, errX := number(k.X)
	y, errY := number(k.Y)
	size := (curve.Params().BitSize + 7) / 8
	if errX != nil || errY != nil || len(x) != size || len(y) != size {
		return nil, fmt.Errorf("its x and y are not %d bytes each, as %s has them", size, k.Crv)
	}
	public, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, x, y))
	if err != nil {
		return nil, errors.New("its x and y are not a point of " + k.Crv)
	}
	return public, nil
}

func (k jwk) rsa() (crypto.PublicKey, error) {
	n, errN := number(k.N)
	e, errE := number(k.E)
	n = bytes.TrimLeft(n, "\x00")
	e = bytes.TrimLeft(e, "\x00")
	if errN != nil || errE != nil || len(n) == 0 || len(n) > MaxRSABits/8 || len(e) == 0 || len(e) > 4 {
		return nil, errors.New("its n or e is not a number for an RSA key")
	}
	public := &rsa.PublicKey{N: new(big.Int).SetBytes(n)}
	exponent := new(big.Int).SetBytes(e).Int64()
	if exponent < 3 || exponent > 1<<31-1 || exponent%2 == 0 || public.N.Bit(0) == 0 {
		return nil, errors.New("its e or n is even or out of range")
	}
	public.E = int(exponent)
	return public, nil
}

// number decodes base64url without padding.
func number(text string) ([]byte, error) { return base64.RawURLEncoding.Strict().DecodeString(text) }
