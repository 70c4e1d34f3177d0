package cluster

import "hash/fnv"

// Owner is the server that something belongs to, of those listed: the one with the highest rendezvous hash of the key.
// Everybody who knows the same servers names the same owner, and one server more or less moves no key but its own.
// Empty for no servers.
func Owner(key string, servers []string) (owner string) {
	var highest uint64
	for _, id := range servers {
		w := weight(key, id)
		if owner == "" || w > highest || (w == highest && id > owner) {
			owner, highest = id, w
		}
	}
	return owner
}

func weight(key, server string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(server))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(key))
	// FNV alone leaves the last bytes in the low bits: without this, similar keys would all have one owner.
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
