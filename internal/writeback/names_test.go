package writeback

import "testing"

func TestRefusedNames(t *testing.T) {
	git := "it names a git directory"
	for path, want := range map[string]string{
		".git":                     git,
		".git/config":              git,
		"a/b/.git/hooks/x":         git,
		".GIT/config":              git,
		".giT":                     git,
		".git./config":             git,
		".git . ./config":          git,
		"git~1/config":             git,
		"GIT~1":                    git,
		"git~12":                   git,
		".git::$INDEX_ALLOCATION":  git,
		".git:x/y":                 git,
		`a\.git\config`:            git,
		".g\u200cit/x":             git, // zero width non-joiner: HFS+ ignores it
		".gi\ufefft":               git,
		"\u2060.git":               git, // word joiner
		".git\U000e0001":           git, // tag
		".g\u00adit":               git, // soft hyphen
		".gi\ufe0ft":               git, // variation selector
		"\uff0e\uff47\uff49\uff54": git, // full width
		".\uff27\uff29\uff34":      git,
		".harness-bootstrap":       "it belongs to the program that starts agents",
		"x/.Agent-Runs/1":          "it belongs to the program that starts agents",
		".laufwerk-writeback-00":   "it is a name of laufwerk's own write-back",
		"/etc/passwd":              "it is absolute",
		"../x":                     "it is not a clean path below the root",
		"a/../../x":                "it is not a clean path below the root",
		"a//b":                     "it is not a clean path below the root",
		"./a":                      "it is not a clean path below the root",
		"a/":                       "it is not a clean path below the root",
		"":                         "it is not a clean path below the root",
		"a\x00b":                   "it is not a clean path below the root",

		".gitignore":     "",
		".gitmodules":    "",
		".gitattributes": "",
		"git":            "",
		"git~":           "",
		"git~x":          "",
		"x.git/config":   "",
		"a\xffb":         "",
		"a\nb":           "",
		"agent-runs":     "",
		"nul":            "",
	} {
		if got := refusedName(path); got != want {
			t.Errorf("refusedName(%q) = %q, want %q", path, got, want)
		}
	}
}

func TestFoldDistinguishesWhatIsNotText(t *testing.T) {
	if fold("a\xff") == fold("a\xfe") {
		t.Error("two names that are not UTF-8 became the same")
	}
	for _, same := range [][2]string{{"É", "e\u0301"}, {"Makefile", "MAKEFILE"}, {"ſ", "s"}, {"Ω", "\u2126"}, {"K", "\u212a"}} {
		if fold(same[0]) != fold(same[1]) {
			t.Errorf("%q and %q are kept apart", same[0], same[1])
		}
	}
}
