package protocol_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"abide/protocol"
)

// Reading n bytes takes at most allocPerByte*n + allocBase bytes of memory, whatever they hold. What is refused may take
// more: the JSON library makes an error's place of the names around it, and escapes them over and over.
const (
	allocPerByte        = 16
	allocPerRefusedByte = 64
	allocBase           = 64 << 10
)

// frugal runs read and checks what it allocates. Other goroutines allocate too, so the least of some tries counts.
func frugal(t *testing.T, text []byte, read func() error) {
	t.Helper()
	var before, after runtime.MemStats
	least := ^uint64(0)
	var limit uint64
	for range 20 {
		runtime.ReadMemStats(&before)
		err := read()
		runtime.ReadMemStats(&after)
		limit = uint64(allocPerByte*len(text) + allocBase)
		if err != nil {
			limit = uint64(allocPerRefusedByte*len(text) + allocBase)
		}
		if least = min(least, after.TotalAlloc-before.TotalAlloc); least <= limit {
			return
		}
	}
	t.Fatalf("reading %d bytes takes %d bytes of memory, the bound is %d: %.300q", len(text), least, limit, text)
}

// TestLargeBodiesAreReadFrugally has bodies of the size that is allowed, each of as much as can be of one thing.
func TestLargeBodiesAreReadFrugally(t *testing.T) {
	envelope := func(kind, before, piece, after string) []byte {
		head := `{"kind":"` + kind + `","head":{"corrId":"c","version":"2026-04-01"},"data":` + before
		n := (protocol.MaxBodyBytes - len(head) - len(after) - 2) / len(piece)
		return []byte(head + strings.TrimSuffix(strings.Repeat(piece, n), ",") + after + "}")
	}
	var names strings.Builder
	for i := range protocol.MaxBodyMembers - 8 {
		fmt.Fprintf(&names, `"%d":"",`, i)
	}
	for name, body := range map[string][]byte{
		"different names":    envelope("promise.create", `{"id":"a","timeoutAt":1,"tags":{`+names.String(), " ", `"":""}}`),
		"arrays in arrays":   envelope("promise.get", "", "[", ""),
		"objects in objects": envelope("promise.get", "", `{"":`, ""),
		"equal names":        envelope("promise.get", "{", `"a":1,`, "}"),
		"empty tasks":        envelope("task.heartbeat", `{"pid":"p","tasks":[`, `{},`, "]}"),
		"tasks":              envelope("task.heartbeat", `{"pid":"p","tasks":[`, `{"id":"a","version":0},`, "]}"),
		"numbers for tasks":  envelope("task.heartbeat", `{"pid":"p","tasks":[`, `0,`, "]}"),
		"actions":            envelope("task.suspend", `{"id":"a","version":0,"actions":[`, `{"kind":"","head":{},"data":{"awaited":"b","awaiter":"a"}},`, "]}"),
		"escapes":            envelope("promise.get", `{"id":"`, `\u0041`, `"}`),
		"headers":            envelope("promise.create", `{"id":"a","timeoutAt":1,"param":{"headers":{`, `"":"",`, "}}}"),
		"blanks":             envelope("promise.get", "", " ", "{}"),
		"a long name":        append(append([]byte(`{"`), bytes.Repeat([]byte("/"), protocol.MaxBodyBytes-4)...), `":`...),
		"nothing but quotes": bytes.Repeat([]byte(`"`), protocol.MaxBodyBytes),
	} {
		t.Run(name, func(t *testing.T) {
			if len(body) > protocol.MaxBodyBytes {
				t.Fatalf("a body of %d bytes", len(body))
			}
			frugal(t, body, func() error {
				env, err := protocol.DecodeEnvelope(body)
				if err == nil {
					_, err = protocol.DecodeRequest(env.Kind, env.Data)
				}
				return err
			})
		})
	}
}

// maxRefusalBytes bounds the message of a refusal: a few violations, each with a path and a piece of what was sent.
const maxRefusalBytes = 4096

// checkRefusal wants an error that can be answered: of a known reason, in a bounded text.
func checkRefusal(t *testing.T, body []byte, err error) {
	t.Helper()
	var refusal *protocol.RequestError
	switch {
	case !errors.As(err, &refusal):
		t.Fatalf("%q: %T %v", body, err, err)
	case refusal.Reason < protocol.Malformed || refusal.Reason > protocol.Invalid || refusal.Message == "":
		t.Fatalf("%q: reason %d, message %q", body, refusal.Reason, refusal.Message)
	case len(refusal.Message) > maxRefusalBytes || !utf8.ValidString(refusal.Message):
		t.Fatalf("%q: a message of %d bytes: %.500q", body, len(refusal.Message), refusal.Message)
	}
}

// checkEcho wants the answer to a request to be an envelope with what it echoes.
func checkEcho(t *testing.T, env protocol.Envelope, reply protocol.Reply) {
	t.Helper()
	text := protocol.AppendResponse(nil, env.Kind, env.CorrID, reply)
	if resp, err := protocol.DecodeResponse(text); err != nil || resp.Kind != env.Kind || resp.CorrID != env.CorrID || resp.Status != reply.Status || !json.Valid(text) {
		t.Fatalf("answered with %s, which reads as %+v, %v", text, resp, err)
	}
}

// checkLimits looks at every member that has a limit, wherever it stands in a request.
func checkLimits(t *testing.T, v reflect.Value, name string) {
	t.Helper()
	names := []string{"ID", "PID", "Awaited", "Awaiter", "PromiseID", "Address", "Cron"}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			checkLimits(t, v.Elem(), name)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			checkLimits(t, v.Field(i), v.Type().Field(i).Name)
		}
	case reflect.Slice:
		if tags, is := v.Interface().(protocol.Tags); is {
			checkTags(t, tags)
			return
		}
		for i := range v.Len() {
			checkLimits(t, v.Index(i), name)
		}
	case reflect.String:
		if s := v.String(); slices.Contains(names, name) && (s == "" || len(s) > protocol.MaxIDBytes || strings.Contains(s, "\x00")) || !utf8.ValidString(s) {
			t.Fatalf("%s is accepted as %q", name, s)
		}
	case reflect.Int64, reflect.Int:
		if n := v.Int(); n < 0 || name == "TTL" && n == 0 || name == "Limit" && n > protocol.MaxSearchLimit {
			t.Fatalf("%s is accepted as %d", name, n)
		}
	}
}

func checkTags(t *testing.T, tags protocol.Tags) {
	t.Helper()
	size := 0
	for i, tag := range tags {
		size += len(tag.Name) + len(tag.Value)
		if strings.Contains(tag.Name+tag.Value, "\x00") || i > 0 && tags[i-1].Name >= tag.Name {
			t.Fatalf("tags %q are accepted", tags)
		}
	}
	if size > protocol.MaxTagsBytes {
		t.Fatalf("tags of %d bytes are accepted", size)
	}
}

// FuzzDecode: any body is refused with an error that can be answered, or is a request within the limits, which is
// understood the same when it is written again; without much memory.
func FuzzDecode(f *testing.F) {
	for kind, data := range valid {
		f.Add([]byte(`{"kind":"` + string(kind) + `","head":{"corrId":"c","version":"2026-04-01"},"data":` + data + `}`))
	}
	f.Add(createBody)
	for _, body := range []string{
		`{"kind":"promise.create","head":{"corrId":"\ud800","version":""},"data":{"tags":{"\"":"\\"}`,
		`{"kind":"k","head":{"corrId":"c","version":"2026-04-01","resonate:debug_time":-1},"data":{}}`,
		`{"kind":"promise.get","kind":"x","head":{},"data":[]}`, ` {"kind":7,"head":null} `, `[[[[[[[[`, "{\"\xff\":1}", `{"head":{"corrId":"a","corrId":"b"}}`,
		`{"kind":"promise.create","head":{"corrId":"c","version":"2026-04-01"},"data":{"id":"\u0000","timeoutAt":1e3,"param":{"data":"\ud800","headers":{"a":"b"}},"tags":{"a":"\u0000","b":1}}}`,
		`{"kind":"task.heartbeat","head":{"corrId":"c","version":"2026-04-01"},"data":{"pid":"p","tasks":[{},{},{},{},{},{},{},{},{},{}]}}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		frugal(t, body, func() error {
			env, err := protocol.DecodeEnvelope(body)
			if err == nil {
				_, err = protocol.DecodeRequest(env.Kind, env.Data)
			}
			return err
		})
		env, err := protocol.DecodeEnvelope(body)
		if err != nil {
			checkRefusal(t, body, err)
			checkEcho(t, env, protocol.Fail(protocol.StatusInvalid, err.Error()))
			return
		}
		checkEcho(t, env, protocol.OK(nil))
		req, err := protocol.DecodeRequest(env.Kind, env.Data)
		if err != nil {
			checkRefusal(t, body, err)
			return
		}
		checkLimits(t, reflect.ValueOf(req), "")
		text := protocol.AppendRequest(nil, protocol.Head{CorrID: env.CorrID}, req)
		env, err = protocol.DecodeEnvelope(text)
		if err != nil {
			t.Fatalf("%s became %s: %v", body, text, err)
		}
		again, err := protocol.DecodeRequest(env.Kind, env.Data)
		if err != nil {
			t.Fatalf("%s became %s: %v", body, text, err)
		}
		if once := protocol.AppendRequest(nil, protocol.Head{CorrID: env.CorrID}, again); !bytes.Equal(once, text) {
			t.Fatalf("%s became %s, then %s", body, text, once)
		}
	})
}

// FuzzResponse: whatever a server answers, the client reads it or says why not; what it reads as a body is read the
// same when it is written again. Messages to workers likewise.
func FuzzResponse(f *testing.F) {
	for _, c := range bodies {
		f.Add(protocol.AppendResponse(nil, "k", "c", protocol.OK(c.body)))
	}
	f.Add(protocol.AppendResponse(nil, "k", "c", protocol.Fail(404, "not found")))
	f.Add(protocol.AppendExecute(nil, "http://h", protocol.TaskRef{ID: "é", Version: 3}))
	f.Add(protocol.AppendUnblock(nil, protocol.Promise{ID: "p", State: protocol.Resolved, Value: protocol.Value(`{"data":"1"}`)}))
	f.Fuzz(func(t *testing.T, text []byte) {
		frugal(t, text, func() error {
			_, err := protocol.DecodeMessage(text)
			return err
		})
		resp, err := protocol.DecodeResponse(text)
		if err != nil {
			return
		}
		_ = resp.Message()
		for _, c := range bodies {
			body, err := decodeBody(c.body, resp.Data)
			if err != nil {
				continue
			}
			once := body.AppendJSON(nil)
			again, err := decodeBody(c.body, once)
			if err != nil || !bytes.Equal(again.AppendJSON(nil), once) {
				t.Fatalf("%T of %s is written as %s, then %v", c.body, text, once, err)
			}
		}
	})
}

// FuzzUnchecked reads text that nobody has checked: nonsense may come out, but no panic.
func FuzzUnchecked(f *testing.F) {
	for kind, data := range valid {
		f.Add(string(kind), []byte(data))
	}
	for _, text := range []string{`{"id`, `{"id":`, `{"id":"`, `{"id":"\`, `{"id":"x"`, `{"tags":{`, `{"tags":{"a`, `{"tags":{"a":`, `{"tasks":[{`, `{"action":{"data":{"`, `{,}`, `{:`, `{"a"}`, `{"a":}`, `"`, `{`, `}`} {
		f.Add("promise.create", []byte(text))
		f.Add("task.fence", []byte(text))
		f.Add("task.heartbeat", []byte(text))
	}
	f.Fuzz(func(_ *testing.T, kind string, text []byte) {
		data := protocol.Data(text)
		_, _ = protocol.DecodeRequest(kind, data)
		_, _ = protocol.DecodeSnapBody(data)
		_, _ = protocol.Value(text).Data()
		_, _ = protocol.Value(text).Headers()
	})
}

// escaped spells a name with nothing but escapes.
func escaped(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		fmt.Fprintf(&b, "%%%02x", c)
	}
	return b.String()
}

// FuzzAddress: any text is refused in few words, or is an address; the plainest spelling of what it means means the
// same, and so does the same text with blanks around it and its scheme in capitals.
func FuzzAddress(f *testing.F) {
	for s := range acceptedAddresses {
		f.Add(s)
	}
	for s := range rejectedAddresses {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := protocol.ParseAddress(s)
		if err != nil {
			if len(err.Error()) > 600 || !utf8.ValidString(err.Error()) {
				t.Fatalf("%q is refused with %q", s, err)
			}
			return
		}
		poll, gcps, bash := a.Scheme == protocol.SchemePoll, a.Scheme == protocol.SchemeGCPS, a.Scheme == protocol.SchemeBash
		needsID := gcps || bash && a.Group == protocol.BashDocker
		if poll != (a.Cast != "") || (poll || gcps || bash) != (a.Group != "") || needsID && a.ID == "" || bash && !needsID && a.ID != "" || len(s) > protocol.MaxAddressBytes || !utf8.ValidString(a.Group+a.ID) {
			t.Fatalf("%q is %+v", s, a)
		}
		spelled := map[string]string{protocol.SchemePoll: "poll://" + a.Cast + "@" + escaped(a.Group) + "/" + escaped(a.ID),
			protocol.SchemeGCPS: "gcps://" + escaped(a.Group) + "/" + escaped(a.ID), protocol.SchemeBash: "bash://" + a.Group + "/" + escaped(a.ID)}[a.Scheme]
		if spelled != "" && len(spelled) <= protocol.MaxAddressBytes && !strings.HasPrefix(a.Group, "[") {
			if again, err := protocol.ParseAddress(spelled); err != nil || again != a {
				t.Fatalf("%q is %+v; %q is %+v, %v", s, a, spelled, again, err)
			}
		}
		scheme, rest, _ := strings.Cut(s, ":")
		if loud := " " + strings.ToUpper(scheme) + ":" + rest + "\n"; len(loud) <= protocol.MaxAddressBytes {
			if again, err := protocol.ParseAddress(loud); err != nil || again != a {
				t.Fatalf("%q is %+v; %q is %+v, %v", s, a, loud, again, err)
			}
		}
	})
}
