package bench

import (
	"strconv"
	"time"

	"abide/protocol"
)

// The parts of requests that never change.
const (
	envelopeKind = `{"kind":"`
	envelopeHead = `","head":{"corrId":"`
	envelopeData = `","version":"` + protocol.Version + `"},"data":{`
	envelopeEnd  = `}}`

	// kindNoop is no kind of the protocol; it is the word that the server must not know.
	kindNoop protocol.Kind = "bench.noop"
)

// begin starts the request of a kind, up to the brace that opens its data.
func (c *client) begin(kind protocol.Kind) []byte {
	c.corrID++
	b := append(c.conn.begin(), envelopeKind...)
	b = append(b, kind...)
	b = append(b, envelopeHead...)
	b = strconv.AppendInt(b, c.corrID, 10)
	return append(b, envelopeData...)
}

// send ends the request, sends it, and fails unless its answer has the status want.
func (c *client) send(kind protocol.Kind, request []byte, want int) error {
	status, body, err := c.conn.roundTrip(append(request, envelopeEnd...))
	if err != nil {
		return err
	}
	if status != want {
		return statusError{kind: kind, status: status, data: string(body[:min(len(body), 200)])}
	}
	if c.tally.measuring() {
		c.tally.requests++
	}
	return nil
}

// newID names the next promise. Ids have one width, so that all records of a run are equally large.
func (c *client) newID() []byte {
	c.id = appendID(c.id[:0], c.prefix, c.made)
	c.made++
	return c.id
}

func appendID(dst []byte, prefix string, n int64) []byte {
	dst = append(dst, prefix...)
	const width = 9
	digits := len(strconv.AppendInt(make([]byte, 0, 20), n, 10))
	for range width - digits {
		dst = append(dst, '0')
	}
	return strconv.AppendInt(dst, n, 10)
}

func appendMember(b []byte, name string, value []byte) []byte {
	b = append(b, '"')
	b = append(b, name...)
	b = append(b, `":"`...)
	b = append(b, value...)
	return append(b, '"')
}

// appendPayload appends the member name with the client's payload as its data.
func (c *client) appendPayload(b []byte, name string) []byte {
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":{"headers":{},"data":"`...)
	b = append(b, c.payload...)
	return append(b, `"}`...)
}

// appendCreation appends the data of promise.create. A targeted promise carries the tags that an SDK gives
// it; parent is nil for a root.
func (c *client) appendCreation(b, id, parent []byte, targeted bool) []byte {
	b = appendMember(b, "id", id)
	b = append(b, `,"timeoutAt":`...)
	b = append(b, c.timeoutAt...)
	b = c.appendPayload(b, "param")
	b = append(b, `,"tags":{`...)
	if targeted {
		if parent == nil {
			parent = id
		}
		b = append(appendMember(b, protocol.TagBranch, id), ',')
		b = append(appendMember(b, protocol.TagOrigin, parent), ',')
		b = append(appendMember(b, protocol.TagParent, parent), ',')
		b = append(b, `"`+protocol.TagScope+`":"global","`+protocol.TagTarget+`":"`...)
		b = append(b, c.address...)
		b = append(b, '"')
	}
	return append(b, '}')
}

// appendSettlement appends the data of promise.settle.
func (c *client) appendSettlement(b, id []byte) []byte {
	b = appendMember(b, "id", id)
	b = append(b, `,"state":"`+string(protocol.Resolved)+`"`...)
	return c.appendPayload(b, "value")
}

// appendTask appends a task's id and version.
func appendTask(b, id []byte, version int64) []byte {
	b = appendMember(b, "id", id)
	b = append(b, `,"version":`...)
	return strconv.AppendInt(b, version, 10)
}

// beginAction opens the member action of a request, up to the brace that opens its data.
func beginAction(b []byte, kind protocol.Kind) []byte {
	b = append(b, `,"action":{"kind":"`...)
	b = append(b, kind...)
	return append(b, `","head":{},"data":{`...)
}

func (c *client) noop() error {
	b := c.appendPayload(append(c.begin(kindNoop), `"id":""`...), "param")
	return c.send(kindNoop, b, protocol.StatusInvalid)
}

func (c *client) create() (id []byte, err error) {
	id = c.newID()
	return id, c.createAs(id, false)
}

func (c *client) createAs(id []byte, targeted bool) error {
	b := c.appendCreation(c.begin(protocol.KindPromiseCreate), id, nil, targeted)
	err := c.send(protocol.KindPromiseCreate, b, protocol.StatusOK)
	if err == nil {
		c.tally.objects++
	}
	return err
}

func (c *client) get() error {
	c.id = appendID(c.id[:0], preloadPrefix(c.run, c.random.IntN(preloaders)), int64(c.random.IntN(c.getSet/preloaders)))
	return c.send(protocol.KindPromiseGet, appendMember(c.begin(protocol.KindPromiseGet), "id", c.id), protocol.StatusOK)
}

func (c *client) lifecycle() error {
	id, err := c.create()
	if err != nil {
		return err
	}
	return c.send(protocol.KindPromiseSettle, c.appendSettlement(c.begin(protocol.KindPromiseSettle), id), protocol.StatusOK)
}

func (c *client) dispatch(deadline time.Time) (received time.Time, err error) {
	id := c.newID()
	if err := c.createAs(id, true); err != nil {
		return time.Time{}, err
	}
	version, err := c.await(id, 0, deadline)
	if err != nil {
		return time.Time{}, err
	}
	received = time.Now()
	return received, c.acquireAndFulfill(id, version)
}

func (c *client) workflow(deadline time.Time) error {
	parent := c.newID()
	if err := c.createAs(parent, true); err != nil {
		return err
	}
	version, err := c.await(parent, 0, deadline)
	if err != nil {
		return err
	}
	if version, err = c.acquire(parent, version); err != nil {
		return err
	}
	c.child = append(append(c.child[:0], parent...), ".1"...)
	if err := c.fencedCreate(parent, version, c.child); err != nil {
		return err
	}
	if err := c.suspend(parent, version, c.child); err != nil {
		return err
	}
	childVersion, err := c.await(c.child, 0, deadline)
	if err != nil {
		return err
	}
	if err := c.acquireAndFulfill(c.child, childVersion); err != nil {
		return err
	}
	// Resumed, the parent is offered at the version of its first claim.
	if version, err = c.await(parent, version, deadline); err != nil {
		return err
	}
	return c.acquireAndFulfill(parent, version)
}

func (c *client) acquireAndFulfill(id []byte, version int64) error {
	version, err := c.acquire(id, version)
	if err != nil {
		return err
	}
	b := beginAction(appendTask(c.begin(protocol.KindTaskFulfill), id, version), protocol.KindPromiseSettle)
	b = append(c.appendSettlement(b, id), "}}"...)
	return c.send(protocol.KindTaskFulfill, b, protocol.StatusOK)
}

// acquire claims a task and returns the version that it is then held at.
func (c *client) acquire(id []byte, version int64) (held int64, err error) {
	b := appendTask(c.begin(protocol.KindTaskAcquire), id, version)
	b = append(b, `,"pid":"worker","ttl":`...)
	b = strconv.AppendInt(b, leaseMs, 10)
	return version + 1, c.send(protocol.KindTaskAcquire, b, protocol.StatusOK)
}

func (c *client) fencedCreate(parent []byte, version int64, child []byte) error {
	b := beginAction(appendTask(c.begin(protocol.KindTaskFence), parent, version), protocol.KindPromiseCreate)
	b = append(c.appendCreation(b, child, parent, true), "}}"...)
	err := c.send(protocol.KindTaskFence, b, protocol.StatusOK)
	if err == nil {
		c.tally.objects++
	}
	return err
}

func (c *client) suspend(id []byte, version int64, awaited []byte) error {
	b := appendTask(c.begin(protocol.KindTaskSuspend), id, version)
	b = append(b, `,"actions":[{"kind":"`+string(protocol.KindPromiseRegisterCallback)+`","head":{},"data":{`...)
	b = append(appendMember(b, "awaited", awaited), ',')
	b = append(appendMember(b, "awaiter", id), "}}]"...)
	return c.send(protocol.KindTaskSuspend, b, protocol.StatusOK)
}
