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

func (c *classifier) classify(ch Change) Change {
	ch.Why = c.reasonFor(ch.Path)
	if ch.Why == "" && executable(ch.After) && !executable(ch.Before) {
		ch.Why = "new executable"
	}
	if ch.Why == "" && ch.After != nil && ch.After.Type == File && ch.After.Mode&0o6000 != 0 {
		ch.Why = "setuid or setgid"
	}
	// A link gives what it leads to another name, and so perhaps another meaning.
	if ch.Why == "" && ch.After != nil && ch.After.Type == Symlink {
		if why := c.reasonFor(strings.TrimLeft(string(ch.After.Link), "./")); why != "" {
			ch.Why = "link to: " + why
		}
	}
	ch.RunsOnHost = ch.Why != ""
	return ch
}

func executable(e *Entry) bool { return e != nil && e.Type == File && e.Mode&0o111 != 0 }
