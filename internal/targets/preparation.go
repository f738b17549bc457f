package targets

import "encoding/json"

// Preparation is what has to be prepared for a target whose sessions start from images. It is given to what prepares images,
// which does not know targets.
type Preparation struct {
	Own       bool   // nothing: it has an image of its own
	Directory string // of the cache, as the target has it
	Manifest  string // of the image that loadPreparedCodexImage gave; "" is the standard image
}

// PreparationOf says what has to be prepared for a target, by the normalised form of its options.
func PreparationOf(normalised json.RawMessage) (Preparation, error) {
	var c struct {
		Image     string `json:"image"`
		Directory string `json:"imageCacheDirectory"`
		Prepared  struct {
			Manifest string `json:"manifestPath"`
		} `json:"prepared"`
	}
	err := json.Unmarshal(normalised, &c)
	return Preparation{Own: c.Image != "", Directory: c.Directory, Manifest: c.Prepared.Manifest}, err
}
