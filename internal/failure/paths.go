package failure

import (
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"
)

// PathBase64 has the bytes of each path that is not UTF-8, which a string of JSON cannot hold, and "" for the others. It is nil
// where all are.
func PathBase64(paths []string) []string {
	var out []string
	for i, p := range paths {
		if utf8.ValidString(p) {
			continue
		}
		if out == nil {
			out = make([]string, len(paths))
		}
		out[i] = base64.StdEncoding.EncodeToString([]byte(p))
	}
	return out
}

// RestorePaths puts back what PathBase64 has taken out of paths that went through JSON since.
func RestorePaths(paths, pathBase64 []string) {
	for i := range paths {
		if i >= len(pathBase64) || pathBase64[i] == "" {
			continue
		}
		if raw, err := base64.StdEncoding.DecodeString(pathBase64[i]); err == nil {
			paths[i] = string(raw)
		}
	}
}

// condition is a Condition in JSON.
type condition struct {
	ID         string `json:"id"`
	PathBase64 string `json:"pathBase64,omitempty"` // the bytes of an id that is a path and not UTF-8
	Message    string `json:"message"`
	Hint       string `json:"hint,omitempty"`
}

// MarshalJSON keeps the bytes of an id.
func (c Condition) MarshalJSON() ([]byte, error) {
	out := condition{ID: c.ID, Message: c.Message, Hint: c.Hint}
	if raw := PathBase64([]string{c.ID}); raw != nil {
		out.PathBase64 = raw[0]
	}
	return json.Marshal(out)
}

// UnmarshalJSON is the way back.
func (c *Condition) UnmarshalJSON(b []byte) error {
	var in condition
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	id := []string{in.ID}
	RestorePaths(id, []string{in.PathBase64})
	*c = Condition{ID: id[0], Message: in.Message, Hint: in.Hint}
	return nil
}
