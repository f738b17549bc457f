package app_test

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

	"github.com/laufwerk/laufwerk/e2e"
)

var plainWord = regexp.MustCompile(`^[a-z][a-z-]*$`)

// The next command that a message names is one that is there. What is looked at are the texts of hints and fixes in the
// sources: their words before the first flag, placeholder or comment.
func TestHintsNameCommandsThatAreThere(t *testing.T) {
	root, seen := e2e.CommandTree(t), 0
	check := func(at token.Position, text string) {
		for line := range strings.Lines(text) {
			line, _, _ = strings.Cut(line, " #")
			for _, part := range strings.Split(line, "&&") {
				words := strings.Fields(part)
				if len(words) == 0 || words[0] != "laufwerk" {
					continue
				}
				words = words[1:]
				for n, w := range words {
					if !plainWord.MatchString(w) {
						words = words[:n]
						break
					}
				}
				if len(words) == 0 {
					continue
				}
				seen++
				cmd, rest, err := root.Find(words)
				if err == nil && len(rest) > 0 {
					err = cmd.ValidateArgs(rest)
				}
				if err != nil || len(rest) > 0 && cmd.HasSubCommands() {
					t.Errorf("%s: there is no command `laufwerk %s`: %v", at, strings.Join(words, " "), err)
				}
			}
		}
	}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			name, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || name.Sel.Name != "WithHint" {
				return true
			}
			if lit, ok := call.Args[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					check(set.Position(lit.Pos()), text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || seen < 50 {
		t.Errorf("%d commands were looked at: %v", seen, err)
	}
}
