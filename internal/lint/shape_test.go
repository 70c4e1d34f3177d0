package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// Tests may be longer than what they test, because a table of cases is data.
const (
	maxFunctionLines     = 70
	maxTestFunctionLines = 120
	maxFileLines         = 500
	maxTestFileLines     = 1000
)

// wellKnown are methods whose meaning the standard library has fixed.
var wellKnown = []string{"Error", "Unwrap", "String"}

// checkFunctionLength bounds functions, from the line of func to the closing brace.
func checkFunctionLength(f *goFile) []finding {
	limit := maxFunctionLines
	if f.test {
		limit = maxTestFunctionLines
	}
	var found []finding
	for _, decl := range f.tree.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil || isDispatchTable(fn.Body) {
			continue
		}
		if lines := f.line(fn.End()) - f.line(fn.Pos()) + 1; lines > limit {
			found = append(found, f.at(fn.Pos(), "%s has %d lines, at most %d: split it where its steps have names", fn.Name.Name, lines, limit))
		}
	}
	return found
}

// isDispatchTable tells whether a body is one switch with at most two statements per case, and perhaps a return: a
// table that only looks like code, and is read best in one piece.
func isDispatchTable(body *ast.BlockStmt) bool {
	statements := body.List
	if len(statements) == 2 {
		if _, ok := statements[1].(*ast.ReturnStmt); !ok {
			return false
		}
		statements = statements[:1]
	}
	if len(statements) != 1 {
		return false
	}
	var cases *ast.BlockStmt
	switch s := statements[0].(type) {
	case *ast.SwitchStmt:
		cases = s.Body
	case *ast.TypeSwitchStmt:
		cases = s.Body
	default:
		return false
	}
	for _, c := range cases.List {
		if len(c.(*ast.CaseClause).Body) > 2 {
			return false
		}
	}
	return true
}

// checkFileLength bounds files.
func checkFileLength(f *goFile) []finding {
	limit := maxFileLines
	if f.test {
		limit = maxTestFileLines
	}
	if lines := bytes.Count(f.text, []byte("\n")); lines > limit && !isGenerated(f) {
		return []finding{{f.path, 0, fmt.Sprintf("%d lines, at most %d: split the file by concern", lines, limit)}}
	}
	return nil
}

func isGenerated(f *goFile) bool { return ast.IsGenerated(f.tree) }

// checkDocumentation wants a comment for every exported name of shipped code. One comment may stand for a
// group in parentheses, and for methods or functions that follow each other line by line.
func checkDocumentation(f *goFile) []finding {
	if f.test || isGenerated(f) {
		return nil
	}
	var found []finding
	documentedUntil := 0 // last line of a declaration that has a comment, or follows directly on one
	for _, decl := range f.tree.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			documented := d.Doc != nil || f.line(d.Pos()) == documentedUntil+1
			if documented {
				documentedUntil = f.line(d.End())
			}
			if !documented && d.Name.IsExported() && isExportedReceiver(d.Recv) && !(d.Recv != nil && slices.Contains(wellKnown, d.Name.Name)) {
				found = append(found, f.at(d.Pos(), "exported %s has no comment: say what it does, its units, limits, errors and who owns slices", d.Name.Name))
			}
		case *ast.GenDecl:
			found = append(found, undocumented(f, d)...)
		}
	}
	return found
}

func undocumented(f *goFile, d *ast.GenDecl) []finding {
	var found []finding
	for _, spec := range d.Specs {
		var names []*ast.Ident
		var doc, comment *ast.CommentGroup
		switch s := spec.(type) {
		case *ast.TypeSpec:
			names, doc, comment = []*ast.Ident{s.Name}, s.Doc, s.Comment
		case *ast.ValueSpec:
			names, doc, comment = s.Names, s.Doc, s.Comment
		}
		// A type's fields may hide behind a group's comment; a type itself may not.
		grouped := d.Doc != nil && (d.Tok != token.TYPE || !d.Lparen.IsValid())
		for _, name := range names {
			if name.IsExported() && doc == nil && comment == nil && !grouped {
				found = append(found, f.at(name.Pos(), "exported %s has no comment: say what it is, its unit and its limits", name.Name))
			}
		}
	}
	return found
}

// isExportedReceiver tells whether a function is none of a type's methods, or one of an exported type.
func isExportedReceiver(receiver *ast.FieldList) bool {
	if receiver == nil || len(receiver.List) == 0 {
		return true
	}
	t := receiver.List[0].Type
	for {
		switch inner := t.(type) {
		case *ast.StarExpr:
			t = inner.X
		case *ast.IndexExpr:
			t = inner.X
		case *ast.IndexListExpr:
			t = inner.X
		case *ast.Ident:
			return inner.IsExported()
		default:
			return true
		}
	}
}

func TestFunctionLength(t *testing.T) { everyFile(t, checkFunctionLength) }

func TestFileLength(t *testing.T) { everyFile(t, checkFileLength) }

func TestDocumentation(t *testing.T) { everyFile(t, checkDocumentation) }

// TestPackageComments wants one comment per package that says what it is.
func TestPackageComments(t *testing.T) {
	files, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, f := range files {
		if f.test {
			continue
		}
		text := f.tree.Doc.Text()
		right := strings.HasPrefix(text, "Package "+f.tree.Name.Name+" ") || (f.tree.Name.Name == "main" && strings.HasPrefix(text, "Command "))
		documented[f.dir] = documented[f.dir] || right
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no file has a comment that begins with \"Package <name>\" (or \"Command <name>\"): say what the package is for and what it does not do", dir)
		}
	}
}
