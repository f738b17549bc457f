package lazyregexp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestCompiledOnceOnFirstUse(t *testing.T) {
	r := Regexp{Pattern: `^(a+)b$`}
	if r.regexp != nil {
		t.Error("compiled before it is used")
	}
	if m := r.FindStringSubmatch("aab"); len(m) != 2 || m[1] != "aa" {
		t.Errorf("found %q", m)
	}
	first := r.regexp
	if !r.MatchString("ab") || r.regexp != first {
		t.Error("compiled again")
	}
}

// TestEveryPatternOfTheProductCompiles reads the sources of all packages: no pattern waits for its first use to be found wrong, and
// nothing but this package compiles one.
func TestEveryPatternOfTheProductCompiles(t *testing.T) {
	patterns := 0
	fset := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.HasPrefix(path, "../testkit/") || strings.HasPrefix(path, "../lazyregexp/") {
			return err
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if name := selector(n.Fun); name == "regexp.MustCompile" || name == "regexp.Compile" {
					t.Errorf("%s: %s compiles each time, or at every start: use a lazyregexp.Regexp", fset.Position(n.Pos()), name)
				}
			case *ast.CompositeLit:
				if selector(n.Type) != "lazyregexp.Regexp" {
					return true
				}
				patterns++
				pattern, ok := constant(n.Elts[0].(*ast.KeyValueExpr).Value)
				if !ok {
					t.Errorf("%s: the pattern is no literal", fset.Position(n.Pos()))
				} else if _, err := regexp.Compile(pattern); err != nil {
					t.Errorf("%s: %v", fset.Position(n.Pos()), err)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || patterns == 0 {
		t.Errorf("%d patterns found: %v", patterns, err)
	}
}

func selector(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := s.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return x.Name + "." + s.Sel.Name
}

// constant is the value of string literals, joined by +.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil
	case *ast.BinaryExpr:
		x, okX := constant(e.X)
		y, okY := constant(e.Y)
		return x + y, okX && okY
	}
	return "", false
}
