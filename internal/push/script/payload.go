package script

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"abide/protocol"
)

// HeaderLeftOut is the header of a value that holds less than its script has written: how many bytes are missing.
const HeaderLeftOut = "abide:output-left-out"

// scriptOf is the script in a promise's param: the base64 of its text. The error is for whoever made the promise.
func scriptOf(param protocol.Value) (string, error) {
	data, ok := param.Data()
	if !ok || data == "" {
		return "", errors.New("the promise has no script: param.data must be the script in base64")
	}
	text, err := base64.StdEncoding.DecodeString(data)
	switch {
	case err != nil:
		return "", fmt.Errorf("the promise has no script: param.data is not base64: %w", err)
	case !utf8.Valid(text):
		return "", errors.New("the promise has no script: what param.data holds is not UTF-8")
	case strings.IndexByte(string(text), 0) >= 0:
		return "", errors.New("the promise has no script: what param.data holds has NUL characters")
	}
	return string(text), nil
}

// verdict is what a promise is settled with.
type verdict struct {
	state protocol.PromiseState
	value protocol.Value
}

// rejected is the verdict on a task that could not be run.
func rejected(reason error) verdict {
	return verdict{protocol.Rejected, protocol.MakeValue(nil, base64.StdEncoding.EncodeToString([]byte(reason.Error())))}
}

// judge is the verdict on a script that has ended by itself: what it wrote to standard output if it succeeded, else what
// it wrote to standard error, without blanks around it, in base64, as SDKs expect.
func judge(exitCode int, stdout, stderr *output) verdict {
	state, written := protocol.Resolved, stdout
	if exitCode != 0 {
		state, written = protocol.Rejected, stderr
	}
	text := strings.TrimSpace(written.text())
	if exitCode != 0 && text == "" {
		text = "exit code " + strconv.Itoa(exitCode)
	}
	var headers map[string]string
	if n := written.leftOut(); n > 0 {
		headers = map[string]string{HeaderLeftOut: strconv.FormatInt(n, 10)}
	}
	return verdict{state, protocol.MakeValue(headers, base64.StdEncoding.EncodeToString([]byte(text)))}
}
