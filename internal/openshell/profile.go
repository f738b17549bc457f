package openshell

// CodexProfile is the profile of providers that hold Codex logins for our sandboxes: the built-in one with one binary more.
const CodexProfile = "laufwerk-codex"

// CodexBinaries are Codex's programs in prepared images, as profiles and policies name them. A rule for them also holds for what
// they start.
const CodexBinaries = "/sandbox/.harness-bootstrap/codex/node_modules/**"
