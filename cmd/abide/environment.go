package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/alecthomas/kong"
)

// The prefixes of environment variables that are settings. A setting's variable is the prefix and the
// setting's key in capitals, with "." written "__": server.port is ABIDE_SERVER__PORT. The second prefix is
// that of the reference server, so that its deployments can be kept; the first wins.
var environmentPrefixes = []string{"ABIDE_", "RESONATE_"}

// ownedByClients are variables of the same prefixes that SDKs read. They say nothing to a server.
var ownedByClients = map[string]bool{
	"URL": true, "TOKEN": true, "TIMEOUT": true, "PREFIX": true, "HOST": true, "PORT": true, "SCHEME": true,
	"USERNAME": true, "PASSWORD": true, "FUNCTION_URL": true, "GROUP": true, "PID": true, "TTL": true,
	"PORT_MESSAGE_SOURCE": true,
}

// otherPrefix begins the variables of OpenTelemetry, some of which set something here too.
const otherPrefix = "OTEL_"

// environment holds the variables of the settings' prefixes, and behind them the configuration file. It gives kong
// the value of every flag that carries a `setting` tag and was not given on the command line. Names are compared
// without regard to case, as the reference does; an empty value counts as not set, which is what an unset variable of
// a compose file turns into.
type environment struct {
	values map[string]string // by name in capitals
	empty  map[string]bool   // names that have an empty value
	others map[string]string // those of OpenTelemetry
	known  map[string]bool   // names that are a setting of some subcommand

	keys      map[string]*kong.Value // every key that a configuration file may have
	readsFile map[*kong.Value]bool   // flags whose subcommand reads it
	file      *settingsFile          // once it has been read
	fileError error
	// origins says where the values came from that were not given as flags and are no defaults; asked is every flag
	// that was not given.
	origins map[*kong.Value]origin
	asked   map[*kong.Value]bool

	// flagsAlone are the flags of subcommands that take some settings from flags alone, which they say with a tag
	// that holds the beginning of those settings' keys.
	flagsAlone map[*kong.Value]bool
}

func readEnvironment(environ []string) *environment {
	env := &environment{
		values: map[string]string{}, empty: map[string]bool{}, known: map[string]bool{configVariable: true}, flagsAlone: map[*kong.Value]bool{},
		others: map[string]string{}, keys: map[string]*kong.Value{}, readsFile: map[*kong.Value]bool{}, origins: map[*kong.Value]origin{}, asked: map[*kong.Value]bool{},
	}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		name = strings.ToUpper(name)
		if strings.HasPrefix(name, otherPrefix) {
			env.others[name] = value
		}
		for _, prefix := range environmentPrefixes {
			switch {
			case !strings.HasPrefix(name, prefix):
			case value == "":
				env.empty[name] = true
			default:
				env.values[name] = value
			}
		}
	}
	return env
}

// settingName is the variable of a setting's key, without its prefix.
func settingName(key string) string {
	return strings.ToUpper(strings.ReplaceAll(key, ".", "__"))
}

// describeFlag is the help text of a flag: its own, its default, and the variable that sets it too.
func (e *environment) describeFlag(value *kong.Value) string {
	text := value.Help
	if value.Default != "" {
		text += " Default " + value.Default + "."
	}
	if key := value.Tag.Get("setting"); key != "" && !e.flagsAlone[value] {
		text += " ($" + environmentPrefixes[0] + settingName(key)
		if other := value.Tag.Get(variableTag); other != "" {
			text += ", $" + other
		}
		text += ")"
	}
	return text
}

// learn takes in which settings exist, those of every subcommand: a variable that serve reads is no mistake
// when bench runs.
func (e *environment) learn(app *kong.Application) {
	for _, leaf := range app.Leaves(false) {
		alone := leaf.Tag.Get("flagsalone")
		readsFile := slices.ContainsFunc(leaf.Flags, func(f *kong.Flag) bool { return f.Name == configFlag })
		for _, flag := range leaf.Flags {
			if key := flag.Tag.Get("setting"); key != "" {
				if alone != "" && strings.HasPrefix(key, alone) {
					e.flagsAlone[flag.Value] = true
				}
				e.learnKey(key, flag, readsFile)
				if isSecret(flag) {
					e.learnKey(key+fileSuffix, flag, readsFile)
				}
			}
		}
	}
}

func (e *environment) learnKey(key string, flag *kong.Flag, readsFile bool) {
	for _, prefix := range environmentPrefixes {
		e.known[prefix+settingName(key)] = true
	}
	if readsFile {
		e.keys[key], e.readsFile[flag.Value] = flag.Value, true
	}
}

// Validate does nothing: each value is checked where it is resolved.
func (e *environment) Validate(*kong.Application) error { return nil }

// Sources of values besides flags and defaults.
const (
	sourceEnvironment = "environment"
	sourceFile        = "file"
)

// origin is where a value came from.
type origin struct {
	source string // sourceEnvironment or sourceFile
	place  string // the variable, or file, line and key
}

// Resolve gives kong the value of a flag from the environment, else from the configuration file, or nil. The value is
// tried on the flag here, so that the message names its place and not the flag.
func (e *environment) Resolve(parsed *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	key := flag.Tag.Get("setting")
	if key == "" || e.flagsAlone[flag.Value] {
		return nil, nil
	}
	e.asked[flag.Value] = true
	value, name, err := e.fromVariables(flag, key)
	from := origin{sourceEnvironment, name}
	fileValue, place, fileErr := e.fromFile(parsed, flag, key)
	switch {
	case err != nil:
		return nil, placedError{fmt.Errorf("environment variable %s: %w", name, err)}
	case fileErr != nil:
		return nil, placedError{fileErr}
	case value == nil:
		value, from = fileValue, origin{sourceFile, place}
	}
	if value == nil {
		return nil, nil
	}
	if err := try(flag, value); err != nil {
		if from.source == sourceEnvironment {
			return nil, placedError{fmt.Errorf("environment variable %s: %w", name, err)}
		}
		return nil, placedError{fmt.Errorf("%s: %w", from.place, err)}
	}
	e.origins[flag.Value] = from
	return value, nil
}

// fromVariables is the value of a flag in the environment, and the variable that holds it; nil if none does.
func (e *environment) fromVariables(flag *kong.Flag, key string) (value any, name string, err error) {
	for _, prefix := range environmentPrefixes {
		name := prefix + settingName(key)
		text, ok := e.values[name]
		path, inFile := e.values[name+strings.ToUpper(fileSuffix)]
		switch {
		case isSecret(flag) && ok && inFile:
			return nil, name, fmt.Errorf("there is %s%s as well: use one of them", name, strings.ToUpper(fileSuffix))
		case isSecret(flag) && inFile:
			name += strings.ToUpper(fileSuffix)
			text, err := readSecret(path)
			return text, name, err
		case ok:
			value, err := plainValue(text, flag.IsSlice())
			return value, name, err
		}
		if name, text := e.another(flag); text != "" {
			return text, name, nil // it goes before the reference's, as there
		}
	}
	return nil, "", nil
}

// variableTag names a variable of somebody else's that sets a setting too.
const variableTag = "variable"

// another is what such a variable says, unless it says that nobody wants to hear it.
func (e *environment) another(flag *kong.Flag) (name, text string) {
	name = flag.Tag.Get(variableTag)
	if name == "" || strings.EqualFold(e.others["OTEL_SDK_DISABLED"], "true") || strings.EqualFold(e.others["OTEL_TRACES_EXPORTER"], "none") {
		return name, ""
	}
	return name, e.others[name]
}

// plainValue takes the quotes and brackets off a value as the reference's syntax has them: "text" in double
// quotes, lists as ["a", "b"]. A list may also be written bare with commas.
func plainValue(text string, list bool) (any, error) {
	text = strings.TrimSpace(text)
	switch {
	case list && strings.HasPrefix(text, "["):
		var items []any
		if err := json.Unmarshal([]byte(text), &items); err != nil {
			return nil, fmt.Errorf(`%s is not a list: write ["a","b"] or a,b`, text)
		}
		return items, nil
	case len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"':
		return text[1 : len(text)-1], nil
	}
	return text, nil
}

// guarded are the beginnings of settings that protect a server. One of them that is not known, or that has no value, ends
// the start: to run open because a setting was not understood would be the worst way to say so.
var guarded = []string{"AUTH__", "SERVER__TLS__", "TRANSPORTS__HTTP_PUSH__"}

// refuse is an error if the environment or the configuration file asks for protection that is not to be had.
func (e *environment) refuse() error {
	for _, name := range e.unknown() {
		rest, _ := splitPrefix(name)
		for _, beginning := range guarded {
			if strings.HasPrefix(rest, beginning) {
				return fmt.Errorf("environment variable %s is not a setting%s", name, e.didYouMean(keyOf(rest)))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.empty)) {
		if rest, _ := splitPrefix(name); rest == settingName("auth.publickey") || rest == settingName("auth.jwks") {
			return fmt.Errorf("environment variable %s is set and empty; unset it to run without authentication, or name a key", name)
		}
	}
	return e.authWithoutKey()
}

// authWithoutKey is an error if a setting of authentication was given and none that says where the keys are.
func (e *environment) authWithoutKey() error {
	place := ""
	for value, from := range e.origins {
		key := value.Tag.Get("setting")
		if (key == "auth.publickey" || key == "auth.jwks") && value.Target.String() != "" {
			return nil
		}
		if strings.HasPrefix(key, "auth.") && (place == "" || from.place < place) {
			place = from.place
		}
	}
	if place == "" || e.keyFlagGiven() {
		return nil
	}
	return fmt.Errorf("%s asks for authentication, and no key is named: set auth.publickey or auth.jwks", place)
}

// keyFlagGiven reports whether a flag says where the keys are.
func (e *environment) keyFlagGiven() bool {
	for _, key := range []string{"auth.publickey", "auth.jwks"} {
		for value := range e.readsFile {
			if value.Tag.Get("setting") == key && !e.asked[value] && value.Target.String() != "" {
				return true
			}
		}
	}
	return false
}

// keyOf is the key of a variable without its prefix.
func keyOf(name string) string { return strings.ToLower(strings.ReplaceAll(name, "__", ".")) }

// unknown lists the variables that look like settings and are none, sorted: those of the own prefix, and
// those of the reference's that have a level in their name. Client variables are left out.
func (e *environment) unknown() []string {
	var names []string
	for name := range e.values {
		rest, own := splitPrefix(name)
		if e.known[name] || ownedByClients[rest] || (!own && !strings.Contains(rest, "__")) {
			continue
		}
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// splitPrefix takes the prefix off a variable's name; own tells that it was the first of the prefixes.
func splitPrefix(name string) (rest string, own bool) {
	for i, prefix := range environmentPrefixes {
		if rest, found := strings.CutPrefix(name, prefix); found {
			return rest, i == 0
		}
	}
	return name, false
}
