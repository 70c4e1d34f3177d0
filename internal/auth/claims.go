package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/golang-jwt/jwt/v5"

	"abide/protocol"
)

// Claims is what a verified token says about its bearer. The zero value may do nothing.
type Claims struct {
	// Admin is the role admin: every kind of request, every id and every worker group.
	Admin bool
	// Prefix is what the ids must begin with that the bearer may touch; empty: all. It counts only if
	// HasPrefix is true: a token without the claim may touch nothing.
	Prefix    string
	HasPrefix bool
	// Workspaces are the workspaces that the token is good for: names, or beginnings followed by "*". Empty: the
	// workspace default alone.
	Workspaces []string
	// Groups are the worker groups that the bearer may listen to and address, in the same form. It counts only if
	// HasGroups is true; a token without the claim may use the groups that its prefix allows (Policy.Group).
	Groups    []string
	HasGroups bool
	// Expires and NotBefore bound the time in which the token is good; a zero NotBefore is no bound.
	Expires, NotBefore time.Time
}

// Limits of the claims of a token.
const (
	// MaxPatterns is the largest number of workspaces, and of worker groups, in one token.
	MaxPatterns = 64
	// maxSeconds is the last second of the year 9999: beyond it a claimed time is a mistake, or an attempt at an
	// overflow.
	maxSeconds = 253_402_300_799
)

// Unrestricted reports whether the bearer may touch every id.
func (c *Claims) Unrestricted() bool { return c.Admin || (c.HasPrefix && c.Prefix == "") }

// wireClaims is the payload of a token. Members that are not listed are ignored; a repeated one is an error, and names
// are told apart by case: nothing that an issuer lets its users choose may pass for one of ours.
type wireClaims struct {
	Exp          *float64         `json:"exp"`
	Nbf          *float64         `json:"nbf"`
	Iss          *string          `json:"iss"`
	Aud          jwt.ClaimStrings `json:"aud"`
	Role         *string          `json:"role"`
	Prefix       any              `json:"prefix"`
	Workspace    jwt.ClaimStrings `json:"workspace"`
	WorkerGroups *names           `json:"worker_groups"`
}

// names is a string or a list of strings; unlike jwt.ClaimStrings a pointer to it tells an empty list from none.
type names struct{ jwt.ClaimStrings }

// UnmarshalJSON decodes with the strict decoder. The JWT library calls it.
func (c *wireClaims) UnmarshalJSON(data []byte) error {
	type plain wireClaims
	if err := json.Unmarshal(data, (*plain)(c)); err != nil {
		return err
	}
	if len(c.Workspace) > MaxPatterns || (c.WorkerGroups != nil && len(c.WorkerGroups.ClaimStrings) > MaxPatterns) {
		return fmt.Errorf("more than %d names", MaxPatterns)
	}
	for _, seconds := range []*float64{c.Exp, c.Nbf} {
		if seconds != nil && !(*seconds >= 0 && *seconds <= maxSeconds) {
			return errors.New("a time that is none")
		}
	}
	return nil
}

func instantOf(seconds *float64) *jwt.NumericDate {
	if seconds == nil {
		return nil
	}
	return &jwt.NumericDate{Time: time.UnixMilli(int64(*seconds * 1000))}
}

// The claims that the JWT library validates.

func (c *wireClaims) GetExpirationTime() (*jwt.NumericDate, error) { return instantOf(c.Exp), nil }
func (c *wireClaims) GetNotBefore() (*jwt.NumericDate, error)      { return instantOf(c.Nbf), nil }
func (c *wireClaims) GetIssuedAt() (*jwt.NumericDate, error)       { return nil, nil }
func (c *wireClaims) GetAudience() (jwt.ClaimStrings, error)       { return c.Aud, nil }
func (c *wireClaims) GetSubject() (string, error)                  { return "", nil }
func (c *wireClaims) GetIssuer() (string, error) {
	if c.Iss == nil {
		return "", nil
	}
	return *c.Iss, nil
}

// claims reads the wire form of a token whose signature and times are good.
func (c *wireClaims) claims() *Claims {
	out := &Claims{
		Admin:      c.Role != nil && strings.EqualFold(*c.Role, "admin"),
		Workspaces: c.Workspace,
	}
	if c.Exp != nil {
		out.Expires = instantOf(c.Exp).Time
	}
	out.Prefix, out.HasPrefix = c.Prefix.(string)
	if c.WorkerGroups != nil {
		out.Groups, out.HasGroups = c.WorkerGroups.ClaimStrings, true
	}
	if c.Nbf != nil {
		out.NotBefore = instantOf(c.Nbf).Time
	}
	return out
}

// matches reports whether one of the patterns stands for name: the name itself, or its beginning followed by "*".
func matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		if beginning, open := strings.CutSuffix(pattern, "*"); pattern == name || (open && strings.HasPrefix(name, beginning)) {
			return true
		}
	}
	return false
}

// inWorkspace reports whether the token is good for a workspace.
func (c *Claims) inWorkspace(workspace string) bool {
	if len(c.Workspaces) == 0 {
		return workspace == protocol.DefaultWorkspace
	}
	return matches(c.Workspaces, workspace)
}

// header is the JOSE header of a token, as far as it counts.
type header struct {
	Alg  string `json:"alg"`
	Kid  string `json:"kid"`
	Crit any    `json:"crit"`
	B64  any    `json:"b64"`
}

// headerOf decodes the header of a token strictly: the JWT library takes the last of repeated members, and does not
// look at crit, which says that whoever does not know an extension must refuse the token.
func headerOf(token string) (header, error) {
	first, _, _ := strings.Cut(token, ".")
	if strings.Count(token, ".") != 2 || strings.ContainsFunc(token, foreign) {
		return header{}, errors.New("not three parts of base64url")
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(first)
	if err != nil {
		return header{}, err
	}
	var h header
	if err := json.Unmarshal(data, &h); err != nil {
		return header{}, err
	}
	if h.Crit != nil || h.B64 != nil || h.Alg == "" {
		return header{}, errors.New("a header that is not understood")
	}
	return h, nil
}

// foreign reports whether a token does not hold r. Decoders of base64 pass over line feeds.
func foreign(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.')
}
