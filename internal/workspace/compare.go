package workspace

import "strings"

// Compare is what changed from base to now, in path order, each change classified.
func Compare(base, now Manifest) []Change {
	var out []Change
	c := newClassifier()
	b, n := base.Entries, now.Entries
	for len(b) > 0 || len(n) > 0 {
		switch {
		case len(n) == 0 || (len(b) > 0 && b[0].Path < n[0].Path):
			out = append(out, c.classify(Change{Path: b[0].Path, Kind: Deleted, Before: &b[0]}))
			b = b[1:]
		case len(b) == 0 || n[0].Path < b[0].Path:
			out = append(out, c.classify(Change{Path: n[0].Path, Kind: Added, After: &n[0]}))
			n = n[1:]
		default:
			if !b[0].Same(n[0]) {
				out = append(out, c.classify(Change{Path: n[0].Path, Kind: kindOf(b[0], n[0]), Before: &b[0], After: &n[0]}))
			}
			b, n = b[1:], n[1:]
		}
	}
	return out
}

func kindOf(b, n Entry) ChangeKind {
	switch {
	case b.Type == Symlink || n.Type == Symlink:
		return Link
	case b.Type == n.Type && b.Size == n.Size && b.SHA256 == n.SHA256 && string(b.Link) == string(n.Link):
		return ModeOnly
	default:
		return Modified
	}
}

func (k *classifier) classify(c Change) Change {
	c.Why = k.why(c.Path)
	if c.Why == "" && executable(c.After) && !executable(c.Before) {
		c.Why = "new executable"
	}
	if c.Why == "" && c.After != nil && c.After.Type == File && c.After.Mode&0o6000 != 0 {
		c.Why = "setuid or setgid"
	}
	// A link gives what it leads to another name, and so perhaps another meaning.
	if c.Why == "" && c.After != nil && c.After.Type == Symlink {
		if why := k.why(strings.TrimLeft(string(c.After.Link), "./")); why != "" {
			c.Why = "link to: " + why
		}
	}
	c.RunsOnHost = c.Why != ""
	return c
}

func executable(e *Entry) bool { return e != nil && e.Type == File && e.Mode&0o111 != 0 }
