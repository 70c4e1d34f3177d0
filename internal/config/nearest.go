package config

import "strings"

// Nearest is the known name that was probably meant by a word: the one that takes the fewest edits (a letter more, less,
// other, or two swapped), regardless of case and of _ for -; empty if none is near. Of names equally near it is the first.
func Nearest(word string, known []string) string {
	plain := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", "-") }
	word = plain(word)
	best, least := "", len(word)/3+1 // a third of the letters may be wrong
	for _, name := range known {
		// The lengths bound the distance from below.
		if d := len(name) - len(word); d > least || -d > least {
			continue
		}
		if d := distance([]rune(word), []rune(plain(name))); d < least || (d == least && best == "") {
			best, least = name, d
		}
	}
	if best == "" {
		return sameEnd(word, known, plain)
	}
	return best
}

// sameEnd is the only known name whose last part is the word's: the right setting in the wrong table.
func sameEnd(word string, known []string, plain func(string) string) string {
	last := word[strings.LastIndexByte(word, '.')+1:]
	found := ""
	for _, name := range known {
		if name := plain(name); name == last || strings.HasSuffix(name, "."+last) {
			if found != "" {
				return ""
			}
			found = name
		}
	}
	if found == "" {
		return ""
	}
	for _, name := range known {
		if plain(name) == found {
			return name
		}
	}
	return ""
}

// distance counts the edits between two words, by dynamic programming over three rows.
func distance(a, b []rune) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
