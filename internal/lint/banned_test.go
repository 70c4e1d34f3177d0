package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// shells are the files that may look at the real clock: the thin layers that run a step function of (now,
// event) in real time, each with its reason. A name that ends in "/" is a folder.
var shells = map[string]string{
	"cmd/":                       "the process itself",
	"internal/bench/":            "times real servers",
	"internal/testenv/":          "starts servers for tests",
	"kv/kvbench/":                "times stores",
	"internal/testserver/":       "runs real servers in tests",
	"internal/engine/loop.go":    "sleeps until what is due",
	"internal/engine/instant.go": "the real time source that the engine is given by default",
}

// bannedCalls are calls that shipped code must not make, but for the files that begin with one of except.
var bannedCalls = []struct {
	pkg, name string // name "" stands for all of the package's functions
	except    []string
	why       string
}{
	{"time", "Now", keys(shells), "take the instant as an argument, or the engine's time source"},
	{"time", "Since", keys(shells), "take the instant as an argument, or the engine's time source"},
	{"time", "Until", keys(shells), "take the instant as an argument, or the engine's time source"},
	{"fmt", "Print", []string{"cmd/"}, "only cmd prints; log with the logger that was handed in, or return it"},
	{"fmt", "Println", []string{"cmd/"}, "only cmd prints; log with the logger that was handed in, or return it"},
	{"fmt", "Printf", []string{"cmd/"}, "only cmd prints; log with the logger that was handed in, or return it"},
	{"log", "", nil, "use the slog.Logger that was handed in"},
	{"slog", "Default", nil, "use the slog.Logger that was handed in"},
	{"slog", "SetDefault", nil, "hand the logger down instead"},
	{"os", "Getenv", []string{"cmd/", "internal/testenv/"}, "cmd is the only reader of the environment; take an option"},
	{"os", "LookupEnv", []string{"cmd/"}, "cmd is the only reader of the environment; take an option"},
	{"os", "Environ", []string{"cmd/"}, "cmd is the only reader of the environment; take an option"},
	{"os", "Exit", []string{"cmd/", "e2e/database/"}, "return an error; cmd decides how the process ends"},
}

func keys(m map[string]string) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	return names
}

func excepted(name string, except []string) bool {
	return slices.ContainsFunc(except, func(e string) bool {
		return name == e || (strings.HasSuffix(e, "/") && strings.HasPrefix(name, e))
	})
}

// checkCalls finds banned calls, and uses of banned functions as values.
func checkCalls(f *goFile) []finding {
	if f.test {
		return nil
	}
	packages := importedNames(f.tree)
	var found []finding
	ast.Inspect(f.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			for _, b := range bannedCalls {
				if packages[x.Name] == b.pkg && (b.name == "" || b.name == n.Sel.Name) && !excepted(f.path, b.except) {
					found = append(found, f.at(n.Pos(), "%s.%s: %s", b.pkg, n.Sel.Name, b.why))
				}
			}
		case *ast.CallExpr:
			if name, ok := n.Fun.(*ast.Ident); ok && (name.Name == "print" || name.Name == "println") {
				found = append(found, f.at(n.Pos(), "%s is left over from debugging", name.Name))
			}
		case *ast.GoStmt:
			if coveredBy(core, f.dir) {
				found = append(found, f.at(n.Pos(), "the machine starts no goroutines"))
			}
		}
		return true
	})
	return found
}

// importedNames gives the last element of the import path by the name that the file uses for it.
func importedNames(tree *ast.File) map[string]string {
	names := map[string]string{}
	for _, spec := range tree.Imports {
		full, _ := strconv.Unquote(spec.Path.Value)
		if strings.Contains(strings.Split(full, "/")[0], ".") {
			continue
		}
		base := path.Base(full)
		if spec.Name != nil {
			names[spec.Name.Name] = base
		} else {
			names[base] = base
		}
	}
	return names
}

// vagueNames say nothing about what is inside.
var vagueNames = regexp.MustCompile(`(?i)^(utils?|common|helpers?|managers?|misc|shared|base|lib|types)$`)

// checkNames finds folders and files whose names say nothing. It is given every file of the repository.
func checkNames(name string) []finding {
	parts := strings.Split(name, "/")
	last := len(parts) - 1
	parts[last], _, _ = strings.Cut(parts[last], ".")
	parts[last] = strings.TrimSuffix(parts[last], "_test")
	var found []finding
	for i, part := range parts {
		if vagueNames.MatchString(part) && (i == last || part != "types") {
			found = append(found, finding{name, 0, fmt.Sprintf("the name %q says nothing: name the thing that is in it", part)})
		}
	}
	return found
}

// Marks of unfinished work. Split so that this file does not find itself.
var leftOver = regexp.MustCompile(`\b(` + strings.Join([]string{"TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"}, "|") + `)\b`)

// machinePath is a folder that exists on one machine only, or the address of a host that only one network
// knows.
var machinePath = regexp.MustCompile(`(^|[\s"'=(` + "`" + `])(/home/[a-z]|/Users/[A-Za-z]|/root/|/work/|/workspace/|/mnt/[a-z]|[A-Z]:\\Users\\)` +
	`|https?://(10\.\d+\.\d+\.\d+|192\.168\.\d+\.\d+|172\.(1[6-9]|2\d|3[01])\.\d+\.\d+|[a-z0-9.-]+\.(internal|corp|lan|intranet))\b`)

// publicRegistry begins the addresses of packages that anybody can fetch.
const publicRegistry = `"resolved": "https://registry.npmjs.org/`

// checkText finds what must not stay in any text of the repository.
func checkText(name string, text []byte) []finding {
	var found []finding
	for i, line := range bytes.Split(text, []byte("\n")) {
		at := func(what string) { found = append(found, finding{name, i + 1, what}) }
		if mark := leftOver.Find(line); mark != nil {
			at(fmt.Sprintf("%s: finish it, or file an issue and say nothing here", mark))
		}
		if machinePath.Match(line) {
			at("a path or host of one machine: use a relative path, a temporary folder, or a setting")
		}
		if bytes.Contains(line, []byte(`"resolved": "http`)) && !bytes.Contains(line, []byte(publicRegistry)) {
			at("a lock file names a registry that others cannot reach: leave the address out")
		}
	}
	return found
}

// isText tells by its beginning whether a file is one.
func isText(content []byte) bool {
	return !bytes.Contains(content[:min(len(content), 8000)], []byte{0})
}

func TestCalls(t *testing.T) { everyFile(t, checkCalls) }

func TestNamesAndTexts(t *testing.T) {
	err := walk(func(name string) error {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		found := checkNames(name)
		if isText(content) && !strings.HasPrefix(name, "internal/lint/") {
			found = append(found, checkText(name, content)...)
		}
		for _, f := range found {
			t.Error(f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
