package mutant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fewest is how many mutants there are at least.
const fewest = 40

// TestMutantsFit is what plain go test checks of every mutant.
func TestMutantsFit(t *testing.T) {
	all, err := mutants()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < fewest {
		t.Errorf("%d mutants, there should be %d", len(all), fewest)
	}
	wanted := map[string]bool{}
	for _, m := range all {
		for _, folder := range m.folders() {
			wanted[folder] = true
		}
	}
	built, err := compile(slices.Sorted(maps.Keys(wanted)))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		changed, err := m.apply(readFile)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := built.check(m.folders(), changed); err != nil {
			t.Errorf("%s does not compile: %v", m.name, err)
		}
		for _, test := range m.tests {
			if err := test.exists(); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	}
}

// exists looks for a test function that begins as the pattern does.
func (n namedTest) exists() error {
	name, _, _ := strings.Cut(strings.TrimPrefix(n.run, "^"), "/")
	name = strings.TrimSuffix(name, "$")
	files, err := filepath.Glob(filepath.Join(root, n.folder, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte("func "+name)) {
			return nil
		}
	}
	return fmt.Errorf("there is no %s in %s", name, n.folder)
}

// compiled is what go build knows of packages: their files, and the types that they export.
type compiled struct {
	packages []listed // what others import comes first
	files    *token.FileSet
	imports  types.Importer
}

type listed struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
	folder                  string // as "./internal/machine"
}

// compile builds some packages as they are.
func compile(folders []string) (*compiled, error) {
	args := append([]string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles", "--"}, folders...)
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%v\n%s", err, stderr.Bytes())
	}
	top, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	c := &compiled{files: token.NewFileSet()}
	exports := map[string]string{} // import path -> file
	c.imports = importer.ForCompiler(c.files, "gc", func(name string) (io.ReadCloser, error) { return os.Open(exports[name]) })
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			return c, nil
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if folder, err := filepath.Rel(top, p.Dir); err == nil {
			p.folder = "./" + filepath.ToSlash(folder)
		}
		c.packages = append(c.packages, p)
	}
}

// check compiles packages with some files changed, as far as errors show.
func (c *compiled) check(folders []string, changed map[string]string) error {
	imports := changedImports{c.imports, map[string]*types.Package{}}
	for _, p := range c.packages {
		if !slices.Contains(folders, p.folder) {
			continue
		}
		var trees []*ast.File
		for _, name := range p.GoFiles {
			var text any // nil: as it is on disk
			if t, ok := changed[strings.TrimPrefix(p.folder, "./")+"/"+name]; ok {
				text = t
			}
			tree, err := parser.ParseFile(c.files, filepath.Join(p.Dir, name), text, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			trees = append(trees, tree)
		}
		config := types.Config{Importer: imports}
		checked, err := config.Check(p.ImportPath, c.files, trees, nil)
		if err != nil {
			return err
		}
		imports.changed[p.ImportPath] = checked
	}
	if len(imports.changed) != len(folders) {
		return fmt.Errorf("%v are not all packages", folders)
	}
	return nil
}

// changedImports imports the packages that a mutant has changed, and the others as they were built.
type changedImports struct {
	types.Importer
	changed map[string]*types.Package
}

func (i changedImports) Import(name string) (*types.Package, error) {
	if p := i.changed[name]; p != nil {
		return p, nil
	}
	return i.Importer.Import(name)
}
