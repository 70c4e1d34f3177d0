package main

import (
	"errors"
	"reflect"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// placedError is what is wrong with a value of the environment or of the file. It names the place itself.
type placedError struct{ error }

// Unwrap gives the error beneath.
func (e placedError) Unwrap() error { return e.error }

// mistake is what a person is told of a command line that could not be used: each setting has the one name that it was
// written with.
func (e *environment) mistake(err error) string {
	var placed placedError
	if errors.As(err, &placed) {
		return placed.Error() // without the flag, which kong puts in front
	}
	text := err.Error()
	command := reached(err)
	if command == nil {
		return text
	}
	text = strings.TrimPrefix(text, command.Path()+": ")
	if missing := missingArgument.FindStringSubmatch(text); missing != nil {
		return missing[1] + " is missing"
	}
	if strings.HasPrefix(text, "expected one of ") && len(command.Children) > 0 { // kong leaves out all but five
		var names []string
		for _, child := range command.Children {
			if !child.Hidden {
				names = append(names, child.Name)
			}
		}
		return called(command) + " needs one of " + strings.Join(names, ", ")
	}
	return e.named(text, command.Flags)
}

// missingArgument is what kong says where arguments are left out.
var missingArgument = regexp.MustCompile(`^expected "(<[^"]+>)"$`)

// advice is where to look after a mistake: at the help of the subcommand that was reached.
func advice(err error) string {
	if command := reached(err); command != nil {
		return `Run "abide ` + called(command) + ` --help" to see what it takes.`
	}
	return `Run "abide --help" for the subcommands.`
}

// called is what a subcommand is called by, from the first word on and without its other names.
func called(command *kong.Node) string {
	if command.Parent == nil || command.Parent.Type == kong.ApplicationNode {
		return command.Name
	}
	return called(command.Parent) + " " + command.Name
}

// reached is the subcommand that a command line has come to before the mistake in it; nil for none.
func reached(err error) *kong.Node {
	var of *kong.ParseError
	if !errors.As(err, &of) || of.Context == nil {
		return nil
	}
	return of.Context.Selected()
}

// namedError is an error in other words.
type namedError struct {
	error
	text string
}

// Error gives the other words.
func (e namedError) Error() string { return e.text }

// Unwrap gives the error beneath.
func (e namedError) Unwrap() error { return e.error }

// flagInText is a flag in a sentence.
var flagInText = regexp.MustCompile(`--[a-z][a-z0-9-]*[a-z0-9]`)

// named puts what was written in place of the flags in a text: checks know settings by their flags, wherever their values
// came from. A setting that nobody wrote is called as the first one in the text that somebody did.
func (e *environment) named(text string, flags []*kong.Flag) string {
	known := map[string]*kong.Flag{}
	for _, f := range flags {
		known["--"+f.Name] = f
	}
	source := ""
	for _, word := range flagInText.FindAllString(text, -1) {
		if f := known[word]; f != nil && source == "" {
			source = e.origins[f.Value].source
		}
	}
	return flagInText.ReplaceAllStringFunc(text, func(word string) string {
		f := known[word]
		if f == nil {
			return word
		}
		from, written := e.origins[f.Value]
		key := f.Tag.Get("setting")
		switch {
		case written && from.source == sourceEnvironment:
			return "environment variable " + from.place
		case written:
			return from.place
		case source == "" || key == "" || !e.asked[f.Value]:
			return word
		case source == sourceFile && e.readsFile[f.Value]:
			return key
		}
		return environmentPrefixes[0] + settingName(key)
	})
}

// try parses a value for a flag as kong will, so that the message can name the value's place and not the flag.
func try(flag *kong.Flag, value any) error {
	scratch := reflect.New(flag.Target.Type()).Elem()
	err := flag.Parse(kong.Scan().PushTyped(value, kong.FlagValueToken), scratch)
	if cause := errors.Unwrap(err); cause != nil {
		return cause // without the flag's name
	}
	return err
}
