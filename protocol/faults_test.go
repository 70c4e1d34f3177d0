package protocol_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"abide/protocol"
)

// rule is what a member must be; mutations derive from it.
type rule struct {
	path     string
	typ      string // id, pid, version, ttl, instant, limit, state, payload, tags, address, text, array, object, any
	presence string // required, optional, nullable
}

var rules = map[protocol.Kind][]rule{
	protocol.KindPromiseGet:              {{"id", "id", "required"}},
	protocol.KindPromiseCreate:           {{"id", "id", "required"}, {"timeoutAt", "instant", "required"}, {"param", "payload", "optional"}, {"tags", "tags", "optional"}},
	protocol.KindPromiseSettle:           {{"id", "id", "required"}, {"state", "state", "required"}, {"value", "payload", "optional"}},
	protocol.KindPromiseRegisterCallback: {{"awaited", "id", "required"}, {"awaiter", "id", "required"}},
	protocol.KindPromiseRegisterListener: {{"awaited", "id", "required"}, {"address", "address", "required"}},
	protocol.KindPromiseSearch:           {{"state", "state", "nullable"}, {"tags", "tags", "nullable"}, {"limit", "limit", "nullable"}, {"cursor", "text", "nullable"}},
	protocol.KindTaskGet:                 {{"id", "id", "required"}},
	protocol.KindTaskCreate: {{"pid", "pid", "required"}, {"ttl", "ttl", "required"}, {"action", "object", "required"},
		{"action.kind", "text", "required"}, {"action.head", "any", "required"}, {"action.data", "object", "required"},
		{"action.data.id", "id", "required"}, {"action.data.timeoutAt", "instant", "required"}, {"action.data.param", "payload", "optional"}},
	protocol.KindTaskAcquire: {{"id", "id", "required"}, {"version", "version", "required"}, {"pid", "pid", "required"}, {"ttl", "ttl", "required"}},
	protocol.KindTaskFence: {{"id", "id", "required"}, {"version", "version", "required"}, {"action", "object", "required"},
		{"action.kind", "text", "required"}, {"action.head", "any", "optional"}, {"action.data", "object", "required"},
		{"action.data.id", "id", "required"}, {"action.data.timeoutAt", "instant", "required"}, {"action.data.param", "payload", "optional"}, {"action.data.tags", "tags", "optional"}},
	protocol.KindTaskHeartbeat: {{"pid", "pid", "required"}, {"tasks", "array", "required"}, {"tasks.1", "object", "-"},
		{"tasks.1.id", "id", "required"}, {"tasks.1.version", "version", "required"}},
	protocol.KindTaskSuspend: {{"id", "id", "required"}, {"version", "version", "required"}, {"actions", "array", "required"},
		{"actions.0", "object", "-"}, {"actions.0.kind", "text", "required"}, {"actions.0.head", "any", "required"}, {"actions.0.data", "object", "required"},
		{"actions.0.data.awaited", "id", "required"}, {"actions.0.data.awaiter", "id", "required"}},
	protocol.KindTaskFulfill: {{"id", "id", "required"}, {"version", "version", "required"}, {"action", "object", "required"},
		{"action.kind", "text", "required"}, {"action.head", "any", "required"}, {"action.data", "object", "required"},
		{"action.data.id", "id", "required"}, {"action.data.state", "state", "required"}, {"action.data.value", "payload", "optional"}},
	protocol.KindTaskRelease:  {{"id", "id", "required"}, {"version", "version", "required"}},
	protocol.KindTaskHalt:     {{"id", "id", "required"}},
	protocol.KindTaskContinue: {{"id", "id", "required"}},
	protocol.KindTaskSearch:   {{"state", "state", "nullable"}, {"limit", "limit", "nullable"}, {"cursor", "text", "nullable"}},
	protocol.KindTaskExplain:  {{"id", "id", "required"}},
	protocol.KindScheduleGet:  {{"id", "id", "required"}},
	protocol.KindScheduleCreate: {{"id", "id", "required"}, {"cron", "cron", "required"}, {"promiseId", "id", "required"},
		{"promiseTimeout", "instant", "required"}, {"promiseParam", "payload", "optional"}, {"promiseTags", "tags", "required"}},
	protocol.KindScheduleDelete: {{"id", "id", "required"}},
	protocol.KindScheduleSearch: {{"tags", "tags", "nullable"}, {"limit", "limit", "nullable"}, {"cursor", "text", "nullable"}},
	protocol.KindDebugTick:      {{"time", "instant", "required"}},
}

// memberFaults are those of the members of a payload or of tags.
var memberFaults = map[string]map[string]string{
	"payload": {
		`{"data":7}`: "data must be a string", `{"data":{}}`: "data must be a string",
		`{"headers":[]}`: "headers must be an object of strings", `{"headers":{"a":1}}`: "headers must be an object of strings",
		`{"headers":{"a":null}}`: "headers must be an object of strings",
	},
	"tags": {
		`{"a":1}`: "must be an object of strings", `{"a":null}`: "must be an object of strings", `{"a":{}}`: "must be an object of strings",
		`{"a\u0000":"b"}`: "NUL", `{"a":"\u0000"}`: "NUL", `{"a":"\ud83d"}`: "surrogate", `{"\ude00":"a"}`: "surrogate",
		`{"a":"` + strings.Repeat("x", protocol.MaxTagsBytes) + `"}`: "the limit is 32768 (MaxTagsBytes)",
	},
}

// faults lists, for a type, texts that a member of that type must not be, with a part of the message.
func faults(typ string) map[string]string {
	f := map[string]string{}
	types := map[string]string{"true": "boolean", "7": "number", `"x"`: "string", "[]": "array", "{}": "object"}
	except := func(own string) {
		for text, name := range types {
			if text != own {
				f[text] = name
			}
		}
	}
	number := func(least int64) {
		except("7")
		for _, text := range []string{"1.0", "1e3", "1.5", "9223372036854775808", "-9223372036854775809", "1e400", strings.Repeat("9", 400)} {
			f[text] = "must be an integer"
		}
		f[strconv.FormatInt(least-1, 10)] = fmt.Sprintf("must be at least %d", least)
		f["-9223372036854775808"] = "must be at least"
	}
	name := func(limit int) {
		except(`"x"`)
		f[`""`] = "must not be empty"
		f[`"`+strings.Repeat("x", limit+1)+`"`] = fmt.Sprintf("is %d bytes long, the limit is %d", limit+1, limit)
		f[`"`+strings.Repeat("é", limit/2+1)+`"`] = "bytes long"
		f[`"a\u0000b"`] = "NUL"
		f[`"\ud800"`] = "surrogate"
		f[`"x\udc00y"`] = "surrogate"
	}
	switch typ {
	case "id":
		name(protocol.MaxIDBytes)
	case "pid":
		name(protocol.MaxPIDBytes)
	case "cron":
		name(protocol.MaxCronBytes)
		f[`"* * *"`] = "Invalid cron expression: it has 3 fields"
		f[`"61 * * * *"`] = "minute"
	case "version", "instant":
		number(0)
	case "ttl":
		number(1)
	case "limit":
		number(1)
		f["1001"] = "must be at most 1000"
	case "state":
		except(`"x"`)
		f[`"nope"`], f[`"RESOLVED"`], f[`""`] = "must be one of", "must be one of", "must be one of"
	case "payload", "tags":
		except("{}")
		for text, part := range memberFaults[typ] {
			f[text] = part
		}
	case "address":
		except(`"x"`)
		f[`"default"`], f[`""`], f[`"poll://g"`], f[`"\ud800"`] = "Invalid listener address", "Invalid listener address", "Invalid listener address", "surrogate"
		f[`"poll://any@`+strings.Repeat("g", protocol.MaxAddressBytes)+`"`] = "MaxAddressBytes"
	case "text":
		except(`"x"`)
		f[`"\ud800"`] = "surrogate"
	case "array":
		except("[]")
	case "object":
		except("{}")
	}
	return f
}

// TestEveryMemberRefusesEveryFault breaks one member of one kind at a time.
func TestEveryMemberRefusesEveryFault(t *testing.T) {
	tried := 0
	for kind, members := range rules {
		for _, m := range members {
			for text, part := range faults(m.typ) {
				tried++
				refuses(t, kind, replace(t, valid[kind], m.path, text), part)
			}
			if m.typ != "any" && m.presence != "nullable" {
				refuses(t, kind, replace(t, valid[kind], m.path, "null"), "null")
			}
			missing := replace(t, valid[kind], m.path, "")
			switch m.presence {
			case "required":
				refuses(t, kind, missing, jsonPath(m.path)+" is missing")
			case "nullable":
				accepts(t, kind, missing)
				accepts(t, kind, replace(t, valid[kind], m.path, "null"))
			case "optional":
				accepts(t, kind, missing)
			}
		}
	}
	if tried < 500 {
		t.Fatalf("only %d faults tried", tried)
	}
}

// jsonPath writes a path as messages do.
func jsonPath(path string) string {
	parts := strings.Split(path, ".")
	out := parts[0]
	for _, p := range parts[1:] {
		if _, err := strconv.Atoi(p); err == nil {
			out += "[" + p + "]"
		} else {
			out += "." + p
		}
	}
	return out
}

// replace puts text at path in data, whatever the text is; an empty one removes the member.
func replace(t *testing.T, data, path, text string) string {
	t.Helper()
	const mark = "@mark@"
	var tree any
	if err := json.Unmarshal([]byte(data), &tree); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(path, ".")
	at := tree
	for i, p := range parts {
		last := i == len(parts)-1
		switch node := at.(type) {
		case map[string]any:
			if last && text == "" {
				delete(node, p)
			} else if last {
				node[p] = mark
			}
			at = node[p]
		case []any:
			n, _ := strconv.Atoi(p)
			if last {
				node[n] = mark
			}
			at = node[n]
		}
	}
	out, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(string(out), `"`+mark+`"`, text, 1)
}
