package kvtest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentNamesEveryCheck keeps docs/storage-contract.md in step with the suite: every check is named there,
// and every name there is a check.
func TestDocumentNamesEveryCheck(t *testing.T) {
	text, err := os.ReadFile("../../docs/storage-contract.md")
	if err != nil {
		t.Fatal(err)
	}
	checks := map[string]bool{}
	known := map[string]bool{}
	for _, c := range concerns {
		known[c.name] = true
		for _, test := range c.tests {
			name := c.name + "/" + test.name
			if checks[name] {
				t.Errorf("there are two checks %q", name)
			}
			checks[name] = true
			if !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("the document does not name `%s`", name)
			}
		}
	}
	for _, m := range regexp.MustCompile("`([a-z]+)/([^`\n]*)`").FindAllStringSubmatch(string(text), -1) {
		if known[m[1]] && !checks[m[1]+"/"+m[2]] {
			t.Errorf("the document names `%s/%s`, which is no check", m[1], m[2])
		}
	}
}

// TestEveryConcernCanFail demands a broken store for every concern, so that none of them is empty words.
func TestEveryConcernCanFail(t *testing.T) {
	caught := map[string]bool{}
	for _, b := range brokenStores {
		concern, _, _ := strings.Cut(b.check, "/")
		caught[concern] = true
	}
	for _, c := range concerns {
		if !caught[c.name] {
			t.Errorf("no broken store is caught by %s", c.name)
		}
	}
}
