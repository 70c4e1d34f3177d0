package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"abide/internal/auth"
	"abide/internal/config"
)

// tokenCommand makes keys and tokens for development. In production an identity provider does.
type tokenCommand struct {
	Keygen tokenKeygenCommand `cmd:"" help:"Make a key: private.pem signs tokens, public.pem and jwks.json verify them."`
	New    tokenNewCommand    `cmd:"" help:"Make a token and print it."`
	Show   tokenShowCommand   `cmd:"" help:"Show what a token says, and whether a server would accept it."`
}

// tokenKeygenCommand writes three files and overwrites none.
type tokenKeygenCommand struct {
	Alg string `default:"EdDSA" enum:"EdDSA,ES256,RS256" placeholder:"NAME" help:"Algorithm of the tokens: EdDSA, ES256 or RS256."`
	Out string `placeholder:"FOLDER" help:"Folder that the files are written to; by default the current one."`
}

// Run makes the key.
func (c *tokenKeygenCommand) Run(in surroundings) error {
	pair, err := auth.GenerateKey(c.Alg)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Out, 0o700); err != nil {
		return err
	}
	files := []struct {
		name string
		text []byte
		mode os.FileMode
	}{{"private.pem", pair.Private, 0o600}, {"public.pem", pair.Public, 0o644}, {"jwks.json", pair.JWKS, 0o644}}
	for _, f := range files { // none is written if one is there
		if _, err := os.Lstat(filepath.Join(c.Out, f.name)); err == nil {
			return fmt.Errorf("%s is there already: choose another folder with --out", filepath.Join(c.Out, f.name))
		}
	}
	for _, f := range files {
		if err := writeNew(filepath.Join(c.Out, f.name), f.text, f.mode); err != nil {
			return err
		}
	}
	at := func(name string) string { return filepath.Join(c.Out, name) }
	fmt.Fprintf(in.stdout, "%s signs tokens: keep it to yourself\n%s verifies them: abide serve --auth-publickey %s\n%s is the same for --auth-jwks, under the name %s\n",
		at("private.pem"), at("public.pem"), at("public.pem"), at("jwks.json"), pair.ID)
	return nil
}

func writeNew(path string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// tokenNewCommand signs a token.
type tokenNewCommand struct {
	Key       string       `default:"private.pem" placeholder:"FILE" help:"Private key that signs it."`
	Role      string       `placeholder:"ROLE" help:"Role of its bearer; admin may do everything."`
	Prefix    *string      `placeholder:"PREFIX" help:"What the ids begin with that its bearer may touch; empty for all."`
	Workspace []string     `placeholder:"NAME" sep:"," help:"Workspace that it is good for, or the beginning of such with a * at its end; repeatable. By default the workspace default alone."`
	Group     []string     `placeholder:"GROUP" sep:"," help:"Worker group that its bearer may listen to and address, or the beginning of such with a * at its end; repeatable. By default those that the prefix allows."`
	Iss       string       `placeholder:"ISSUER" help:"Its issuer."`
	Aud       string       `placeholder:"AUDIENCE" help:"Its audience."`
	Sub       string       `placeholder:"NAME" help:"Its subject: who it is for. The server does not look at it."`
	For       milliseconds `default:"24h" placeholder:"DURATION" help:"How long it is good."`
}

// maxTokenLife is how long a token may be good: one that outlives its reason is found by somebody.
const maxTokenLife = milliseconds(10 * 365 * 24 * 3600 * 1000)

// Validate refuses tokens that nobody can want.
func (c *tokenNewCommand) Validate() error {
	switch {
	case c.Role == "" && c.Prefix == nil:
		return errors.New("the token would allow nothing: give it --role admin, or --prefix with what ids begin with (empty for all)")
	case c.For < 1000 || c.For > maxTokenLife:
		return fmt.Errorf("--for is %s: it must be from 1s to %s", c.For, maxTokenLife)
	case len(c.Workspace) > auth.MaxPatterns || len(c.Group) > auth.MaxPatterns:
		return fmt.Errorf("there are more than %d workspaces or groups (MaxPatterns)", auth.MaxPatterns)
	}
	return nil
}

// Run prints the token alone, so that it can be put into a variable.
func (c *tokenNewCommand) Run(in surroundings) error {
	key, err := config.ReadFile(c.Key, maxSecretBytes)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no private key %s: make one with abide token keygen, or name yours with --key", c.Key)
	}
	if err != nil {
		return err
	}
	now := time.Now()
	token, err := auth.Sign(key, auth.Token{
		Role: c.Role, Prefix: c.Prefix, Workspaces: c.Workspace, WorkerGroups: c.Group,
		Issuer: c.Iss, Audience: c.Aud, Subject: c.Sub, IssuedAt: now, Expires: now.Add(c.For.duration()),
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Key, err)
	}
	fmt.Fprintln(in.stdout, token)
	return nil
}

// tokenShowCommand reads a token from its argument, or from its input, where other users of the machine do not see it.
type tokenShowCommand struct {
	Token string `arg:"" optional:"" help:"The token; by default it is read from the input."`
	Key   string `placeholder:"FILE" help:"Public keys or a key set: says whether a server with them, and with --iss and --aud if given, would accept the token."`
	Iss   string `placeholder:"ISSUER" help:"What the server asks for as iss."`
	Aud   string `placeholder:"AUDIENCE" help:"What the server asks for as aud."`
}

// Run prints the parts, and with --key the verdict.
func (c *tokenShowCommand) Run(in surroundings) error {
	token := c.Token
	if token == "" && in.stdin != nil {
		text, err := io.ReadAll(io.LimitReader(in.stdin, auth.MaxTokenBytes+2))
		if err != nil {
			return err
		}
		token = string(text)
	}
	token = strings.TrimSpace(token)
	shown, err := auth.Show(token)
	if err != nil {
		return err
	}
	fmt.Fprintf(in.stdout, "%s\n%s\n", shown.Header, shown.Claims)
	switch now := time.Now(); {
	case shown.Expires.IsZero():
		fmt.Fprintln(in.stdout, "no exp: servers do not accept it")
	case now.After(shown.Expires):
		fmt.Fprintf(in.stdout, "expired at %s\n", shown.Expires.Format(time.RFC3339))
	default:
		fmt.Fprintf(in.stdout, "good until %s\n", shown.Expires.Format(time.RFC3339))
	}
	if c.Key == "" {
		return nil
	}
	verifier, err := auth.Open(context.Background(), auth.Options{PublicKey: c.Key, Issuer: c.Iss, Audience: c.Aud, Leeway: auth.DefaultLeeway, Now: time.Now})
	if err != nil {
		return err
	}
	if _, refusal := verifier.Verify(context.Background(), token); refusal != nil {
		return fmt.Errorf("a server with these keys would refuse it: %s", refusal.Reason)
	}
	fmt.Fprintln(in.stdout, "a server with these keys would accept it")
	return nil
}
