// Package config reads configuration files: TOML, as a flat list of settings with the line that each stands on. What
// settings there are and what they mean is for the caller; this package finds the file, takes it apart, and knows which
// name was probably meant.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// MaxFileBytes is the largest file that is read.
const MaxFileBytes = 1 << 20

// FileNames are what a configuration file is called, the preferred name first. The second is the reference server's.
var FileNames = []string{"abide.toml", "resonate.toml"}

// Setting is one value of a file.
type Setting struct {
	// Key is the whole key, with dots: server.port.
	Key string
	// Value is a string, an int64, a float64, a bool, or a []any of those; nil for a table in which there is nothing.
	Value any
	// Line counts from 1.
	Line int
}

// Search finds the file of a folder: the first of FileNames in it, else in its parent, and so on up to the root, as the
// reference server does. The path is empty if there is none. The error is a folder that cannot be looked into.
func Search(dir string) (path string, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		for _, name := range FileNames {
			path := filepath.Join(dir, name)
			switch info, err := os.Stat(path); {
			case err == nil && info.Mode().IsRegular():
				return path, nil
			case err != nil && !errors.Is(err, fs.ErrNotExist):
				return "", err
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", nil
		}
		dir = parent
	}
}

// ReadFile reads a file of at most limit bytes; a larger one is an error. It does not ask how large the file says that it
// is: devices and pipes do not know.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return text, err
}

// Load reads the settings of a file. The error names the file and, if it is about the text, the line.
func Load(path string) ([]Setting, error) {
	text, err := ReadFile(path, MaxFileBytes)
	if err != nil {
		return nil, err
	}
	settings, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	return settings, nil
}

// Parse takes a file apart. The settings come in the order of their lines. The error begins with the line: "3: ...".
func Parse(text []byte) ([]Setting, error) {
	var values map[string]any
	if err := toml.Unmarshal(text, &values); err != nil {
		var at *toml.DecodeError
		if errors.As(err, &at) {
			line, _ := at.Position()
			return nil, fmt.Errorf("%d: %s", line, strings.TrimPrefix(at.Error(), "toml: "))
		}
		return nil, fmt.Errorf("1: %w", err)
	}
	lines := linesOf(text)
	settings := flatten(nil, "", values)
	for i := range settings {
		settings[i].Line = lines[settings[i].Key]
	}
	slices.SortFunc(settings, func(a, b Setting) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return strings.Compare(a.Key, b.Key)
	})
	for _, s := range settings {
		if err := check(s.Value); err != nil {
			return nil, fmt.Errorf("%d: %s: %w", s.Line, s.Key, err)
		}
	}
	return settings, nil
}

// flatten appends every value that is no table, and every empty table.
func flatten(dst []Setting, prefix string, values map[string]any) []Setting {
	for name, value := range values {
		key := join(prefix, name)
		table, ok := value.(map[string]any)
		switch {
		case !ok:
			dst = append(dst, Setting{Key: key, Value: value})
		case len(table) == 0:
			dst = append(dst, Setting{Key: key})
		default:
			dst = flatten(dst, key, table)
		}
	}
	return dst
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// check refuses what no setting is.
func check(value any) error {
	switch v := value.(type) {
	case nil, string, int64, float64, bool:
		return nil
	case []any:
		for _, item := range v {
			switch item.(type) {
			case string, int64, float64, bool:
			default:
				return errors.New("settings are lists of strings, numbers or truth values, and no other lists")
			}
		}
		return nil
	case time.Time, toml.LocalDate, toml.LocalTime, toml.LocalDateTime:
		return errors.New("no setting is a date or a time of day; write a span of time as a string, such as \"30s\"")
	}
	return fmt.Errorf("no setting is a %T", value)
}

// linesOf gives the line on which each key stands. The text is known to be TOML.
func linesOf(text []byte) map[string]int {
	lines := map[string]int{}
	var p unstable.Parser
	p.Reset(text)
	table := ""
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table, _ = keyOf(&p, "", e.Key())
			lines[table] = lineOf(&p, e.Key())
		case unstable.KeyValue:
			noteLines(&p, table, e, lines)
		}
	}
	return lines
}

// noteLines notes the line of a key and, if its value is an inline table, of the keys in that.
func noteLines(p *unstable.Parser, table string, e *unstable.Node, lines map[string]int) {
	key, line := keyOf(p, table, e.Key())
	lines[key] = line
	if e.Value().Kind != unstable.InlineTable {
		return
	}
	for inner := e.Value().Children(); inner.Next(); {
		if inner.Node().Kind == unstable.KeyValue {
			noteLines(p, key, inner.Node(), lines)
		}
	}
}

func keyOf(p *unstable.Parser, table string, parts unstable.Iterator) (key string, line int) {
	key = table
	for parts.Next() {
		key = join(key, string(parts.Node().Data))
		line = p.Shape(parts.Node().Raw).Start.Line
	}
	return key, line
}

func lineOf(p *unstable.Parser, parts unstable.Iterator) int {
	_, line := keyOf(p, "", parts)
	return line
}
