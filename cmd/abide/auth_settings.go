package main

import (
	"errors"
	"fmt"

	"abide/internal/auth"
)

// authSettings say who may do what. Without a key everybody may do everything.
type authSettings struct {
	AuthPublicKey    string       `setting:"auth.publickey" name:"auth-publickey" placeholder:"FILE" help:"Public keys that verify tokens, in PEM or as a JSON Web Key Set; turns authentication on. With --debug alone: none, for tokens whose signature is not looked at."`
	AuthJWKS         string       `setting:"auth.jwks" name:"auth-jwks" placeholder:"FILE|URL" help:"JSON Web Key Set that verifies tokens, in a file or at an https:// address; turns authentication on."`
	AuthJWKSRefresh  milliseconds `setting:"auth.jwks_refresh" name:"auth-jwks-refresh" default:"5m" placeholder:"DURATION" help:"How often the address is asked for new keys. An unknown key has it asked at once."`
	AuthIss          string       `setting:"auth.iss" placeholder:"ISSUER" help:"What tokens must claim as iss."`
	AuthAud          string       `setting:"auth.aud" placeholder:"AUDIENCE" help:"What tokens must claim as aud, or among it."`
	AuthLeeway       milliseconds `setting:"auth.leeway" default:"60s" placeholder:"DURATION" help:"How far the clock of whoever makes tokens may be off."`
	AuthSharedGroups []string     `setting:"auth.shared_groups" name:"auth-shared-group" placeholder:"GROUP" sep:"," help:"Worker group that every token may listen to, or the beginning of such with a * at its end; repeatable."`
}

// authenticates reports whether tokens are asked for.
func (s *authSettings) authenticates() bool { return s.AuthPublicKey != "" || s.AuthJWKS != "" }

// Validate checks the values.
func (s *authSettings) Validate() error {
	switch {
	case !s.authenticates() && (s.AuthIss != "" || s.AuthAud != "" || len(s.AuthSharedGroups) > 0):
		return errors.New("--auth-iss, --auth-aud and --auth-shared-group need a key: name it with --auth-publickey or --auth-jwks")
	case s.AuthJWKSRefresh < 1000:
		return fmt.Errorf("--auth-jwks-refresh is %d ms: it must be at least 1s", s.AuthJWKSRefresh)
	case s.AuthLeeway.duration() > auth.MaxLeeway:
		return fmt.Errorf("--auth-leeway is %s: it must be at most %s", s.AuthLeeway.duration(), auth.MaxLeeway)
	case s.AuthPublicKey == auth.Unsigned && s.AuthJWKS != "":
		return errors.New("--auth-publickey is none and there is an --auth-jwks: either signatures are checked or they are not")
	}
	if err := auth.CheckJWKS(s.AuthJWKS); err != nil {
		return fmt.Errorf("--auth-jwks: %w", err)
	}
	return nil
}
