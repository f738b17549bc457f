// Package sha256hex writes SHA-256 sums as the files, names and records of laufwerk have them.
package sha256hex

import (
	"crypto/sha256"
	"encoding/hex"
)

// Of is the sum of content: 64 hexadecimal digits, lower case.
func Of[T ~string | ~[]byte](content T) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}
