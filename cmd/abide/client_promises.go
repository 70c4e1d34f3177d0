package main

import (
	"abide/internal/cli"
	"abide/protocol"
)

// promisesCommand is about promises.
type promisesCommand struct {
	serverFlags

	Get              promisesGet              `cmd:"" help:"Show one."`
	Create           promisesCreate           `cmd:"" help:"Create one, or show the one that has the id already."`
	Resolve          promisesResolve          `cmd:"" help:"Settle one as resolved."`
	Reject           promisesReject           `cmd:"" help:"Settle one as rejected."`
	Cancel           promisesCancel           `cmd:"" help:"Settle one as canceled."`
	Search           promisesSearch           `cmd:"" help:"List them."`
	RegisterCallback promisesRegisterCallback `cmd:"" help:"Have the settlement of one resume the task of another."`
	RegisterListener promisesRegisterListener `cmd:"" help:"Have the settlement of one send a message to an address."`
}

var (
	showPromise  = viewOf(protocol.DecodePromiseBody, func(s cli.Screen, b protocol.PromiseBody) string { return s.Promise(b.Promise) })
	showPromises = viewOf(protocol.DecodePromisesBody, func(s cli.Screen, b protocol.PromisesBody) string {
		if len(b.Promises) == 0 {
			return cli.More(0, b.Cursor)
		}
		return s.Promises(b.Promises) + cli.More(len(b.Promises), b.Cursor)
	})
)

// settled tells whether an answer's promise is.
func settled(data protocol.Data) bool {
	body, err := protocol.DecodePromiseBody(data)
	return err == nil && body.Promise.State != protocol.Pending
}

type promisesGet struct {
	watchFlags
	ID string `arg:"" help:"Its id."`
}

// Run shows a promise.
func (c *promisesGet) Run(in surroundings, p *promisesCommand) error {
	return p.watch(in, c.watchFlags, &protocol.PromiseGet{ID: c.ID}, showPromise, settled)
}

type promisesCreate struct {
	payloadFlags
	ID      string   `arg:"" help:"Its id."`
	Timeout duration `required:"" placeholder:"DURATION" help:"When it times out, from now."`
	Param   *string  `placeholder:"JSON" help:"The param as {\"headers\":{...},\"data\":...}; data is encoded."`
	Tags    *string  `placeholder:"JSON" help:"Its tags, an object of strings."`
}

// Validate checks the values; kong calls it.
func (c *promisesCreate) Validate() error { return positive("timeout", c.Timeout) }

// Run creates a promise.
func (c *promisesCreate) Run(in surroundings, p *promisesCommand) error {
	param, err := c.payload(in, "param", c.Param, true)
	if err != nil {
		return err
	}
	tags, err := tagsOf("tags", c.Tags)
	if err != nil {
		return err
	}
	return p.ask(in, &protocol.PromiseCreate{ID: c.ID, TimeoutAt: c.Timeout.after(in.nowMs()), Param: param, Tags: tags}, showPromise)
}

// settleFlags are of the commands that settle.
type settleFlags struct {
	payloadFlags
	ID    string  `arg:"" help:"Its id."`
	Value *string `placeholder:"JSON" help:"The value as {\"headers\":{...},\"data\":...}; data is encoded."`
}

func (c settleFlags) settle(in surroundings, p *promisesCommand, state protocol.PromiseState) error {
	value, err := c.payload(in, "value", c.Value, true)
	if err != nil {
		return err
	}
	return p.ask(in, &protocol.PromiseSettle{ID: c.ID, State: state, Value: value}, showPromise)
}

type promisesResolve struct{ settleFlags }

// Run resolves a promise.
func (c *promisesResolve) Run(in surroundings, p *promisesCommand) error {
	return c.settle(in, p, protocol.Resolved)
}

type promisesReject struct{ settleFlags }

// Run rejects a promise.
func (c *promisesReject) Run(in surroundings, p *promisesCommand) error {
	return c.settle(in, p, protocol.Rejected)
}

type promisesCancel struct{ settleFlags }

// Run cancels a promise.
func (c *promisesCancel) Run(in surroundings, p *promisesCommand) error {
	return c.settle(in, p, protocol.RejectedCanceled)
}

type promisesSearch struct {
	watchFlags
	State  string    `words:"pending,resolved,rejected,rejected_canceled,rejected_timedout" placeholder:"STATE" help:"Only these: pending, resolved, rejected, rejected_canceled or rejected_timedout."`
	Tags   *string   `placeholder:"JSON" help:"Only those with all these tags."`
	Limit  pageLimit `default:"100" placeholder:"N" help:"The largest number to list, up to 1000."`
	Cursor string    `placeholder:"CURSOR" help:"Where the last page told to go on."`
}

// Run lists promises.
func (c *promisesSearch) Run(in surroundings, p *promisesCommand) error {
	tags, err := tagsOf("tags", c.Tags)
	if err != nil {
		return err
	}
	return p.watch(in, c.watchFlags, &protocol.PromiseSearch{State: protocol.PromiseState(c.State), Tags: tags, Limit: int(c.Limit), Cursor: c.Cursor}, showPromises, never)
}

type promisesRegisterCallback struct {
	Awaited string `arg:"" help:"The promise that is waited for."`
	Awaiter string `arg:"" help:"The promise whose task waits."`
}

// Run registers a callback.
func (c *promisesRegisterCallback) Run(in surroundings, p *promisesCommand) error {
	return p.ask(in, &protocol.PromiseRegisterCallback{Awaited: c.Awaited, Awaiter: c.Awaiter}, showPromise)
}

type promisesRegisterListener struct {
	Awaited string `arg:"" help:"The promise that is waited for."`
	Address string `arg:"" help:"Where the message goes, as in poll://any@group."`
}

// Run registers a listener.
func (c *promisesRegisterListener) Run(in surroundings, p *promisesCommand) error {
	return p.ask(in, &protocol.PromiseRegisterListener{Awaited: c.Awaited, Address: c.Address}, showPromise)
}
