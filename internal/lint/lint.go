// Package lint holds the rules of this repository that a compiler does not check, as tests: which package may
// import which, how long functions and files may be, what must be documented, what must not be called. Each
// failure names the line, the rule and what to do about it. A rule that has turned out wrong is changed
// here, in the commit that needs it, with the reason.
package lint
