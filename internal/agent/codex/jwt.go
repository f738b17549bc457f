package codex

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
)

// claims is what is needed of a JSON Web Token. Its signature is the issuer's to check.
type claims struct {
	Expires int64 `json:"exp"` // s since 1970
	Auth    struct {
		Plan string `json:"chatgpt_plan_type"`
	} `json:"https://api.openai.com/auth"`
}

func claimsOf(token string) (claims, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}, errors.New("it is not a JSON Web Token")
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	var c claims
	if err != nil || json.Unmarshal(b, &c) != nil {
		return claims{}, errors.New("it cannot be decoded")
	}
	return c, nil
}
