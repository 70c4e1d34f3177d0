package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// secretPrefix begins a secret as Standard Webhooks writes it.
const secretPrefix = "whsec_"

// Bounds of a secret's key in bytes, after Standard Webhooks.
const (
	minSecretBytes = 24
	maxSecretBytes = 64
	maxSecrets     = 8
)

// ParseSecrets reads the secrets that messages are signed with, separated by blanks, commas or line ends: more than one
// while they are being changed. Each is base64, perhaps with whsec_ before it. No error holds any of them.
func ParseSecrets(text string) (keys [][]byte, err error) {
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r <= ' ' })
	if len(fields) == 0 || len(fields) > maxSecrets {
		return nil, fmt.Errorf("%d secrets: 1 to %d are needed", len(fields), maxSecrets)
	}
	for i, field := range fields {
		encoded := strings.TrimRight(strings.TrimPrefix(field, secretPrefix), "=")
		key, err := base64.RawStdEncoding.DecodeString(encoded)
		switch {
		case err != nil:
			return nil, fmt.Errorf("secret %d is not base64, as in whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", i+1)
		case len(key) < minSecretBytes || len(key) > maxSecretBytes:
			return nil, fmt.Errorf("secret %d has %d bytes: it must have %d to %d", i+1, len(key), minSecretBytes, maxSecretBytes)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// signature is the value of webhook-signature: one for each key.
func signature(keys [][]byte, id string, atSeconds int64, body []byte) string {
	signed := make([]string, len(keys))
	for i, key := range keys {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(id + "." + strconv.FormatInt(atSeconds, 10) + "."))
		h.Write(body)
		signed[i] = "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))
	}
	return strings.Join(signed, " ")
}

// errNoToken is a bearer mode without a token.
var errNoToken = errors.New("the mode bearer needs a token")
