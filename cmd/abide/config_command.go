package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"
)

// configCommand looks at settings without serving.
type configCommand struct {
	Check configCheckCommand `cmd:"" help:"Check the settings that abide serve would run with, and the keys and certificates that they name. Exit 0 if it could start."`
	Show  configShowCommand  `cmd:"" help:"Show every setting that abide serve would run with, and where it comes from."`
}

// configCheckCommand takes what serve takes. All that has no need of the store or the network is checked.
type configCheckCommand struct{ serveCommand }

// Run reports what is wrong beyond the values themselves, which are checked when they are read.
func (c *configCheckCommand) Run(in surroundings, env *environment) error {
	offline := c.serverSettings
	if strings.Contains(offline.AuthJWKS, "://") { // whether it can be fetched is a matter of the moment
		if offline.AuthJWKS = ""; offline.AuthPublicKey == "" {
			offline.authSettings = authSettings{}
		}
	}
	if _, err := openGuard(newLogger(in.stderr, logLevel(slog.LevelWarn)), &offline, c.Debug); err != nil {
		return err
	}
	if _, err := c.authorities(); err != nil {
		return err
	}
	for _, s := range env.file.ignored {
		fmt.Fprintf(in.stdout, "%s has no effect in this version\n", env.file.place(s))
	}
	for _, name := range env.unknown() {
		rest, _ := splitPrefix(name)
		fmt.Fprintf(in.stdout, "environment variable %s is not a setting and is ignored%s\n", name, env.didYouMean(keyOf(rest)))
	}
	from := "there is no configuration file"
	if env.file.path != "" {
		from = "configuration file " + env.file.path
	}
	fmt.Fprintf(in.stdout, "the settings are good (%s)\n", from)
	return nil
}

// configShowCommand takes what serve takes.
type configShowCommand struct {
	serveCommand
	JSON bool `name:"json" help:"Print JSON."`
}

// shownSetting is one setting with where it comes from.
type shownSetting struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`           // null if it has none
	Source string `json:"source"`          // default, file, environment or flag
	Place  string `json:"place,omitempty"` // the variable, or the file, line and key, or the flag
	text   string
}

// Run prints the settings in the order of their keys.
func (c *configShowCommand) Run(in surroundings, env *environment, parsed *kong.Context) error {
	var settings []shownSetting
	for _, flag := range parsed.Selected().Flags {
		if key := flag.Tag.Get("setting"); key != "" {
			settings = append(settings, env.shown(flag, key))
		}
	}
	slices.SortFunc(settings, func(a, b shownSetting) int { return strings.Compare(a.Key, b.Key) })
	if c.JSON {
		out := json.NewEncoder(in.stdout)
		out.SetIndent("", "  ")
		out.SetEscapeHTML(false)
		return out.Encode(struct {
			File     string         `json:"file"`
			Settings []shownSetting `json:"settings"`
		}{env.file.path, settings})
	}
	table := tabwriter.NewWriter(in.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tVALUE\tFROM")
	for _, s := range settings {
		from := s.Source
		if s.Place != "" {
			from = s.Place
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Key, s.text, from)
	}
	return table.Flush()
}

// hiddenValue stands for a secret that is no URL.
const hiddenValue = "(hidden)"

func (e *environment) shown(flag *kong.Flag, key string) shownSetting {
	s := shownSetting{Key: key, Source: "default"}
	switch from, known := e.origins[flag.Value]; {
	case known:
		s.Source, s.Place = from.source, from.place
	case !e.asked[flag.Value]:
		s.Source, s.Place = "flag", "--"+flag.Name
	}
	s.Value, s.text = settingValue(flag.Target)
	if isSecret(flag) && s.Value != nil && !strings.Contains(s.text, "://") {
		s.Value, s.text = hiddenValue, hiddenValue
	}
	return s
}

// settingValue is a setting for programs and for people. Passwords in URLs are hidden from both.
func settingValue(target reflect.Value) (value any, text string) {
	switch v := target.Interface().(type) {
	case milliseconds:
		return int64(v), v.String()
	case logLevel:
		return v.String(), v.String()
	case []string:
		clean := []string{}
		for _, item := range v {
			clean = append(clean, passwordless(item))
		}
		if len(clean) == 0 {
			return clean, "-"
		}
		return clean, strings.Join(clean, ",")
	case string:
		if v == "" {
			return nil, "-"
		}
		return passwordless(v), passwordless(v)
	default:
		return v, fmt.Sprint(v)
	}
}

// passwordless is text, or, if it is a URL, that with its secrets hidden.
func passwordless(text string) string {
	if strings.Contains(text, "://") {
		return withoutPassword(text)
	}
	return text
}

// String is d in the largest unit that it is a whole number of.
func (d milliseconds) String() string {
	for _, u := range slices.Backward(millisecondsPer) { // longest last
		if int64(d) >= u.length && int64(d)%u.length == 0 {
			return fmt.Sprintf("%d%s", int64(d)/u.length, u.unit)
		}
	}
	return fmt.Sprintf("%dms", int64(d))
}

// String is the level's name.
func (l logLevel) String() string {
	if slog.Level(l) == logOff {
		return "off"
	}
	return strings.ToLower(slog.Level(l).String())
}
