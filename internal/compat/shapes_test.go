package compat

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// block is a document or an enumeration: what is written of it, a line each, sorted. Only the lines are compared: the label is
// for readers, and stays as it is in the golden file while Go names change.
type block struct {
	label string
	lines []string
	part  bool // of another block: it need not be recorded, but a recorded block is found in it
}

// jsonBlocks are the trees of fields of all structures with JSON tags, and of all maps that are written as literals.
func jsonBlocks(pkgs []productPackage) []block {
	var tagged []*types.Struct
	labels := map[*types.Struct]string{}
	add := func(s *types.Struct, label string) {
		if _, known := labels[s]; !known && hasTags(s) {
			labels[s] = label
			tagged = append(tagged, s)
		}
	}
	var out []block
	for _, p := range pkgs {
		within := strings.TrimPrefix(p.path, "internal/")
		p.eachDecl(func(name string, d ast.Node) {
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					if s, ok := p.info.Defs[n.Name].Type().Underlying().(*types.Struct); ok && n.TypeParams == nil {
						add(s, within+" "+n.Name.Name)
					}
				case *ast.StructType:
					if s, ok := p.info.Types[n].Type.(*types.Struct); ok {
						add(s, within+" in "+name)
					}
				case *ast.CompositeLit:
					if lines := p.mapLines(n); len(lines) > 0 {
						out = append(out, block{label: within + " map in " + name, lines: lines})
					}
				}
				return true
			})
		})
	}
	contained := map[*types.Struct]bool{}
	for _, s := range tagged {
		w := treeWriter{contained: contained, open: map[*types.Struct]bool{}}
		w.fields(s, "")
		out = append(out, block{label: labels[s], lines: sorted(w.lines)})
	}
	n := len(out) - len(tagged)
	for i, s := range tagged {
		out[n+i].part = contained[s]
	}
	return out
}

// eachDecl calls visit with every declaration, and the name of the function that it is.
func (p productPackage) eachDecl(visit func(name string, d ast.Node)) {
	for _, f := range p.files {
		for _, d := range f.Decls {
			name := "package"
			if fn, ok := d.(*ast.FuncDecl); ok {
				name = fn.Name.Name
			}
			visit(name, d)
		}
	}
}

func hasTags(s *types.Struct) bool {
	for i := range s.NumFields() {
		if tag := reflect.StructTag(s.Tag(i)).Get("json"); tag != "" && tag != "-" {
			return true
		}
	}
	return false
}

// mapLines is the tree of a map literal whose values are anything or text.
func (p productPackage) mapLines(lit *ast.CompositeLit) []string {
	m, ok := p.info.Types[lit].Type.Underlying().(*types.Map)
	if !ok {
		return nil
	}
	_, anything := m.Elem().Underlying().(*types.Interface)
	if !types.Identical(m.Key(), types.Typ[types.String]) || !anything && !isText(m.Elem()) {
		return nil
	}
	w := treeWriter{contained: map[*types.Struct]bool{}, open: map[*types.Struct]bool{}}
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := p.constantText(kv.Key); ok {
				w.value(p.info.Types[kv.Value].Type, key, "") // as of a structure, which may take the place of the map
			}
		}
	}
	return sorted(w.lines)
}

// constantText is the value of an expression that is a constant text.
func (p productPackage) constantText(e ast.Expr) (string, bool) {
	if v := p.info.Types[e].Value; v != nil && v.Kind() == constant.String {
		return constant.StringVal(v), true
	}
	return "", false
}

func isText(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsString != 0
}

// treeWriter writes a type as encoding/json would: a line `path kind` for each field.
type treeWriter struct {
	lines     []string
	contained map[*types.Struct]bool // structures that stand in another
	open      map[*types.Struct]bool
}

func (w *treeWriter) fields(s *types.Struct, prefix string) {
	w.open[s] = true
	defer delete(w.open, s)
	for i := range s.NumFields() {
		f := s.Field(i)
		name, options, _ := strings.Cut(reflect.StructTag(s.Tag(i)).Get("json"), ",")
		if inner, ok := underlyingStruct(f.Type()); ok && f.Embedded() && name == "" && ownEncoding(f.Type()) == "" {
			w.contained[inner] = true
			w.fields(inner, prefix)
			continue
		}
		if name == "-" || !f.Exported() {
			continue
		}
		if name == "" {
			name = f.Name() // without a tag the Go name is what is written
		}
		if options != "" {
			options = " " + options
		}
		w.value(f.Type(), prefix+name, options)
	}
}

func (w *treeWriter) value(t types.Type, at, options string) {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	line := func(kind string) { w.lines = append(w.lines, at+" "+kind+options) }
	own := ownEncoding(t)
	if own != "" {
		line(own)
		if s, ok := underlyingStruct(t); !ok || !hasTags(s) {
			return
		}
	}
	if n, ok := types.Unalias(t).(*types.Named); ok && n.Obj().Pkg() != nil && !strings.HasPrefix(n.Obj().Pkg().Path(), modulePath+"/") {
		if own == "" {
			line(n.Obj().Pkg().Name() + "." + n.Obj().Name())
		}
		return
	}
	switch u := t.Underlying().(type) {
	case *types.Struct:
		line("object")
		if hasTags(u) {
			w.contained[u] = true
		}
		if w.open[u] {
			line("as above")
			return
		}
		w.fields(u, at+".")
	case *types.Slice:
		if b, ok := u.Elem().Underlying().(*types.Basic); ok && b.Kind() == types.Byte {
			line("bytes")
			return
		}
		w.value(u.Elem(), at+"[]", options)
	case *types.Array:
		w.value(u.Elem(), at+"["+strconv.FormatInt(u.Len(), 10)+"]", options)
	case *types.Map:
		w.value(u.Elem(), at+"{}", options)
	case *types.Basic:
		line(basicKind(u))
	case *types.Interface:
		line("any")
	default:
		line(fmt.Sprintf("%T", u))
	}
}

func basicKind(b *types.Basic) string {
	switch {
	case b.Info()&types.IsString != 0:
		return "string"
	case b.Info()&types.IsBoolean != 0:
		return "bool"
	case b.Info()&types.IsInteger != 0:
		return "int"
	case b.Info()&types.IsFloat != 0:
		return "float"
	}
	return b.Name()
}

func underlyingStruct(t types.Type) (*types.Struct, bool) {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	s, ok := t.Underlying().(*types.Struct)
	return s, ok
}

// ownEncoding says that a type writes itself, "" where it does not.
func ownEncoding(t types.Type) string {
	if n, ok := types.Unalias(t).(*types.Named); ok && n.Obj().Pkg() != nil {
		switch path.Base(n.Obj().Pkg().Path()) + "." + n.Obj().Name() {
		case "time.Time":
			return "time"
		case "json.RawMessage":
			return "raw"
		}
	}
	for method, kind := range map[string]string{"MarshalJSON": "own-json", "MarshalText": "own-text"} {
		if m, _, _ := types.LookupFieldOrMethod(t, true, nil, method); m != nil {
			return kind
		}
	}
	return ""
}

// words is a value that is shown as such, and no part of a sentence.
var words = regexp.MustCompile(`^[a-zA-Z]+( [a-z]+)*$`)

// enumerationBlocks are the values of all types of text that have constants, and all texts of methods that give a value's text.
func enumerationBlocks(pkgs []productPackage) []block {
	var out []block
	for _, p := range pkgs {
		within := strings.TrimPrefix(p.path, "internal/")
		values := map[*types.TypeName][]string{}
		for _, o := range p.info.Defs {
			c, ok := o.(*types.Const)
			if !ok || !isText(c.Type()) {
				continue
			}
			if n, ok := types.Unalias(c.Type()).(*types.Named); ok {
				values[n.Obj()] = append(values[n.Obj()], strconv.Quote(constant.StringVal(c.Val())))
			}
		}
		for t, v := range values {
			out = append(out, block{label: within + " " + t.Name(), lines: sorted(v)})
		}
		p.eachDecl(func(name string, d ast.Node) {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || !slices.Contains([]string{"String", "MarshalText", "MarshalJSON"}, name) {
				return
			}
			var lines []string
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok {
					if text, ok := p.constantText(lit); ok && words.MatchString(text) {
						lines = append(lines, strconv.Quote(text))
					}
				}
				return true
			})
			if len(lines) > 1 {
				out = append(out, block{label: within + " " + types.ExprString(fn.Recv.List[0].Type) + "." + name, lines: sorted(lines)})
			}
		})
	}
	return out
}

func sorted(lines []string) []string {
	slices.Sort(lines)
	return slices.Compact(lines)
}
