package main

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Storage engines, as --storage-type names them.
const (
	engineSQLite   = "sqlite"
	enginePostgres = "postgres"
	engineMySQL    = "mysql"
)

// engineSchemes are the schemes of URLs that name a store, each with its engine.
var engineSchemes = map[string]string{"postgres": enginePostgres, "postgresql": enginePostgres, "mysql": engineMySQL}

// storeAddress says which store: a file, or a database with what is needed to reach it. It holds secrets; its String
// does not.
type storeAddress struct {
	engine string
	// place is the path of the file or the URL of the database.
	place string
	// listenURL and schema are for PostgreSQL; empty means the URL and the engine's default.
	listenURL, schema string
	// poolSize is how many connections read at once; 0 means the engine's default.
	poolSize       int
	acceptDataLoss bool
	existing       bool // it must be there: none is made
}

// parseAddress reads what a person gives as a store: the path of a file, a postgres:// or a mysql:// URL. A parameter
// schema of a postgres:// URL is taken out of it: it names the schema.
func parseAddress(text string) (storeAddress, error) {
	scheme, rest, isURL := strings.Cut(text, "://")
	engine, known := engineSchemes[strings.ToLower(scheme)]
	switch {
	case text == "":
		return storeAddress{}, errors.New("no store is named: give the path of a file, a postgres:// or a mysql:// URL")
	case isURL && !known:
		return storeAddress{}, fmt.Errorf("%s:// is no store: give the path of a file, a postgres:// or a mysql:// URL", scheme)
	case !isURL:
		return storeAddress{engine: engineSQLite, place: text}, checkDataFile(text)
	}
	a := storeAddress{engine: engine, place: text}
	if engine == enginePostgres {
		before, query, found := cutQuery(rest)
		if found {
			schema, others, err := cutParameter(query, "schema")
			if err != nil {
				return storeAddress{}, fmt.Errorf("the parameters of %s are not those of a URL", a)
			}
			if a.schema = schema; schema != "" {
				a.place = strings.TrimSuffix(scheme+"://"+before+"?"+others, "?")
			}
		}
	}
	return a, nil
}

// cutParameter takes one parameter out of a query and leaves the others as they were written.
func cutParameter(query, name string) (value, others string, err error) {
	var left []string
	for _, pair := range strings.Split(query, "&") {
		key, text, _ := strings.Cut(pair, "=")
		if key != name {
			left = append(left, pair)
			continue
		}
		if value, err = url.QueryUnescape(text); err != nil {
			return "", "", err
		}
	}
	return value, strings.Join(left, "&"), nil
}

// String names the store without its secrets.
func (a storeAddress) String() string {
	if a.engine == engineSQLite {
		return a.place
	}
	text := withoutPassword(a.place)
	if a.schema != "" {
		text += " schema " + a.schema
	}
	return text
}

// secretParameter are parameters of database URLs whose values are secrets.
var secretParameter = regexp.MustCompile(`(?i)((?:^|[?&])[a-z_]*(?:password|passwd|secret|token)[a-z_]*=)[^&]*`)

// withoutPassword puts stars for the secrets of a URL. It needs no URL that parses: one that does not is shown as
// well, in the message that says so.
func withoutPassword(text string) string {
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		return text
	}
	before, query, found := cutQuery(rest)
	if i := strings.LastIndexByte(before, '@'); i >= 0 {
		if user, _, secret := strings.Cut(before[:i], ":"); secret {
			before = user + ":***" + before[i:]
		}
	}
	if found {
		before += "?" + query
	}
	return scheme + "://" + secretParameter.ReplaceAllString(before, "${1}***")
}

// cutQuery cuts what stands behind the scheme of a URL before its query. A question mark with an @ behind it is taken for one
// of a password that was pasted as it is, even if nothing can then be connected to: what is shown must hold none of it.
func cutQuery(rest string) (before, query string, found bool) {
	from := strings.LastIndexByte(rest, '@') + 1
	before, query, found = strings.Cut(rest[from:], "?")
	return rest[:from] + before, query, found
}

// urlInText is what may be a URL in a sentence; that of a database with all that follows, since a password that was pasted may hold
// blanks.
var urlInText = regexp.MustCompile(`(?is)(?:postgres(?:ql)?|mysql)://.+|[a-z0-9+.-]+://\S+`)

// withoutPasswords puts stars for the secrets of every URL in a text: a command line that is not understood may have one
// where none belongs.
func withoutPasswords(text string) string {
	return urlInText.ReplaceAllStringFunc(text, withoutPassword)
}

// secrets lists the secrets of a URL as they may stand in an error of a driver: as written and decoded.
func secrets(text string) (found []string) {
	add := func(s string) {
		found = append(found, s)
		if plain, err := url.PathUnescape(s); err == nil && plain != s {
			found = append(found, plain)
		}
	}
	_, rest, _ := strings.Cut(text, "://")
	before, _, _ := cutQuery(rest)
	if i := strings.LastIndexByte(before, '@'); i >= 0 {
		if _, password, ok := strings.Cut(before[:i], ":"); ok && password != "" {
			add(password)
		}
	}
	for _, parameter := range secretParameter.FindAllString(rest, -1) {
		if _, value, _ := strings.Cut(parameter, "="); value != "" {
			add(value)
		}
	}
	return found
}

// hidden is an error whose text has stars for the secrets of a store's address.
type hidden struct {
	error
	text string
}

func (h hidden) Error() string { return h.text }
func (h hidden) Unwrap() error { return h.error }

// hide takes the secrets of the address out of an error's text, in case that an engine's driver has put them there.
func (a storeAddress) hide(err error) error {
	if err == nil || a.engine == engineSQLite {
		return err
	}
	text := err.Error()
	for _, place := range []string{a.place, a.listenURL} {
		if place == "" {
			continue
		}
		text = strings.ReplaceAll(text, place, withoutPassword(place))
		for _, secret := range secrets(place) {
			if len(secret) >= minSecret {
				text = strings.ReplaceAll(text, secret, "***")
			}
		}
	}
	if text == err.Error() {
		return err
	}
	return hidden{err, text}
}

// minSecret is the length from which a secret is looked for in errors: a shorter one hides words.
const minSecret = 4
