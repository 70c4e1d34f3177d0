package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"abide/protocol"
)

// exactPreload is up to how many promises a preload is compared whole. The server may bound a preload by count
// and bytes (section 6 of docs/machine.md gives no figures), so of a longer one a beginning is enough.
const exactPreload = 20

// Compare reports how a server's answer to op differs from want, which is the model's; empty if it does not.
// Status is that of HTTP, body the envelope.
func Compare(op Op, want Answer, status int, body []byte) string {
	envelope, err := decodeJSON(body)
	if err != nil {
		return fmt.Sprintf("the answer is not JSON: %v: %.200q", err, body)
	}
	got, _ := envelope.(object)
	var data any
	if got != nil {
		data = got["data"]
	}
	if status != want.Status {
		return fmt.Sprintf("status %d, want %d (data %s)", status, want.Status, short(data))
	}
	head := object{"corrId": corrID, "status": int64(want.Status), "version": protocol.Version}
	if diff := match("kind", string(op.Request.Kind()), got["kind"]); diff != "" {
		return diff
	}
	if diff := match("head", head, got["head"]); diff != "" {
		return diff
	}
	if op.Request.Kind() == protocol.KindDebugSnap && want.Status == protocol.StatusOK {
		return matchSnap(want.Data.(object), data)
	}
	return match("data", want.Data, data)
}

func decodeJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out any
	err := d.Decode(&out)
	return out, err
}

func short(v any) string {
	text, _ := json.Marshal(v)
	if len(text) > 300 {
		return string(text[:300]) + "..."
	}
	return string(text)
}

// match compares what the model says with decoded JSON. A nil of the model stands for any text.
func match(path string, want, got any) string {
	differ := fmt.Sprintf("%s is %s, want %s", path, short(got), short(want))
	switch w := want.(type) {
	case nil:
		if s, is := got.(string); !is || s == "" {
			return fmt.Sprintf("%s is %s, want a text", path, short(got))
		}
	case string:
		if s, is := got.(string); !is || s != w {
			return differ
		}
	case int64:
		if n, is := got.(json.Number); !is || n.String() != strconv.FormatInt(w, 10) {
			return differ
		}
	case json.RawMessage:
		plain, err := decodeJSON(w)
		a, _ := json.Marshal(plain)
		b, _ := json.Marshal(got)
		if err != nil || !bytes.Equal(a, b) {
			return differ
		}
	case object:
		return matchObject(path, w, got)
	case []any:
		return matchList(path, w, got)
	}
	return ""
}

func matchObject(path string, want object, got any) string {
	g, is := got.(object)
	if !is {
		return fmt.Sprintf("%s is %s, want an object", path, short(got))
	}
	for _, name := range slices.Sorted(maps.Keys(g)) {
		if _, known := want[name]; !known {
			return fmt.Sprintf("%s has a member %s (%s), want none", path, name, short(g[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value, has := g[name]
		inner := path + "." + name
		if !has {
			return fmt.Sprintf("%s is missing, want %s", inner, short(want[name]))
		}
		w := want[name]
		switch name {
		case "preload":
			w, value = bounded(w, value)
		case "lost":
			w, value = asSet(w), asSet(value)
		}
		if diff := match(inner, w, value); diff != "" {
			return diff
		}
	}
	return ""
}

func matchList(path string, want []any, got any) string {
	g, is := got.([]any)
	if !is {
		return fmt.Sprintf("%s is %s, want a list", path, short(got))
	}
	for i := range min(len(want), len(g)) {
		if diff := match(fmt.Sprintf("%s[%d]", path, i), want[i], g[i]); diff != "" {
			return diff
		}
	}
	switch {
	case len(g) > len(want):
		return fmt.Sprintf("%s has %d elements, want %d; the first too many is %s", path, len(g), len(want), short(g[len(want)]))
	case len(g) < len(want):
		return fmt.Sprintf("%s has %d elements, want %d; the first missing is %s", path, len(g), len(want), short(want[len(g)]))
	}
	return ""
}

// bounded cuts the model's preload where the server's ends, if that is long enough.
func bounded(want, got any) (any, any) {
	w, g := want.([]any), got
	if list, is := got.([]any); is && len(list) >= exactPreload && len(list) < len(w) {
		w = w[:len(list)]
	}
	return w, g
}

// asSet sorts a list by its JSON and drops repetitions: for lists without a documented order.
func asSet(list any) any {
	l, is := list.([]any)
	if !is {
		return list
	}
	return slices.CompactFunc(sorted(l), func(a, b any) bool { return text(a) == text(b) })
}

func sorted(list []any) []any {
	return slices.SortedFunc(slices.Values(list), func(a, b any) int { return bytes.Compare([]byte(text(a)), []byte(text(b))) })
}

func text(v any) string {
	out, _ := json.Marshal(v)
	return string(out)
}

// matchSnap compares snapshots: promises and tasks in order, the other lists as sets.
func matchSnap(want object, got any) string {
	g, is := got.(object)
	if !is {
		return fmt.Sprintf("data is %s, want an object", short(got))
	}
	deadlines := map[string]int64{}
	for _, p := range want["promises"].([]any) {
		deadlines[p.(object)["id"].(string)] = p.(object)["timeoutAt"].(int64)
	}
	w := maps.Clone(want)
	g = maps.Clone(g)
	for _, name := range []string{"promiseTimeouts", "callbacks", "listeners", "taskTimeouts", "messages"} {
		for _, side := range []object{w, g} {
			if list, is := side[name].([]any); is {
				side[name] = sorted(clipLeases(list, deadlines))
			}
		}
	}
	return match("data", w, g)
}

// clipLeases cuts leases at their promise's deadline: beyond it a renewal may leave them where they are
// (section 3, "heartbeats that change nothing write nothing").
func clipLeases(list []any, deadlines map[string]int64) []any {
	out := make([]any, len(list))
	for i, element := range list {
		out[i] = element
		entry, is := element.(object)
		if !is || text(entry["type"]) != strconv.FormatInt(snapLease, 10) {
			continue
		}
		id, _ := entry["id"].(string)
		if lease, err := strconv.ParseInt(text(entry["timeout"]), 10, 64); err == nil && lease >= deadlines[id] {
			entry = maps.Clone(entry)
			entry["timeout"] = json.RawMessage(strconv.FormatInt(deadlines[id], 10))
			out[i] = entry
		}
	}
	return out
}
