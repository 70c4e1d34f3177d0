package protocol

// MakeValue returns the payload with these headers (nil for none) and this data, which is kept as it is:
// SDKs put base64 there, the server does not care. Bytes that are not UTF-8 become U+FFFD.
func MakeValue(headers map[string]string, data string) Value {
	dst := append(Value(nil), '{')
	if headers != nil {
		tags := make(Tags, 0, len(headers))
		for name, v := range headers {
			tags = append(tags, Tag{name, v})
		}
		sortTags(tags)
		dst = append(tags.AppendJSON(append(dst, `"headers":`...)), ',')
	}
	return append(appendString(append(dst, `"data":`...), data), '}')
}

// Data returns the data of a payload. Not ok if there is none, or none that a Go string can hold: the
// escape of half a surrogate pair is kept and served, but is no text.
func (v Value) Data() (string, bool) { return stringMember(value(v), "data") }

// Headers returns the headers of a payload, nil if it has none. Not ok if one of them is no text (see Data).
func (v Value) Headers() (map[string]string, bool) {
	headers := anyMember(value(v), "headers")
	if headers == nil {
		return nil, true
	}
	out := make(map[string]string)
	w := headers.walk()
	for name, val, ok := w.member(); ok; name, val, ok = w.member() {
		n, okName := name.text()
		s, okValue := val.text()
		if !okName || !okValue {
			return nil, false
		}
		out[n] = s
	}
	return out, true
}
