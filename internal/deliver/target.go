package deliver

import "abide/protocol"

// target is what an address means to this package.
type target struct {
	group string
	pid   string // the only one, or the preferred one; empty: none named
	uni   bool   // pid and nobody else
	whole bool   // everybody in the workspace, whatever the group; then the rest is empty
}

// wholeID is the id of the addresses that stand for a whole workspace, as Destination's comment tells.
const wholeID = "poll"

// nobody reports whether no connection can ever be the target's.
func (t target) nobody() bool { return t.uni && t.pid == "" }

// maxTargets bounds the memory of parsed addresses: workers come and go, each with its own.
const maxTargets = 1024

// targets remembers parsed addresses, because most messages go to the same few.
type targets map[string]target

// parse returns the target of a poll address of a message in a workspace; not ok for addresses of other schemes
// and for what is no address.
func (ts targets) parse(workspace, address string) (target, bool) {
	t, ok := ts.read(address)
	if t.pid == wholeID && t.group == workspace && workspace != protocol.DefaultWorkspace {
		return target{whole: true}, ok
	}
	return t, ok
}

// read is parse without the workspace: what the address says by itself.
func (ts targets) read(address string) (target, bool) {
	if t, ok := ts[address]; ok {
		return t, true
	}
	a, err := protocol.ParseAddress(address)
	if err != nil || a.Scheme != protocol.SchemePoll {
		return target{}, false
	}
	if len(ts) >= maxTargets {
		clear(ts)
	}
	t := target{group: a.Group, pid: a.ID, uni: a.Cast == protocol.CastUni}
	ts[address] = t
	return t, true
}
