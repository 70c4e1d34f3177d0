package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
)

// Limits of keys.
const (
	// MaxKeys is the largest number of keys in force at once. A token without the name of its key may be tried on each.
	MaxKeys = 64
	// MinRSABits and MaxRSABits bound the size of an RSA key: below, it can be broken; above, verifying is a way to
	// keep the server busy.
	MinRSABits = 2048
	MaxRSABits = 8192
)

// Key is a public key with what it may verify. The algorithm of a token is never the token's choice: a key verifies those
// of its own kind, so that none of them is ever taken for the secret of another.
type Key struct {
	// ID is the key's name, which tokens carry as kid; empty: it verifies tokens with any name.
	ID         string
	algorithms []string
	public     crypto.PublicKey
}

// KeySet is the keys in force. It does not change once it is made.
type KeySet struct{ keys []Key }

// Len is the number of keys.
func (s *KeySet) Len() int { return len(s.keys) }

// candidates are the keys that may verify a token of that algorithm and key name: those of that name and those without
// one; for a token without a name, all. named is whether a key of the algorithm has the name, or no name is asked for.
func (s *KeySet) candidates(algorithm, name string) (keys []crypto.PublicKey, named bool) {
	named = name == ""
	for _, k := range s.keys {
		if !slices.Contains(k.algorithms, algorithm) || (name != "" && k.ID != "" && k.ID != name) {
			continue
		}
		named = named || k.ID == name
		keys = append(keys, k.public)
	}
	return keys, named
}

// algorithms are all that any key may verify. HMAC and none are not among them.
var algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// algorithmsOf are the algorithms of a key of that type. The error says what is wrong with the key.
func algorithmsOf(public crypto.PublicKey) ([]string, error) {
	switch k := public.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < MinRSABits || n > MaxRSABits {
			return nil, fmt.Errorf("an RSA key of %d bits: use one of %d to %d", n, MinRSABits, MaxRSABits)
		}
		return algorithms[:6], nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return []string{"ES256"}, nil
		case elliptic.P384():
			return []string{"ES384"}, nil
		case elliptic.P521():
			return []string{"ES512"}, nil
		}
		return nil, errors.New("an elliptic key of a curve that is none of P-256, P-384 and P-521")
	case ed25519.PublicKey:
		return []string{"EdDSA"}, nil
	}
	return nil, fmt.Errorf("a key of a type that is not supported: use Ed25519, RSA or an elliptic curve")
}

// newKey makes a key for all algorithms of its type, or, if algorithm is not empty, for that one of them.
func newKey(id, algorithm string, public crypto.PublicKey) (Key, error) {
	all, err := algorithmsOf(public)
	if err != nil {
		return Key{}, err
	}
	if algorithm != "" {
		if !slices.Contains(all, algorithm) {
			return Key{}, fmt.Errorf("the algorithm %.20q is not one for the key's type", algorithm)
		}
		all = []string{algorithm}
	}
	return Key{ID: id, algorithms: all, public: public}, nil
}

// ParsePEM reads public keys: one or more blocks PUBLIC KEY or RSA PUBLIC KEY. The keys have no names, so that each
// verifies tokens with any: two blocks are a rotation under way.
func ParsePEM(text []byte) (*KeySet, error) {
	set := &KeySet{}
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		public, err := parseBlock(block)
		if err != nil {
			return nil, err
		}
		key, err := newKey("", "", public)
		if err != nil {
			return nil, err
		}
		set.keys = append(set.keys, key)
	}
	switch n := len(set.keys); {
	case n == 0:
		return nil, errors.New("there is no public key in it: it must hold a PEM block PUBLIC KEY, as abide token keygen writes it")
	case n > MaxKeys:
		return nil, fmt.Errorf("there are %d keys in it, the limit is %d (MaxKeys)", n, MaxKeys)
	}
	return set, nil
}

func parseBlock(block *pem.Block) (crypto.PublicKey, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY":
		return nil, errors.New("it holds a private key, with which anybody can make tokens: give the server the public key alone")
	}
	return nil, fmt.Errorf("it holds a PEM block %.40q: only PUBLIC KEY and RSA PUBLIC KEY are understood", block.Type)
}

// union is the keys of several sets. The error is for too many.
func union(sets []*KeySet) (*KeySet, error) {
	all := &KeySet{}
	for _, s := range sets {
		all.keys = append(all.keys, s.keys...)
	}
	if n := len(all.keys); n > MaxKeys {
		return nil, fmt.Errorf("the sources hold %d keys together, the limit is %d (MaxKeys)", n, MaxKeys)
	}
	return all, nil
}
