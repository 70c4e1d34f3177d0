package cli

import (
	"github.com/go-json-experiment/json/jsontext"
)

// Pretty is JSON for a file or a person: members sorted by name, two blanks of indent, a line end after it; strings and
// numbers stay as they were written. JSON that cannot be so written comes back as it is.
func Pretty(text []byte) string {
	v := jsontext.Value(text).Clone()
	err := v.Format(jsontext.ReorderRawObjects(true), jsontext.PreserveRawStrings(true), jsontext.CanonicalizeRawInts(false),
		jsontext.CanonicalizeRawFloats(false), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true),
		jsontext.Multiline(true), jsontext.WithIndent("  "))
	if err != nil {
		return string(text) + "\n"
	}
	return string(v) + "\n"
}

// Line is the same JSON on one line.
func Line(text []byte) string {
	v := jsontext.Value(text).Clone()
	err := v.Format(jsontext.ReorderRawObjects(true), jsontext.PreserveRawStrings(true), jsontext.CanonicalizeRawInts(false),
		jsontext.CanonicalizeRawFloats(false), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true),
		jsontext.Multiline(false))
	if err != nil {
		return string(text) + "\n"
	}
	return string(v) + "\n"
}
