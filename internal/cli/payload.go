package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"abide/protocol"

	"github.com/go-json-experiment/json/jsontext"
)

// maxShown is how many bytes of one payload are shown to a person. --json shows all of it.
const maxShown = 4096

// Data is a payload's data as the SDKs make it: the base64 of JSON. A text that is JSON stands for itself, any other is
// taken as a string: 42 is a number, hello is "hello".
func Data(text string) string {
	if !json.Valid([]byte(text)) {
		quoted, _ := jsontext.AppendQuote(nil, text) // the error only reports bytes that are no UTF-8
		text = string(quoted)
	}
	return base64.StdEncoding.EncodeToString([]byte(text))
}

// RawData is a payload's data made of bytes as they are, which SDKs expect to be JSON.
func RawData(content []byte) string { return base64.StdEncoding.EncodeToString(content) }

// Payload reads a payload written as JSON, {"headers": {...}, "data": ...}. If encode is set, the data becomes base64:
// of a string itself, of the compact JSON text of anything else; else it must be a string and is kept.
func Payload(text string, encode bool) (protocol.Value, error) {
	var in struct {
		Headers map[string]string `json:"headers"`
		Data    json.RawMessage   `json:"data"`
	}
	if err := decodeStrictly(text, &in); err != nil {
		return nil, fmt.Errorf(`%w; write it as {"headers":{"name":"text"},"data":...}, each of which may be left out`, err)
	}
	var data *string
	if in.Data != nil {
		var s string
		isString := in.Data[0] == '"' && json.Unmarshal(in.Data, &s) == nil
		switch {
		case isString && encode:
			s = RawData([]byte(s))
		case !isString && !encode:
			return nil, errors.New("data must be a string here, of base64 by convention")
		case !isString:
			var compact bytes.Buffer
			if err := json.Compact(&compact, in.Data); err != nil {
				return nil, err
			}
			s = RawData(compact.Bytes())
		}
		data = &s
	}
	return MakePayload(in.Headers, data), nil
}

// MakePayload is a payload of these headers, nil for none, and this data, nil for none.
func MakePayload(headers map[string]string, data *string) protocol.Value {
	switch {
	case data != nil:
		return protocol.MakeValue(headers, *data)
	case headers == nil:
		return nil
	}
	tags := Tags(headers)
	return append(tags.AppendJSON(protocol.Value(`{"headers":`)), '}')
}

// Tags are tags of any order, in the protocol's.
func Tags(of map[string]string) protocol.Tags {
	tags := make(protocol.Tags, 0, len(of))
	for name, value := range of {
		tags = append(tags, protocol.Tag{Name: name, Value: value})
	}
	sort.Slice(tags, func(i, j int) bool { return tags[i].Name < tags[j].Name })
	return tags
}

// ParseTags reads tags written as a JSON object of strings.
func ParseTags(text string) (protocol.Tags, error) {
	var tags map[string]string
	if err := decodeStrictly(text, &tags); err != nil {
		return nil, fmt.Errorf(`%w; write {"name":"text"}`, err)
	}
	return Tags(tags), nil
}

// JSONError is what is wrong with a JSON text in words of JSON, where encoding/json has those of Go.
func JSONError(err error) error {
	var other *json.UnmarshalTypeError
	if !errors.As(err, &other) {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	want := "a text"
	switch other.Type.Kind() {
	case reflect.Map, reflect.Struct:
		want = "an object"
	case reflect.Slice:
		want = "a list"
	}
	place := "it"
	if other.Field != "" {
		place = other.Field
	}
	return fmt.Errorf("%s must be %s, and is of the kind %s", place, want, other.Value)
}

// decodeStrictly decodes one JSON value and nothing after it, without unknown members.
func decodeStrictly(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return JSONError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value")
	}
	return nil
}

// decoded is a payload's data with its base64 taken off; not ok if it has none, or it is no base64.
func decoded(v protocol.Value) (content []byte, ok bool) {
	data, ok := v.Data()
	if !ok || data == "" {
		return nil, false
	}
	content, err := base64.StdEncoding.DecodeString(data)
	return content, err == nil
}

// Text is a payload for a person: JSON and texts decoded, anything else as what it is and how long. Headers follow.
func Text(v protocol.Value) string {
	var parts []string
	if data, ok := v.Data(); ok && data != "" {
		content, isBase64 := decoded(v)
		switch {
		case !isBase64:
			parts = append(parts, shown(data)+"  (not base64)")
		case isText(content):
			parts = append(parts, shown(string(content)))
		default:
			parts = append(parts, fmt.Sprintf("%d bytes that are no text", len(content)))
		}
	}
	headers, _ := v.Headers()
	for _, h := range Tags(headers) {
		parts = append(parts, Printable(h.Name)+": "+Printable(h.Value))
	}
	return strings.Join(parts, "\n")
}

// shown is a text within maxShown bytes, made printable line by line.
func shown(text string) string {
	rest := ""
	if len(text) > maxShown {
		end := maxShown
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		rest = fmt.Sprintf("… (%d bytes in all; --json shows them)", len(text))
		text = text[:end]
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = Printable(strings.ReplaceAll(l, "\t", "    "))
	}
	return strings.Join(lines, "\n") + rest
}

// isText tells texts from other bytes: UTF-8 without control characters but for white space.
func isText(content []byte) bool {
	if !utf8.Valid(content) {
		return false
	}
	for _, r := range string(content) {
		if unicode.IsControl(r) && !unicode.IsSpace(r) {
			return false
		}
	}
	return true
}

// function is the func member of the JSON in a param, as SDKs put the name of what they call; empty if there is none.
func function(param protocol.Value) string {
	content, ok := decoded(param)
	if !ok {
		return ""
	}
	var call struct {
		Func string `json:"func"`
	}
	if json.Unmarshal(content, &call) != nil {
		return ""
	}
	return call.Func
}
