package protocol_test

import (
	"strings"
	"testing"

	"abide/protocol"
)

func poll(cast, group, id string) protocol.Address {
	return protocol.Address{Scheme: "poll", Cast: cast, Group: group, ID: id}
}

func bash(backend, image string) protocol.Address {
	return protocol.Address{Scheme: "bash", Group: backend, ID: image}
}

func gcps(project, topic string) protocol.Address {
	return protocol.Address{Scheme: "gcps", Group: project, ID: topic}
}

// The accepted forms of addresses, and more of each sort.
var acceptedAddresses = map[string]protocol.Address{
	"http://h":                      {Scheme: "http"},
	"https://h:8443/a?b=c":          {Scheme: "https"},
	"HTTP://h":                      {Scheme: "http"},
	"https://u:p@h/x":               {Scheme: "https"},
	"http:h/x":                      {Scheme: "http"},
	"http:///h/x":                   {Scheme: "http"},
	`http:\\h\x`:                    {Scheme: "http"},
	" http://h ":                    {Scheme: "http"},
	"ht\ntp://h":                    {Scheme: "http"},
	"http://127.0.0.1:80":           {Scheme: "http"},
	"http://0x7f.1":                 {Scheme: "http"},
	"http://[::1]:8001/":            {Scheme: "http"},
	"http://h:/":                    {Scheme: "http"},
	"http://ex%61mple.com":          {Scheme: "http"},
	"http://münchen.de":             {Scheme: "http"},
	"http://1.example":              {Scheme: "http"},
	"poll://any@default":            poll("any", "default", ""),
	"poll://any@default/":           poll("any", "default", ""),
	"poll://any@default/w1":         poll("any", "default", "w1"),
	"poll://uni@g/w1":               poll("uni", "g", "w1"),
	"POLL://uni@G/W":                poll("uni", "G", "W"),
	"poll://uni@g":                  poll("uni", "g", ""),
	"poll://any@g/a/b":              poll("any", "g", "a/b"),
	"poll://any@g/../x":             poll("any", "g", "x"),
	"poll://any@g/a/./b/..":         poll("any", "g", "a/"),
	"poll://any@g/a/%2E%2e/b":       poll("any", "g", "b"),
	"poll://any@g/..":               poll("any", "g", ""),
	"poll://any:pw@g/id":            poll("any", "g", "id"),
	"poll://any@g:80/id":            poll("any", "g", "id"),
	"poll://any@g:/id":              poll("any", "g", "id"),
	"poll://any@g/id?q#f":           poll("any", "g", "id"),
	"poll://any@g?q":                poll("any", "g", ""),
	"poll://any@g#/x":               poll("any", "g", ""),
	"poll://any@[::1]/x":            poll("any", "[::1]", "x"),
	"poll://any@[::1]:80/x":         poll("any", "[::1]", "x"),
	"poll://any@gr%C3%BCp/w%20%2F1": poll("any", "grüp", "w /1"),
	"poll://any@grüp/é😀":            poll("any", "grüp", "é😀"),
	"poll://any@a%20b":              poll("any", "a b", ""),
	"poll://any@g/a b":              poll("any", "g", "a b"),
	"poll://any@g/%":                poll("any", "g", "%"),
	"poll://any@g/%zz%4":            poll("any", "g", "%zz%4"),
	"poll://any@g/%+1":              poll("any", "g", "%+1"),
	"poll://any@g/%ff":              poll("any", "g", "%ff"),
	"poll://any@g/a@b:c":            poll("any", "g", "a@b:c"),
	"poll://any@a.b_c-d~e":          poll("any", "a.b_c-d~e", ""),
	"\tpoll://any@g/w\r\n":          poll("any", "g", "w"),
	"gcps://p/t":                    gcps("p", "t"),
	"gcps://p/t/u":                  gcps("p", "t/u"),
	"gcps://p//t":                   gcps("p", "/t"),
	"bash://":                       bash("bash", ""),
	"bash:":                         bash("bash", ""),
	"bash:///":                      bash("bash", ""),
	"BASH:?q#f":                     bash("bash", ""),
	"bash://bash":                   bash("bash", ""),
	"bash://bash/":                  bash("bash", ""),
	"bash://docker/library/u:1":     bash("docker", "library/u:1"),
	"bash://docker//%2Fu":           bash("docker", "u"),
	"bash://docker/h.io:5/u@s2:0f":  bash("docker", "h.io:5/u@s2:0f"),
	"bash://docker/u%3A22.04?q#f":   bash("docker", "u:22.04"),
}

// The rejected forms of addresses, and more of each sort, with a part of the message.
var rejectedAddresses = map[string]string{
	"":                          "has no scheme",
	"default":                   "has no scheme",
	"/x":                        "has no scheme",
	"//h/x":                     "has no scheme",
	":x":                        "has no scheme",
	"1http://h":                 "has no scheme",
	"a b://h":                   "has no scheme",
	"poll://g":                  "must be any or uni",
	"poll://g/id":               "must be any or uni",
	"poll://@g":                 "must be any or uni",
	"poll:any@g":                "must begin with poll://",
	"poll:/any@g":               "must begin with poll://",
	"poll://worker-1@default":   "must be any or uni",
	"poll://ANY@g":              "must be any or uni",
	"poll://any@a@b":            "must be any or uni",
	"poll://any:x@a@b":          "must be any or uni",
	"poll://%61ny@g":            "must be any or uni",
	"poll://any@":               "the group is missing",
	"poll://any@/x":             "the group is missing",
	"poll://any@:80/x":          "the group is missing",
	"poll://any@a b":            "percent-encode it",
	`poll://any@a\b`:            "percent-encode it",
	"poll://any@[zz]/x":         "no IPv6 address",
	"poll://any@[::1/x":         "no IPv6 address",
	"poll://any@[::1%25eth0]/x": "no IPv6 address",
	"poll://any@[127.0.0.1]/x":  "no IPv6 address",
	"poll://any@g:99999/id":     "the port",
	"poll://any@g:x/id":         "the port",
	"poll://any@g:-1/id":        "the port",
	"gcps://p":                  "must name a project and a topic",
	"gcps://p/":                 "must name a project and a topic",
	"gcps://p/..":               "must name a project and a topic",
	"gcps:///t":                 "the project is missing",
	"gcps:p/t":                  "must name a project and a topic",
	"http://":                   "the host is missing",
	"http:":                     "the host is missing",
	"http://u@":                 "the host is missing",
	"http://?q":                 "the host is missing",
	"http://h:99999":            "the port",
	"http://a b":                "no host name may",
	"http://a%zz":               "no host name may",
	"http://a<b":                "no host name may",
	"http://[zz]":               "no IPv6 address",
	"http://256.256.256.256":    "no IPv4 address",
	"http://1.2.3.4.5":          "no IPv4 address",
	"http://0x100000000":        "no IPv4 address",
	"http://a.0x1":              "no IPv4 address",
	"http://09.1":               "no IPv4 address",
	"bash:foo":                  "nothing may",
	"bash:///a":                 "nothing may",
	"bash://bash/a":             "nothing may",
	"bash://nope/x":             "none of bash and docker",
	"bash://DOCKER/x":           "none of bash and docker",
	"bash://tensorlake/x":       "none of bash and docker",
	"bash://docker":             "the image is missing",
	"bash://docker/":            "the image is missing",
	"bash://docker//?x":         "the image is missing",
	"bash://docker/..":          "the image is missing",
	"bash://docker/--privileg":  "no name of an image",
	"bash://docker/%2D-rm":      "no name of an image",
	"bash://docker/a b":         "no name of an image",
	"bash://docker/a%00":        "no name of an image",
	"bash://docker/é":           "no name of an image",
	"ftp://h":                   "none of poll, http",
	"file:///x":                 "none of poll, http",
	"mailto:a@b":                "none of poll, http",
	"ws://h":                    "none of poll, http",
	"kafka://x":                 "none of poll, http",
	"sqs://x":                   "none of poll, http",
	"local://any@g":             "none of poll, http",
	"poll://any@g\x00":          "NUL",
	"poll://any@\xff":           "UTF-8",
	"http://" + strings.Repeat("h", protocol.MaxAddressBytes): "MaxAddressBytes",
}

func TestParseAddress(t *testing.T) {
	for s, want := range acceptedAddresses {
		got, err := protocol.ParseAddress(s)
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", s, got, err, want)
		}
	}
	for s, part := range rejectedAddresses {
		got, err := protocol.ParseAddress(s)
		if err == nil || !strings.Contains(err.Error(), part) || len(err.Error()) > 300 {
			t.Errorf("%q: got %+v, %v; want an error with %q", s, got, err, part)
		}
	}
}
