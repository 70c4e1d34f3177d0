package keyspace

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"abide/kv"
	"abide/kv/tuple"
	"abide/protocol"
)

// The rows of a store that several servers share: which servers run (members), which worker is connected to which
// of them (connections), and one row that every change of the two raises (the roster). (docs/servers.md)

// Member is a running server, as its leased row says. A member that has not renewed its row for its lease, as
// another's own clock measures it, is taken for dead.
type Member struct {
	Life       int64  // tells its processes apart: from the roster's number when it registered
	Renewals   int64  // how often this life has renewed its lease
	LeaseMs    int64  // for how long a renewal holds
	ClockMs    int64  // its time at the last renewal, epoch ms
	OffsetMs   int64  // how far it found itself ahead of the median of the live servers then; negative: behind
	StartedMs  int64  // when it registered, epoch ms
	Host       string // for people
	ProcessID  int64
	URL        string // where workers reach it
	Version    string // of the binary
	Derivation int64  // the version of the rules that it derives entries by
}

// Roster is the row that every change of members or connections raises.
type Roster struct {
	Number int64 // of the last change; also the number of the connection that it was
	LostMs int64 // when a server was last found dead, epoch ms by the finder's clock; 0: never
}

// Connection says which server a worker's newest stream is connected to.
type Connection struct {
	Server string
	Number int64 // the roster's when it was made: of two for one worker, the higher is the newer
}

// MemberKey is the key of a server's leased row; Members is the range of all of them.
func MemberKey(id string) []byte { return tuple.AppendString(tuple.AppendInt(nil, nsMember), id) }

// Members is the range of the rows of all running servers.
func Members() kv.Range { return Prefix(tuple.AppendInt(nil, nsMember)) }

// Servers is the range of the ceilings of all servers' clocks.
func Servers() kv.Range { return Prefix(tuple.AppendInt(nil, nsServer)) }

// RosterKey is the key of the roster.
func RosterKey() []byte { return tuple.AppendInt(nil, nsRoster) }

// Connection is the key of a worker's connection. Group and pid together must not be longer than an address may be
// (Addressable): nobody can address a longer one.
func (k Keys) Connection(group, pid string) []byte {
	return tuple.AppendString(tuple.AppendString(k.space(nsConnection), group), pid)
}

// Connections is the range of the connections of all workspaces.
func Connections() kv.Range { return Prefix(tuple.AppendInt(nil, nsConnection)) }

// Addressable reports whether an address can name a group and a pid. A NUL, which takes three bytes in a key that is
// set aside, takes three in an address, where it is percent-encoded.
func Addressable(group, pid string) bool {
	n := 0
	for _, s := range []string{group, pid} {
		n += len(s) + 2*strings.Count(s, "\x00")
	}
	return n <= protocol.MaxAddressBytes
}

// Fields of a member record.
const (
	memLife       = 1
	memRenewals   = 2
	memLeaseMs    = 3
	memClockMs    = 4
	memAheadMs    = 5 // one of the two, or none
	memBehindMs   = 6
	memStartedMs  = 7
	memHost       = 8
	memProcessID  = 9
	memURL        = 10
	memVersion    = 11
	memDerivation = 12
)

// AppendMember appends the record of a running server. The id is in the key.
func AppendMember(b []byte, m Member) []byte {
	start := len(b)
	b = append(b, recordVersion)
	b = putInt(b, memLife, m.Life)
	b = putInt(b, memRenewals, m.Renewals)
	b = putInt(b, memLeaseMs, m.LeaseMs)
	b = putInt(b, memClockMs, m.ClockMs)
	b = putInt(b, memAheadMs, max(m.OffsetMs, 0))
	b = putInt(b, memBehindMs, max(-m.OffsetMs, 0))
	b = putInt(b, memStartedMs, m.StartedMs)
	b = putBytes(b, memHost, m.Host)
	b = putInt(b, memProcessID, m.ProcessID)
	b = putBytes(b, memURL, m.URL)
	b = putBytes(b, memVersion, m.Version)
	return seal(putInt(b, memDerivation, m.Derivation), start)
}

// ParseMember decodes the record of a running server. Errors: kv.ErrCorrupt.
func ParseMember(b []byte) (m Member, err error) {
	err = decode("member", b, func(f protowire.Number, n int64, bytes []byte) {
		switch f {
		case memLife:
			m.Life = n
		case memRenewals:
			m.Renewals = n
		case memLeaseMs:
			m.LeaseMs = n
		case memClockMs:
			m.ClockMs = n
		case memAheadMs:
			m.OffsetMs = n
		case memBehindMs:
			m.OffsetMs = -n
		case memStartedMs:
			m.StartedMs = n
		case memHost:
			m.Host = string(bytes)
		case memProcessID:
			m.ProcessID = n
		case memURL:
			m.URL = string(bytes)
		case memVersion:
			m.Version = string(bytes)
		case memDerivation:
			m.Derivation = n
		}
	})
	return m, err
}

// AppendRoster appends the record of the roster.
func AppendRoster(b []byte, r Roster) []byte {
	start := len(b)
	return seal(putInt(putInt(append(b, recordVersion), 1, r.Number), 2, r.LostMs), start)
}

// ParseRoster decodes the record of the roster; nil is that of a store without one. Errors: kv.ErrCorrupt.
func ParseRoster(b []byte) (r Roster, err error) {
	if b == nil {
		return r, nil
	}
	err = decode("roster", b, func(f protowire.Number, n int64, _ []byte) {
		switch f {
		case 1:
			r.Number = n
		case 2:
			r.LostMs = n
		}
	})
	return r, err
}

// AppendConnection appends the record of a worker's connection.
func AppendConnection(b []byte, c Connection) []byte {
	start := len(b)
	return seal(putInt(putBytes(append(b, recordVersion), 1, c.Server), 2, c.Number), start)
}

// ParseConnection decodes the record of a worker's connection. Errors: kv.ErrCorrupt.
func ParseConnection(b []byte) (c Connection, err error) {
	err = decode("connection", b, func(f protowire.Number, n int64, bytes []byte) {
		switch f {
		case 1:
			c.Server = string(bytes)
		case 2:
			c.Number = n
		}
	})
	return c, err
}

// decode checks a small record and gives its fields to set; kind names the key's kind for the error.
func decode(kind string, b []byte, set func(f protowire.Number, n int64, bytes []byte)) error {
	rest, err := body(b)
	if err == nil {
		err = fields(rest, func(f protowire.Number, n int64, bytes []byte) error {
			set(f, n, bytes)
			return nil
		})
	}
	if err != nil {
		return corrupt(kind, err)
	}
	return nil
}
