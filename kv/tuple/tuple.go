// Package tuple encodes tuples of typed elements so that the byte order of the encodings is the order of
// the tuples: element by element, and within one type by value. A shorter tuple that is a beginning of a
// longer one comes first, and the tuples that begin with given elements are exactly those from the encoding
// of these elements up to PrefixEnd of it.
//
// The format is FoundationDB's tuple layer, of which this package knows what keys need: nil, byte strings,
// strings, signed 64-bit integers and booleans. Fixtures in testdata are shared by all backends.
//
//	nil     00
//	bytes   01 content 00        with every 00 of the content written as 00 FF
//	string  02 content 00        likewise; UTF-8, whose byte order is code point order
//	int     0C..1C               14 is zero; 14±n says that n bytes of magnitude follow, big-endian,
//	                             those of a negative number complemented
//	false   26
//	true    27
//
// Across types the order is that of the first byte: nil, bytes, strings, ints, booleans.
//
// Encoding appends to a slice that the caller owns. Decoding is strict: only what the encoder writes is
// accepted, so equal tuples have equal bytes, and bad bytes give an error, never a panic.
//
// Source: docs/storage-contract.md, after the RFD "Transactional storage contract", "Key encoding".
package tuple

// The first bytes of the elements. They are FoundationDB's; a store on disk depends on them.
const (
	codeNil    = 0x00
	codeBytes  = 0x01
	codeString = 0x02
	codeZero   = 0x14 // ints of n bytes are at codeZero+n, negative ones at codeZero-n
	codeFalse  = 0x26
	codeTrue   = 0x27

	// escape follows a 00 that belongs to the content. It is larger than every element's first byte, so a
	// content that goes on after a 00 comes after one that ends there.
	escape = 0xFF

	maxIntBytes = 8
)

// AppendNil appends the element nil, which comes before every other.
func AppendNil(dst []byte) []byte { return append(dst, codeNil) }

// AppendBytes appends a byte string of any content; nil and empty are the same. The encoding has two bytes
// more than b, and one more for every 00 in it.
func AppendBytes(dst, b []byte) []byte {
	dst = append(dst, codeBytes)
	for _, c := range b {
		dst = append(dst, c)
		if c == 0 {
			dst = append(dst, escape)
		}
	}
	return append(dst, 0)
}

// AppendString appends a string. Its content is not checked to be UTF-8: the order is that of its bytes.
// The encoding has two bytes more than s, and one more for every 00 in it.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, codeString)
	start := 0
	for i := range len(s) {
		if s[i] == 0 {
			dst = append(dst, s[start:i+1]...)
			dst = append(dst, escape)
			start = i + 1
		}
	}
	dst = append(dst, s[start:]...)
	return append(dst, 0)
}

// AppendInt appends a signed integer: one byte for zero, up to nine for the largest magnitudes.
func AppendInt(dst []byte, v int64) []byte {
	if v >= 0 {
		n := magnitudeBytes(uint64(v))
		return appendBigEndian(append(dst, byte(codeZero+n)), uint64(v), n)
	}
	// -(v+1)+1 is the magnitude without overflow at the smallest int64.
	n := magnitudeBytes(uint64(-(v + 1)) + 1)
	// The complement of a magnitude m in n bytes is v-1 in n bytes: -m = ^m + 1.
	return appendBigEndian(append(dst, byte(codeZero-n)), uint64(v)-1, n)
}

// AppendBool appends a boolean; false comes before true.
func AppendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, codeTrue)
	}
	return append(dst, codeFalse)
}

// PrefixEnd returns the canonical exclusive end of the range of all tuples that begin with the elements in
// prefix, which is the encoding of one or more whole elements; the range starts at prefix itself. It is a
// new slice: prefix and one FF, a byte that begins no element.
//
// It is not the successor of prefix among byte strings, and must not be: a 00 of a content is written as
// 00 FF, so the bytes of ("a\x00b") begin with those of ("a") without being one of its extensions. They
// come at or after this end, or before the start.
func PrefixEnd(prefix []byte) []byte {
	end := make([]byte, len(prefix)+1)
	copy(end, prefix)
	end[len(prefix)] = escape
	return end
}

// magnitudeBytes is how many bytes m needs: 0 for zero, at most 8.
func magnitudeBytes(m uint64) int {
	n := 0
	for ; m > 0; m >>= 8 {
		n++
	}
	return n
}

// appendBigEndian appends the n low bytes of v.
func appendBigEndian(dst []byte, v uint64, n int) []byte {
	for i := n - 1; i >= 0; i-- {
		dst = append(dst, byte(v>>(8*i)))
	}
	return dst
}
