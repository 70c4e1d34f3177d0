// Package auth decides who may do what: it verifies tokens (JSON Web Tokens signed with a key whose public half
// the server has been given) and judges requests by what a token claims.
//
// Verifier is the part with keys, files and time: token in, Claims out. Policy is pure: Claims and a request in,
// allowed or refused out. Both refuse with a *Refusal, whose status and message say the same to everybody, whatever
// exists; its reason is for the log and the counters. No token and no claim appears in a reason, an error or a log line.
//
// The rules are in docs/auth.md.
package auth
