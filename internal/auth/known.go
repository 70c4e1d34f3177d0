package auth

import (
	"crypto/sha256"
	"sync"
)

// maxKnown bounds the tokens that are remembered, in each of two generations.
const maxKnown = 4096

// known remembers what tokens claim, since to verify a signature takes longer than most requests. A token is remembered
// by its hash, so that none lies in memory longer than its request, and for as long as the keys are the same. Tokens that
// were refused are not: whoever sends such can push nobody out.
type known struct {
	mu         *sync.RWMutex
	young, old map[[sha256.Size]byte]knownToken
}

type knownToken struct {
	keys   *KeySet
	claims *Claims
}

func newKnown() known {
	return known{mu: &sync.RWMutex{}, young: map[[sha256.Size]byte]knownToken{}}
}

// get returns what the token of a hash claims, nil if it was not verified with those keys.
func (k *known) get(sum [sha256.Size]byte, keys *KeySet) *Claims {
	k.mu.RLock()
	found, ok := k.young[sum]
	if !ok {
		found, ok = k.old[sum]
	}
	k.mu.RUnlock()
	if !ok || found.keys != keys {
		return nil
	}
	return found.claims
}

// put remembers a token. When a generation is full it becomes the old one; who is used comes back from there.
func (k *known) put(sum [sha256.Size]byte, keys *KeySet, claims *Claims) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.young) >= maxKnown {
		k.old, k.young = k.young, make(map[[sha256.Size]byte]knownToken, maxKnown)
	}
	k.young[sum] = knownToken{keys, claims}
}
