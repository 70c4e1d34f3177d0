package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"abide/internal/cli"
	"abide/protocol"
)

// payloadFlags are how a payload's data is given besides the reference's way, which is JSON of the whole payload.
type payloadFlags struct {
	Data     *string           `placeholder:"TEXT" help:"The data: JSON, or any other text as a JSON string; encoded as the SDKs do."`
	DataFile string            `placeholder:"FILE" help:"A file whose bytes are the data, or - for the standard input; SDKs expect JSON."`
	Header   map[string]string `placeholder:"NAME=TEXT" mapsep:"none" help:"A header of the payload. Repeatable."`
}

// maxPayloadBytes is more than a request can hold; what is longer is not read.
const maxPayloadBytes = protocol.MaxBodyBytes

// payload is what the flags say, with whole, the JSON given in the flag of that name, in their place. Encode is Payload's.
func (f payloadFlags) payload(in surroundings, flag string, whole *string, encode bool) (protocol.Value, error) {
	given := 0
	for _, yes := range []bool{f.Data != nil, f.DataFile != "", whole != nil} {
		if yes {
			given++
		}
	}
	if given > 1 || whole != nil && len(f.Header) > 0 {
		return nil, usageError{fmt.Errorf("give the payload by --%s, or by headers and one of data and data-file, not both", flag)}
	}
	var data *string
	switch {
	case whole != nil:
		v, err := cli.Payload(*whole, encode)
		if err != nil {
			return nil, failed("Invalid --%s JSON: %v", flag, err)
		}
		return v, nil
	case f.Data != nil:
		text := cli.Data(*f.Data)
		data = &text
	case f.DataFile != "":
		content, err := readPayload(in, f.DataFile)
		if err != nil {
			return nil, err
		}
		text := cli.RawData(content)
		data = &text
	}
	return cli.MakePayload(f.Header, data), nil
}

// readPayload reads a file, or the standard input for "-".
func readPayload(in surroundings, name string) (content []byte, err error) {
	source := in.stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, failed("cannot read the data: %v", err)
		}
		defer file.Close()
		source = file
	} else if source == nil {
		return nil, failed("there is no standard input to read the data from")
	}
	content, err = io.ReadAll(io.LimitReader(source, maxPayloadBytes+1))
	switch {
	case err != nil:
		return nil, failed("cannot read the data: %v", err)
	case len(content) > maxPayloadBytes:
		return nil, failed("the data is longer than %d bytes, which no request holds", maxPayloadBytes)
	}
	return content, nil
}

// tagsOf reads a flag with tags; nil where it was not given.
func tagsOf(flag string, text *string) (protocol.Tags, error) {
	if text == nil {
		return nil, nil
	}
	tags, err := cli.ParseTags(*text)
	if err != nil {
		return nil, failed("Invalid --%s JSON: %v", flag, err)
	}
	return tags, nil
}

// positive checks spans that must be given: none that is parsed is zero, but for an empty one.
func positive(flag string, d duration) error {
	if d <= 0 {
		return errors.New("--" + flag + " is missing or empty: give it a span of time, such as 30s")
	}
	return nil
}

// pageLimit is the largest number of records that a search lists. The client takes 0 for none given, so what the server would
// refuse is refused here.
type pageLimit int

// UnmarshalText parses a limit; kong calls it.
func (l *pageLimit) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 || n > protocol.MaxSearchLimit {
		return fmt.Errorf("%.20q is not a number from 1 to %d", text, protocol.MaxSearchLimit)
	}
	*l = pageLimit(n)
	return nil
}
