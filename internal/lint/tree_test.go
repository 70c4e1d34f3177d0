package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// module is the module's path; imports below it are the repository's own.
const module = "abide"

// goFile is one parsed file of the repository.
type goFile struct {
	path string // from the root, with slashes
	dir  string // the package's
	test bool
	text []byte
	fset *token.FileSet
	tree *ast.File
}

func (f *goFile) line(pos token.Pos) int { return f.fset.Position(pos).Line }

// finding is one breach of a rule.
type finding struct {
	path string
	line int // 0 stands for the whole file
	text string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.text) }

func (f *goFile) at(pos token.Pos, format string, args ...any) finding {
	return finding{f.path, f.line(pos), fmt.Sprintf(format, args...)}
}

func parse(name string, text []byte) (*goFile, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	return &goFile{
		path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), text: text, fset: fset, tree: tree,
	}, err
}

const root = "../.."

// skips tells whether a folder holds nothing of ours: what tools keep and builds leave behind.
func skips(folder string) bool {
	hidden := strings.HasPrefix(folder, ".") && folder != ".ci" && folder != ".github" && !strings.HasPrefix(folder, "..")
	return hidden || slices.Contains([]string{"node_modules", "testdata", "bin", "dist", "__pycache__"}, folder)
}

// walk calls visit for every file of the repository.
func walk(visit func(name string) error) error {
	return filepath.WalkDir(root, func(full string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skips(entry.Name()):
			return filepath.SkipDir
		case !entry.Type().IsRegular(), entry.Name() == ".git": // which is a file in a worktree
			return nil
		}
		name, err := filepath.Rel(root, full)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(name))
	})
}

// repository parses every Go file, once for all tests.
var repository = sync.OnceValues(func() ([]*goFile, error) {
	var files []*goFile
	err := walk(func(name string) error {
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		file, err := parse(name, text)
		files = append(files, file)
		return err
	})
	return files, err
})

// everyFile applies a rule to every Go file and reports what it finds.
func everyFile(t *testing.T, rule func(*goFile) []finding) {
	t.Helper()
	files, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go files found: the rules have checked nothing")
	}
	for _, f := range files {
		for _, finding := range rule(f) {
			t.Error(finding)
		}
	}
}
