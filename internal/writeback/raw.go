package writeback

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// rawPath is a path or link target of any bytes. In JSON it is a readable string where it is UTF-8, else its base64 after a
// prefix: Go's encoder would make `a\xff` and `a\xfe` the same name.
type rawPath string

const rawPrefix = "base64:"

// MarshalJSON implements json.Marshaler.
func (r rawPath) MarshalJSON() ([]byte, error) {
	s := string(r)
	if !utf8.ValidString(s) || strings.HasPrefix(s, rawPrefix) {
		s = rawPrefix + base64.StdEncoding.EncodeToString([]byte(s))
	}
	return json.Marshal(s)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *rawPath) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if enc, ok := strings.CutPrefix(s, rawPrefix); ok {
		dec, err := base64.StdEncoding.DecodeString(enc)
		if err != nil {
			return err
		}
		s = string(dec)
	}
	*r = rawPath(s)
	return nil
}
