package store

import (
	"strconv"

	"abide/kv"
	"abide/kv/tuple"
)

// Topics of the signals that commits give. Signals are hints: whoever listens also scans.
const (
	// TopicTimer: a timer was armed. Body: its due time, decimal epoch ms. Local: of several servers the one that armed it
	// fires what is due before the others look again.
	TopicTimer = "timer"
	// TopicExecute: an execute was queued. Body: Message as a tuple.
	TopicExecute = "execute"
	// TopicClaimed: a task is pending no longer: claimed, halted or settled. Body: Message without address.
	TopicClaimed = "claimed"
	// TopicUnblock: an unblock was queued. Body: Message without version.
	TopicUnblock = "unblock"
	// TopicServer: whose commit it is, where several servers share the store. Body: the server's id.
	TopicServer = "server"
)

// hint gives a signal, unless it is too long: whoever it is for scans as well, so it is only later, and a hint must not fail
// what it tells of. The longest names that requests may have fit; only names from elsewhere, such as a store of other limits, would not.
func (t *Txn) hint(s kv.Signal) {
	if len(s.Topic)+len(s.Body) > kv.MaxSignalBytes {
		return
	}
	if t.server != "" && (t.signed == unsigned || t.signed == signedHere && !s.Local) {
		t.signed = signedHere
		if !s.Local {
			t.signed = signedAbroad
		}
		sign := ServerSignal(t.server)
		sign.Local = s.Local
		t.tx.Signal(sign)
	}
	t.tx.Signal(s)
}

// signature is to whom a transaction's signals have said so far whose they are.
type signature uint8

const (
	unsigned     signature = iota
	signedHere             // those of this server, with local signals
	signedAbroad           // everybody
)

// ServerSignal says whose commit it is.
func ServerSignal(server string) kv.Signal { return kv.Signal{Topic: TopicServer, Body: server} }

// timerHints is how many timer signals one transaction gives at most: the largest suspend arms 2,000 timers, and
// a signal is an operation of the transaction.
const timerHints = 16

// hintTimer says that a timer was armed. An earlier one that was signalled serves for all later ones; after a few,
// the last signal says that the loop should look at once.
func (t *Txn) hintTimer(dueAt int64) {
	if t.hinted > 0 && dueAt >= t.earliest {
		return
	}
	if t.hinted++; t.hinted == timerHints {
		dueAt = 0
	}
	t.earliest = dueAt
	t.hint(TimerSignal(dueAt))
}

// Message names a message of the outbox in a signal.
type Message struct {
	Workspace string
	ID        string
	Version   int64
	Address   string
}

func (m Message) signal(topic string) kv.Signal {
	b := make([]byte, 0, 32+len(m.Workspace)+len(m.ID)+len(m.Address))
	b = tuple.AppendString(b, m.Workspace)
	b = tuple.AppendString(b, m.ID)
	b = tuple.AppendInt(b, m.Version)
	b = tuple.AppendString(b, m.Address)
	return kv.Signal{Topic: topic, Body: string(b)}
}

// ParseMessage parses the body of an execute, claimed or unblock signal; ok is false for anything else.
func ParseMessage(body string) (m Message, ok bool) {
	r := tuple.NewReader([]byte(body))
	var err [4]error
	m.Workspace, err[0] = r.NextString()
	m.ID, err[1] = r.NextString()
	m.Version, err[2] = r.NextInt()
	m.Address, err[3] = r.NextString()
	return m, err == [4]error{} && r.Done()
}

// TimerSignal says that a timer was armed for an instant.
func TimerSignal(dueAt int64) kv.Signal {
	return kv.Signal{Topic: TopicTimer, Body: strconv.FormatInt(dueAt, 10), Local: true}
}

// ParseTimer parses the body of a timer signal; what does not parse is due at once.
func ParseTimer(body string) (dueAt int64) {
	dueAt, _ = strconv.ParseInt(body, 10, 64)
	return dueAt
}

// ExecuteSignal says that an execute was queued.
func ExecuteSignal(workspace, id string, version int64, address string) kv.Signal {
	return Message{workspace, id, version, address}.signal(TopicExecute)
}

// ClaimedSignal says that a task at a version is pending no longer.
func ClaimedSignal(workspace, id string, version int64) kv.Signal {
	return Message{Workspace: workspace, ID: id, Version: version}.signal(TopicClaimed)
}

// UnblockSignal says that an unblock was queued.
func UnblockSignal(workspace, id, address string) kv.Signal {
	return Message{Workspace: workspace, ID: id, Address: address}.signal(TopicUnblock)
}
