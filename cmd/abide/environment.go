package main

import (
	"encoding/json"
	"fmt"
	"reflect"
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

// environment holds the variables of the settings' prefixes. It gives kong the value of every flag that
// carries a `setting` tag and was not given on the command line. Names are compared without regard to case,
// as the reference does; an empty value counts as not set, which is what an unset variable of a compose file
// turns into.
type environment struct {
	values map[string]string // by name in capitals
	known  map[string]bool   // names that are a setting of some subcommand
	// flagsAlone are the flags of subcommands that take some settings from flags alone, which they say with a tag
	// that holds the beginning of those settings' keys.
	flagsAlone map[*kong.Value]bool
}

func readEnvironment(environ []string) *environment {
	env := &environment{values: map[string]string{}, known: map[string]bool{}, flagsAlone: map[*kong.Value]bool{}}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		name = strings.ToUpper(name)
		for _, prefix := range environmentPrefixes {
			if strings.HasPrefix(name, prefix) && value != "" {
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
		text += " ($" + environmentPrefixes[0] + settingName(key) + ")"
	}
	return text
}

// learn takes in which settings exist, those of every subcommand: a variable that serve reads is no mistake
// when bench runs.
func (e *environment) learn(app *kong.Application) {
	for _, leaf := range app.Leaves(false) {
		alone := leaf.Tag.Get("flagsalone")
		for _, flag := range leaf.Flags {
			if key := flag.Tag.Get("setting"); key != "" {
				if alone != "" && strings.HasPrefix(key, alone) {
					e.flagsAlone[flag.Value] = true
				}
				for _, prefix := range environmentPrefixes {
					e.known[prefix+settingName(key)] = true
				}
			}
		}
	}
}

// Validate does nothing: each value is checked where it is resolved.
func (e *environment) Validate(*kong.Application) error { return nil }

// Resolve gives kong the value of a flag from the environment, or nil. The value is tried on the flag
// here, so that the message names the variable and not the flag.
func (e *environment) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	key := flag.Tag.Get("setting")
	if key == "" || e.flagsAlone[flag.Value] {
		return nil, nil
	}
	var found any
	for _, prefix := range environmentPrefixes {
		name := prefix + settingName(key)
		text, ok := e.values[name]
		if !ok || found != nil {
			continue
		}
		value, err := plainValue(text, flag.IsSlice())
		if err == nil {
			scratch := reflect.New(flag.Target.Type()).Elem()
			err = flag.Parse(kong.Scan().PushTyped(value, kong.FlagValueToken), scratch)
		}
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", name, err)
		}
		found = value
	}
	return found, nil
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

// refuse is an error if the environment asks for protection that this version does not have. To run open
// because a setting was not known would be the worst way to say so.
func (e *environment) refuse() error {
	for _, name := range e.unknown() {
		if rest, _ := splitPrefix(name); strings.HasPrefix(rest, "AUTH__") {
			return fmt.Errorf("environment variable %s asks for authentication, which this version does not have; unset it to run without", name)
		}
	}
	return nil
}

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
