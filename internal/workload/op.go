package workload

import (
	"fmt"

	"abide/protocol"
)

// corrID is the correlation id of every request of a history.
const corrID = "c"

// Op is one request of a history: in a workspace, at a debug instant in epoch milliseconds.
type Op struct {
	Workspace string
	At        int64
	Request   protocol.Request
}

// JSON is the body of the request, one line.
func (o Op) JSON() []byte {
	return protocol.AppendRequest(nil, protocol.Head{CorrID: corrID, DebugTime: &o.At}, o.Request)
}

// String is a line for a report: the path, then the body that curl could post there.
func (o Op) String() string { return fmt.Sprintf("POST %s %s", o.Path(), o.JSON()) }

// Path is the path to post to.
func (o Op) Path() string {
	if o.Workspace == "" || o.Workspace == protocol.DefaultWorkspace {
		return "/"
	}
	return "/w/" + o.Workspace
}
