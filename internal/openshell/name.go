package openshell

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// The labels of every sandbox of ours, on the sandbox, where selectors find them, and on its template, from where they get to
// the container.
const (
	LabelOwner = "dev.laufwerk.owner" // the store's id
	LabelClaim = "dev.laufwerk.claim"
	LabelRun   = "dev.laufwerk.run" // "" for preparation and probes
)

// Labels are the labels of a claim's sandbox. A gateway takes values of at most 63 letters, digits, "-", "_" and ".", which
// our ids are.
func Labels(owner, claim, run string) map[string]string {
	return map[string]string{LabelOwner: owner, LabelClaim: claim, LabelRun: run}
}

// Name is the name of a claim's sandbox. A gateway gives a name once, takes at most 19 characters of a-z, 0-9 and single
// hyphens, and deletes by name alone: so it is the same for the same claim, and nobody can guess that of another.
func Name(claim string) string {
	sum := sha256.Sum256([]byte(claim))
	return "lw-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:16]
}

// Workspace is the gateway's workspace of all that is ours. It is named in every request: where it is left out, it means this
// one for sandboxes and providers, and the whole platform for profiles.
const Workspace = "default"
