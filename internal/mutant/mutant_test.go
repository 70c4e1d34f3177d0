package mutant

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	// root is the repository, as tests see it.
	root = "../.."
	// maxSeeds bounds the simulation of one mutant.
	maxSeeds = 1000
)

// mutant is one planted fault.
type mutant struct {
	name   string
	rule   string
	source string
	tests  []namedTest
	seeds  int
	edits  []edit
}

// namedTest is a package with the tests of it that are to run.
type namedTest struct{ folder, run string }

// edit is a change of one file.
type edit struct {
	file     string // from the root, with slashes
	old, new string
}

// parseMutant reads a mutant's file.
func parseMutant(name, text string) (*mutant, error) {
	m := &mutant{name: name, seeds: -1}
	wrong := func(n int, format string, args ...any) (*mutant, error) {
		return nil, fmt.Errorf("%s, line %d: %s", name, n+1, fmt.Sprintf(format, args...))
	}
	var block *[]string
	var old, replacement []string
	finish := func() {
		if n := len(m.edits); n > 0 {
			m.edits[n-1].old, m.edits[n-1].new = strings.Join(old, "\n"), strings.Join(replacement, "\n")
		}
		old, replacement = nil, nil
	}
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch file, begins := strings.CutPrefix(line, "--- "); {
		case begins:
			finish()
			m.edits = append(m.edits, edit{file: file})
			block = &old
		case line == "+++":
			if block != &old {
				return wrong(n, "+++ without the text before it")
			}
			block = &replacement
		case block != nil:
			*block = append(*block, line)
		case line != "":
			if err := m.setField(line); err != nil {
				return wrong(n, "%v", err)
			}
		}
	}
	finish()
	switch {
	case m.rule == "" || m.source == "" || len(m.tests) == 0 || m.seeds < 0:
		return wrong(0, "rule, source, test and seeds must all be given")
	case len(m.edits) == 0:
		return wrong(0, "no change: a line '--- path' begins one")
	}
	return m, nil
}

func (m *mutant) setField(line string) error {
	field, value, ok := strings.Cut(line, ": ")
	if !ok {
		return fmt.Errorf("%q is not a field and its value", line)
	}
	switch field {
	case "rule":
		m.rule = value
	case "source":
		m.source = value
	case "test":
		folder, run, ok := strings.Cut(value, " -run ")
		if !ok || !strings.HasPrefix(folder, "./") {
			return fmt.Errorf("%q is not './folder -run pattern'", value)
		}
		m.tests = append(m.tests, namedTest{folder, run})
	case "seeds":
		seeds, err := strconv.Atoi(value)
		if err != nil || seeds < 0 || seeds > maxSeeds {
			return fmt.Errorf("%q is not a number of seeds, 0 to %d", value, maxSeeds)
		}
		m.seeds = seeds
	default:
		return fmt.Errorf("there is no field %q", field)
	}
	return nil
}

// apply returns the changed files by their names.
func (m *mutant) apply(read func(name string) ([]byte, error)) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.edits {
		text, ok := files[e.file]
		if !ok {
			content, err := read(e.file)
			if err != nil {
				return nil, err
			}
			text = string(content)
		}
		switch n := strings.Count(text, e.old); {
		case e.old == "" || e.old == e.new:
			return nil, fmt.Errorf("%s: the change of %s changes nothing", m.name, e.file)
		case n != 1:
			return nil, fmt.Errorf("%s: its text occurs %d times in %s, not once; mend the mutant with what has changed:\n%s", m.name, n, e.file, e.old)
		}
		files[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return files, nil
}

// readFile reads a file of the repository.
func readFile(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
}

// folders are the packages that the mutant changes.
func (m *mutant) folders() []string {
	var out []string
	for _, e := range m.edits {
		if folder := "./" + path.Dir(e.file); !slices.Contains(out, folder) {
			out = append(out, folder)
		}
	}
	return out
}

// mutants reads all of them, in the order of their names.
func mutants() ([]*mutant, error) {
	files, err := filepath.Glob("mutants/*.txt")
	if err != nil {
		return nil, err
	}
	var all []*mutant
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		m, err := parseMutant(strings.TrimSuffix(filepath.Base(file), ".txt"), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}
