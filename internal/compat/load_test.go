package compat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const modulePath = "github.com/laufwerk/laufwerk"

// productPackage is one type-checked package of the product, without its tests.
type productPackage struct {
	path  string // below the module
	files []*ast.File
	info  *types.Info
}

// loadProduct type-checks cmd and internal, as they are built for Linux with crash points, from their sources; what they import
// from elsewhere comes from the build cache. Packages for tests and generated code are checked but not returned.
func loadProduct() ([]productPackage, *token.FileSet, error) {
	const fields = "ImportPath,Dir,Export,GoFiles,ImportMap"
	cmd := exec.Command("go", "list", "-export", "-deps", "-tags", "crashpoints", "-json="+fields, "./cmd/...", "./internal/...")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOOS=linux")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("%w\n%s", err, stderr.Bytes())
	}
	l := &loader{fset: token.NewFileSet(), exports: map[string]string{}, checked: map[string]*types.Package{}}
	l.external = importer.ForCompiler(l.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(l.exports[path]) })
	var product []productPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; { // dependencies first
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return product, l.fset, nil
		} else if err != nil {
			return nil, nil, err
		}
		l.exports[p.ImportPath] = p.Export
		rel, ours := strings.CutPrefix(p.ImportPath, modulePath+"/")
		if !ours {
			continue
		}
		pkg, err := l.check(p)
		if err != nil {
			return nil, nil, err
		}
		pkg.path = rel
		if !strings.HasPrefix(rel, "internal/testkit") && len(pkg.files) > 0 {
			product = append(product, pkg)
		}
	}
}

type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	ImportMap               map[string]string
}

type loader struct {
	fset     *token.FileSet
	exports  map[string]string
	checked  map[string]*types.Package
	external types.Importer
}

func (l *loader) check(p listedPackage) (productPackage, error) {
	pkg := productPackage{info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}}
	var all []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(l.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return pkg, err
		}
		all = append(all, f)
		if !strings.HasSuffix(name, ".pb.go") {
			pkg.files = append(pkg.files, f)
		}
	}
	config := types.Config{Importer: importing(func(path string) (*types.Package, error) {
		if mapped := p.ImportMap[path]; mapped != "" {
			path = mapped
		}
		if found := l.checked[path]; found != nil {
			return found, nil
		}
		return l.external.Import(path)
	})}
	var err error
	l.checked[p.ImportPath], err = config.Check(p.ImportPath, l.fset, all, pkg.info)
	return pkg, err
}

type importing func(path string) (*types.Package, error)

func (f importing) Import(path string) (*types.Package, error) { return f(path) }
