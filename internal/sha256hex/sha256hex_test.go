package sha256hex

import (
	"encoding/json"
	"testing"
)

func TestOf(t *testing.T) {
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-2, B.1
	if got := Of("abc"); got != abc {
		t.Errorf("of a string: %s", got)
	}
	if got := Of(json.RawMessage("abc")); got != abc {
		t.Errorf("of bytes: %s", got)
	}
}
