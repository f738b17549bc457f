// Package vocabulary holds the names of the code to the field's words: a type is a noun phrase, a function a verb, and a private
// word that a newcomer has to learn is neither.
package vocabulary

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// banned are words that no file, package-level name, field or method has, whole: "goOn" is in goOnWith, and not in cargoOnce. What they
// hide is said by the field's word: a path, directory or position instead of a place, inspect or observe instead of look.
func banned() []string {
	return []string{
		"apart", "besides", "elsewhere", "goOn", "held", "look", "looked", "looks", "mine", "ours", "place", "placed", "places", "spoilt",
		"strange", "told", "untold", "wayOn",
	}
}

// TestNames reads all files, whatever their build tags are.
func TestNames(t *testing.T) {
	found, err := bannedNames("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) > 0 {
		t.Errorf("%d names with words that the code does not use (gopls rename renames them):\n%s", len(found), strings.Join(found, "\n"))
	}
}

func bannedNames(root string) (found []string, err error) {
	fset := token.NewFileSet()
	seen := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "testdata" || e.Name() == "node_modules" || path != root && strings.HasPrefix(e.Name(), ".")):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".pb.go"):
			return nil
		}
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if word := bannedWord(strings.TrimSuffix(e.Name(), ".go")); word != "" {
			rel, _ := filepath.Rel(root, path)
			seen[fmt.Sprintf("%s (%s)", filepath.ToSlash(rel), word)] = true
		}
		for _, id := range declared(f) {
			if word := bannedWord(id.Name); word != "" {
				at := fset.Position(id.Pos())
				rel, _ := filepath.Rel(root, at.Filename)
				seen[fmt.Sprintf("%s:%d: %s (%s)", filepath.ToSlash(rel), at.Line, id.Name, word)] = true
			}
		}
		return nil
	})
	return slices.Sorted(maps.Keys(seen)), err
}

// declared are the package-level names of a file, its methods, and the fields and methods of its types.
func declared(f *ast.File) (out []*ast.Ident) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			out = append(out, d.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					out = append(out, s.Names...)
				case *ast.TypeSpec:
					out = append(out, s.Name)
					out = append(out, members(s.Type)...)
				}
			}
		}
	}
	return append(out, f.Name)
}

func members(t ast.Expr) (out []*ast.Ident) {
	ast.Inspect(t, func(n ast.Node) bool {
		var list *ast.FieldList
		switch n := n.(type) {
		case *ast.StructType:
			list = n.Fields
		case *ast.InterfaceType:
			list = n.Methods
		case *ast.FuncType:
			return false // parameters are nobody else's
		}
		if list != nil {
			for _, field := range list.List {
				out = append(out, field.Names...)
			}
		}
		return true
	})
	return out
}

// bannedWord is the first banned word of a name, "" where it has none.
func bannedWord(name string) string {
	of := "." + strings.Join(splitWords(name), ".") + "."
	for _, b := range banned() {
		if strings.Contains(of, "."+strings.Join(splitWords(b), ".")+".") {
			return b
		}
	}
	return ""
}

// splitWords are the words of a camel-case name in small letters: HTTPServer2 is http and server2.
func splitWords(name string) (words []string) {
	runes := []rune(name)
	start := 0
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || runes[i] == '_' || unicode.IsUpper(runes[i]) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			if word := strings.Trim(string(runes[start:i]), "_"); word != "" {
				words = append(words, strings.ToLower(word))
			}
			start = i
		}
	}
	return words
}

func TestSplitWords(t *testing.T) {
	for name, want := range map[string]string{
		"wayOn": "way on", "HTTPServer": "http server", "lookAt": "look at", "outlook": "outlook", "a_place": "a place", "ErrSpoilt": "err spoilt", "URL": "url", "": "",
	} {
		if got := strings.Join(splitWords(name), " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"goOnWith": "goOn", "cargoOnce": "", "Place": "place", "Replace": "", "placeholder": ""} {
		if got := bannedWord(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
