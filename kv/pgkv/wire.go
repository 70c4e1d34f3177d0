package pgkv

import (
	"encoding/binary"
	"fmt"

	"abide/kv/batch"
)

// The types that parameters have, by their numbers in every PostgreSQL.
const (
	byteaOID       = 17
	int4OID        = 23
	int8OID        = 20
	textOID        = 25
	byteaArrayOID  = 1001
	int4ArrayOID   = 1007
	arrayHeaderLen = 20
)

// arrayHeader begins a one-dimensional array of n elements in the binary format.
func arrayHeader(b []byte, element uint32, n int) []byte {
	if n == 0 {
		b = binary.BigEndian.AppendUint32(b, 0) // dimensions
		b = binary.BigEndian.AppendUint32(b, 0) // no nulls
		return binary.BigEndian.AppendUint32(b, element)
	}
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, element)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return binary.BigEndian.AppendUint32(b, 1) // the first index
}

func appendBytes(b, element []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(element)))
	return append(b, element...)
}

// byteaArray is a parameter of type bytea[], of the elements that each gives.
func byteaArray(n, bytes int, each func(i int) []byte) []byte {
	b := arrayHeader(make([]byte, 0, arrayHeaderLen+4*n+bytes), byteaOID, n)
	for i := range n {
		b = appendBytes(b, each(i))
	}
	return b
}

func int4Array(n int, each func(i int) int) []byte {
	b := arrayHeader(make([]byte, 0, arrayHeaderLen+8*n), int4OID, n)
	for i := range n {
		b = binary.BigEndian.AppendUint32(b, 4)
		b = binary.BigEndian.AppendUint32(b, uint32(each(i)))
	}
	return b
}

// changes are a batch's writes as parameters: the keys and values to put, the keys to delete.
type changes struct {
	keys, values, deletes [][]byte
	bytes                 int
}

func (c *changes) put(key, value []byte) {
	c.keys, c.values = append(c.keys, key), append(c.values, value)
	c.bytes += len(key) + len(value)
}

func (c *changes) add(writes []batch.Write) {
	for _, w := range writes {
		if w.Delete {
			c.deletes = append(c.deletes, w.Key)
			c.bytes += len(w.Key)
		} else {
			c.put(w.Key, w.Value)
		}
	}
}

func list(slices [][]byte, bytes int) []byte {
	return byteaArray(len(slices), bytes, func(i int) []byte { return slices[i] })
}

// int8Value reads a bigint in the binary format.
func int8Value(b []byte) (int64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("the server sent a bigint of %d bytes", len(b))
	}
	return int64(binary.BigEndian.Uint64(b)), nil
}

func int8Param(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
