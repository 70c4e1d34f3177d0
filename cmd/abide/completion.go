package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand prints a script for a shell. The scripts know nothing: they ask abide __complete for every word, so
// that they never grow old.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

var completionScripts = map[string]string{
	"bash": `# Try it: source <(abide completion bash). To keep it: abide completion bash > ~/.local/share/bash-completion/completions/abide
_abide() {
  local IFS=$'\n'
  COMPREPLY=($(abide __complete bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _abide abide
`,
	"zsh": `#compdef abide
# Try it: source <(abide completion zsh). To keep it: abide completion zsh > a file _abide in a folder of $fpath
_abide() {
  local -a found
  found=("${(@f)$(abide __complete zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "$found[1]" ]]; then _describe abide found; else _files; fi
}
if [[ $funcstack[1] == _abide ]]; then _abide "$@"; else compdef _abide abide; fi
`,
	"fish": `# Try it: abide completion fish | source. To keep it: abide completion fish > ~/.config/fish/completions/abide.fish
function __abide_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l found (abide __complete fish -- $words[2..-1] 2>/dev/null)
  if test -n "$found"
    printf '%s\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c abide -f -a '(__abide_complete)'
`,
}

// Run prints the script.
func (c *completionCommand) Run(in surroundings) error {
	_, err := io.WriteString(in.stdout, completionScripts[c.Shell])
	return err
}

// completeCommand answers a completion script: the words that may stand in the last one's place, one a line.
type completeCommand struct {
	Shell string   `arg:"" enum:"bash,zsh,fish" help:"Whose script asks."`
	Words []string `arg:"" optional:"" help:"The words after abide, up to the one to complete, which may be empty."`
}

// Run prints the words.
func (c *completeCommand) Run(in surroundings, parsed *kong.Context) error {
	for _, word := range candidates(parsed.Model, c.Words) {
		line := word.text
		switch c.Shell {
		case "zsh":
			line = strings.ReplaceAll(word.text, ":", `\:`) + ":" + word.help
		case "fish":
			line = word.text + "\t" + word.help
		}
		if _, err := fmt.Fprintln(in.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// candidate is a word and what it is for.
type candidate struct{ text, help string }

// candidates are the words that may stand in place of the last of words, given those before it.
func candidates(model *kong.Application, words []string) []candidate {
	node, last := model.Node, ""
	var value *kong.Flag // whose value is expected
	positional := 0
	for i, word := range words {
		if i == len(words)-1 {
			last = word
			break
		}
		switch {
		case value != nil:
			value = nil
		case strings.HasPrefix(word, "-"):
			if flag := flagOf(node, word); flag != nil && !flag.IsBool() && !strings.Contains(word, "=") {
				value = flag
			}
		default:
			if child := childOf(node, word); child != nil {
				node, positional = child, 0
			} else {
				positional++
			}
		}
	}
	var found []candidate
	offer := func(text, help string) {
		help, _, _ = strings.Cut(help, "\n")
		if strings.HasPrefix(text, last) {
			found = append(found, candidate{text, help})
		}
	}
	switch {
	case value != nil:
		offerEnum(value.Value, offer)
	case strings.HasPrefix(last, "-"):
		for n := node; n != nil; n = n.Parent {
			for _, flag := range n.Flags {
				if !flag.Hidden {
					offer("--"+flag.Name, flag.Help)
				}
			}
		}
	case len(node.Children) > 0:
		for _, child := range node.Children {
			if !child.Hidden && child.Type == kong.CommandNode {
				offer(child.Name, child.Help)
			}
		}
	case positional < len(node.Positional):
		offerEnum(node.Positional[positional], offer)
	}
	return found
}

// wordsTag lists the words that a value may be where somebody else than the parser judges them.
const wordsTag = "words"

// offerEnum offers the words that a value may be. What each is for stands in the help of all.
func offerEnum(v *kong.Value, offer func(text, help string)) {
	words := v.Enum
	if words == "" {
		words = v.Tag.Get(wordsTag)
	}
	if words == "" {
		return
	}
	for _, word := range strings.Split(words, ",") {
		offer(word, v.Help)
	}
}

// flagOf is the flag that a word names, of a command or one above it; nil if there is none.
func flagOf(node *kong.Node, word string) *kong.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for n := node; n != nil; n = n.Parent {
		for _, flag := range n.Flags {
			if flag.Name == name || len(name) == 1 && string(flag.Short) == name {
				return flag
			}
		}
	}
	return nil
}

// childOf is the subcommand of that name or alias; nil if there is none.
func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
		for _, alias := range child.Aliases {
			if alias == name {
				return child
			}
		}
	}
	return nil
}
