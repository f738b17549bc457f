package compat

import (
	"go/ast"
	"go/token"
	"go/types"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

var (
	// nameShape is a text that can be a name: no sentence, no pattern of a format.
	nameShape = regexp.MustCompile(`^[A-Za-z0-9_.:/@#~=*+-]{1,80}$`)
	// ownName are texts that carry our own name, and formats that begin with it.
	ownName = regexp.MustCompile(`^[/._@]*laufwerk[A-Za-z0-9_.:/@%-]*( |( [0-9].*))?$`)
	// slashed are the names of crash points, whole or up to what is appended.
	slashed  = regexp.MustCompile(`^[a-z]+/[a-z-]+$`)
	variable = regexp.MustCompile(`LAUFWERK_[A-Z_]*`)
	label    = regexp.MustCompile(`dev\.laufwerk[A-Za-z0-9_.-]*`)
	hidden   = regexp.MustCompile(`^_{2,}[A-Za-z-]+`)
	fileName = regexp.MustCompile(`^[A-Za-z0-9_./-]*\.(json|ndjson|db|log|toml|lock|sock|pem|crt|ts|js|txt)$`)
)

// nameLines are all other names that are written, found by how they look and where they stand: a line `kind: "name"`
// each. "name" is what is a constant, the key of a map, part of a path, or given to what opens files or makes documents.
func nameLines(pkgs []productPackage) []string {
	var c nameCollector
	for _, p := range pkgs {
		c.productPackage = p
		for _, o := range p.info.Defs {
			if k, ok := o.(*types.Const); ok && types.Identical(types.Default(k.Type()), types.Typ[types.String]) {
				c.named("name", unquoted(k))
			}
		}
		for _, f := range p.files {
			ast.Inspect(f, c.visit)
		}
	}
	return sorted(c.lines)
}

func unquoted(k *types.Const) string {
	text, _ := strconv.Unquote(k.Val().ExactString())
	return text
}

type nameCollector struct {
	productPackage
	lines []string
}

func (c *nameCollector) add(where, name string) {
	c.lines = append(c.lines, where+": "+strconv.Quote(name))
}

func (c *nameCollector) named(where, text string) {
	if nameShape.MatchString(text) {
		c.add(where, text)
	}
}

func (c *nameCollector) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.Field:
		return n.Tag == nil // tags are no texts
	case *ast.ImportSpec:
		return false
	case *ast.BasicLit:
		if n.Kind == token.STRING {
			if text, err := strconv.Unquote(n.Value); err == nil {
				c.literal(text)
			}
		}
	case *ast.CompositeLit:
		c.composite(n)
	case *ast.CallExpr:
		c.call(n)
	case *ast.BinaryExpr:
		if n.Op == token.EQL || n.Op == token.NEQ {
			c.fieldValue(n.X, n.Y)
			c.fieldValue(n.Y, n.X)
		}
	case *ast.AssignStmt:
		for i := range min(len(n.Lhs), len(n.Rhs)) {
			c.fieldValue(n.Lhs[i], n.Rhs[i])
		}
	case *ast.SwitchStmt:
		for _, clause := range n.Body.List {
			for _, e := range clause.(*ast.CaseClause).List {
				c.fieldValue(n.Tag, e)
			}
		}
	case *ast.IndexExpr:
		if m, ok := c.info.Types[n.X].Type.Underlying().(*types.Map); ok && isText(m.Key()) {
			if text, ok := c.constantText(n.Index); ok {
				c.named("name", text)
			}
		}
	}
	return true
}

func (c *nameCollector) literal(text string) {
	for _, v := range variable.FindAllString(text, -1) {
		c.add("variable", v)
	}
	for _, l := range label.FindAllString(text, -1) {
		c.add("label", l)
	}
	switch {
	case ownName.MatchString(text):
		c.add("our name", text)
	case slashed.MatchString(text):
		c.add("crash point or path", text)
	case hidden.MatchString(text):
		c.add("hidden", hidden.FindString(text))
	case fileName.MatchString(text):
		c.add("file", text)
	}
}

// composite finds what is put into the fields of documents, and the keys of maps that are no documents.
func (c *nameCollector) composite(lit *ast.CompositeLit) {
	t := c.info.Types[lit].Type
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	switch u := t.Underlying().(type) {
	case *types.Struct:
		for i, e := range lit.Elts {
			tag, value := "", e
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				value = kv.Value
				if field, ok := c.info.Uses[kv.Key.(*ast.Ident)].(*types.Var); ok {
					tag = tagOf(u, field)
				}
			} else if i < u.NumFields() {
				tag = tagOf(u, u.Field(i))
			}
			if text, ok := c.constantText(value); ok && tag != "" {
				c.named("value of "+tag, text)
			}
		}
	case *types.Map:
		for _, e := range lit.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if text, ok := c.constantText(kv.Key); ok {
					c.named("name", text)
				}
			}
		}
	}
}

// tagOf is a field's name in documents.
func tagOf(s *types.Struct, field *types.Var) string {
	for i := range s.NumFields() {
		if s.Field(i) == field {
			name, _, _ := strings.Cut(reflect.StructTag(s.Tag(i)).Get("json"), ",")
			return name
		}
	}
	return ""
}

// fieldValue finds a constant that is compared with, or assigned to, the field of a document.
func (c *nameCollector) fieldValue(of, value ast.Expr) {
	sel, ok := of.(*ast.SelectorExpr)
	text, constant := "", false
	if ok {
		text, constant = c.constantText(value)
	}
	if !constant || c.info.Selections[sel] == nil {
		return
	}
	if s, ok := underlyingStruct(c.info.Types[sel.X].Type); ok {
		if field, ok := c.info.Selections[sel].Obj().(*types.Var); ok {
			if tag := tagOf(s, field); tag != "" {
				c.named("value of "+tag, text)
			}
		}
	}
}

// call finds names that are given to what joins or opens paths, and to what makes documents.
func (c *nameCollector) call(call *ast.CallExpr) {
	callee := c.callee(call)
	if callee == nil || callee.Pkg() == nil {
		return
	}
	pkg, ours := strings.CutPrefix(callee.Pkg().Path(), modulePath+"/")
	joins := callee.Name() == "Join" && (pkg == "path" || pkg == "path/filepath")
	opens := strings.HasPrefix(pkg, "internal/system/") && !strings.HasPrefix(c.path, "internal/system") // below it are the names of calls
	if !joins && !(ours && (opens || makesDocument(callee))) {
		return
	}
	for _, a := range call.Args {
		c.parts(a)
	}
}

// parts are the constants that an argument is, or is put together from.
func (c *nameCollector) parts(e ast.Expr) {
	if text, ok := c.constantText(e); ok && !slashed.MatchString(text) {
		c.named("name", text)
	} else if sum, ok := e.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
		c.parts(sum.X)
		c.parts(sum.Y)
	}
}

func (c *nameCollector) callee(call *ast.CallExpr) *types.Func {
	var id *ast.Ident
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	}
	if id == nil {
		return nil
	}
	f, _ := c.info.Uses[id].(*types.Func)
	return f
}

func makesDocument(f *types.Func) bool {
	results := f.Signature().Results()
	if results.Len() == 0 {
		return false
	}
	s, ok := underlyingStruct(results.At(0).Type())
	return ok && hasTags(s)
}
