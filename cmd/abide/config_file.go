package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"abide/internal/config"
)

// fileSettings is on every command that reads a configuration file: those that have this flag.
type fileSettings struct {
	Config *string `placeholder:"FILE" help:"Configuration file in TOML; by default abide.toml, or resonate.toml, in the current folder or the nearest one above. Empty for none. ($ABIDE_CONFIG)"`
}

// BeforeResolve reads the file ahead of the flags that it holds, so that what is wrong with it is not said of one of
// them. kong calls it.
func (*fileSettings) BeforeResolve(parsed *kong.Context, env *environment) error {
	_, err := env.readFile(parsed)
	return err
}

const (
	configFlag     = "config"
	configVariable = "ABIDE_CONFIG"
	// fileSuffix at the end of a secret's key names a file that holds the secret, in the environment and in the file.
	fileSuffix = "_file"
)

// referenceOnly are settings of the reference server that this version does not have, and that change nothing
// about what it promises: a file that has them is taken as it is, and the log says so.
var referenceOnly = []string{
	"transports.http_poll.enabled",
}

// settingsFile is a configuration file that has been read.
type settingsFile struct {
	path    string // empty: there is none
	values  map[string]config.Setting
	ignored []config.Setting // of referenceOnly
}

// place is where a setting stands, for messages.
func (f *settingsFile) place(s config.Setting) string {
	return fmt.Sprintf("%s:%d: %s", f.path, s.Line, s.Key)
}

// readFile reads the configuration file of the command that is being parsed, once. Nil if the command reads none.
func (e *environment) readFile(parsed *kong.Context) (*settingsFile, error) {
	if e.file != nil || e.fileError != nil {
		return e.file, e.fileError
	}
	path, err := e.filePath(parsed)
	if err == nil && path == "" {
		e.file = &settingsFile{}
		return e.file, nil
	}
	var settings []config.Setting
	if err == nil {
		settings, err = config.Load(path)
	}
	if err != nil {
		e.fileError = fmt.Errorf("configuration file: %w", err)
		return nil, e.fileError
	}
	e.file = &settingsFile{path: path, values: map[string]config.Setting{}}
	var errs []error
	for _, s := range settings {
		switch {
		case s.Value == nil && s.Key == "auth":
			errs = append(errs, fmt.Errorf("%s asks for authentication, and no key is named: set publickey or jwks in it", e.file.place(s)))
		case s.Value == nil && e.isTable(s.Key):
		case e.keys[s.Key] != nil && s.Value != nil:
			e.file.values[s.Key] = s
		case slices.Contains(referenceOnly, s.Key):
			e.file.ignored = append(e.file.ignored, s)
		default:
			errs = append(errs, fmt.Errorf("%s is not a setting%s", e.file.place(s), e.didYouMean(s.Key)))
		}
	}
	e.fileError = errors.Join(errs...)
	return e.file, e.fileError
}

// isTable reports whether settings stand below key.
func (e *environment) isTable(key string) bool {
	below := func(name string) bool { return strings.HasPrefix(name, key+".") }
	return slices.ContainsFunc(referenceOnly, below) || slices.ContainsFunc(slices.Collect(maps.Keys(e.keys)), below)
}

// filePath says which file is read: the flag's, the variable's, or what a search finds.
func (e *environment) filePath(parsed *kong.Context) (string, error) {
	for _, p := range parsed.Path {
		if p.Flag != nil && p.Flag.Name == configFlag {
			if path, ok := parsed.FlagValue(p.Flag).(*string); ok && path != nil {
				return *path, nil
			}
		}
	}
	if path, ok := e.values[configVariable]; ok {
		return path, nil
	}
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return config.Search(folder)
}

// didYouMean names the setting that was probably meant.
func (e *environment) didYouMean(key string) string {
	var known []string
	for name := range e.keys {
		known = append(known, name)
	}
	slices.Sort(known)
	if name := config.Nearest(key, known); name != "" {
		return "; did you mean " + name + "?"
	}
	return "; abide config show lists what there is"
}

// fromFile is the value of a flag in the configuration file, and where it stands; nil if it does not.
func (e *environment) fromFile(parsed *kong.Context, flag *kong.Flag, key string) (value any, from string, err error) {
	if !e.readsFile[flag.Value] {
		return nil, "", nil
	}
	file, err := e.readFile(parsed)
	if err != nil {
		return nil, "", err
	}
	s, plain := file.values[key]
	named, inFile := file.values[key+fileSuffix]
	switch {
	case plain && inFile && isSecret(flag):
		return nil, "", fmt.Errorf("%s and %s are both given: use one of them", file.place(s), file.place(named))
	case inFile && isSecret(flag):
		path, ok := named.Value.(string)
		if !ok {
			return nil, "", fmt.Errorf("%s must be the path of a file", file.place(named))
		}
		text, err := readSecret(path)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", file.place(named), err)
		}
		return text, file.place(named), nil
	case !plain:
		return nil, "", nil
	}
	if value, err = flagValue(s.Value, flag); err != nil {
		return nil, "", fmt.Errorf("%s: %w", file.place(s), err)
	}
	return value, file.place(s), nil
}

// flagValue writes a value of a file as the text that a flag is given.
func flagValue(value any, flag *kong.Flag) (any, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		if flag.Target.Kind() == reflect.Float64 {
			return strconv.FormatFloat(v, 'g', -1, 64), nil
		}
		return nil, fmt.Errorf("%v: this setting is no fraction; spans of time are whole milliseconds, or have units as in \"1s500ms\"", v)
	case []any:
		if !flag.IsSlice() {
			return nil, errors.New("it is one value, not a list")
		}
		for _, item := range v {
			if _, ok := item.(string); !ok {
				return nil, fmt.Errorf("%v is not a string", item)
			}
		}
		return v, nil
	}
	return nil, errors.New("it is a table; its settings stand below it")
}

const (
	// maxSecretBytes bounds a file that holds a secret.
	maxSecretBytes = 64 << 10
	// maxCertificateBytes bounds a file of certificates; that of all authorities there are is a quarter of a megabyte.
	maxCertificateBytes = 4 << 20
)

// readSecret reads a secret from a file, without the line feed that editors put at the end.
func readSecret(path string) (string, error) {
	text, err := config.ReadFile(path, maxSecretBytes)
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return secret, nil
}

// isSecret reports whether a flag's value is hidden from whoever looks at the settings.
func isSecret(flag *kong.Flag) bool { return flag.Tag.Has("secret") }
