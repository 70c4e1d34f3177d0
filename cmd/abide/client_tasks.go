package main

import (
	"encoding/json"
	"strconv"

	"abide/client"
	"abide/internal/cli"
	"abide/protocol"
)

// tasksCommand is about tasks.
type tasksCommand struct {
	serverFlags

	Get       tasksGet       `cmd:"" help:"Show one."`
	Explain   tasksExplain   `cmd:"" help:"Say why one is not running, or who runs it."`
	Create    tasksCreate    `cmd:"" help:"Create a promise with its task, claimed."`
	Claim     tasksClaim     `cmd:"" help:"Claim one."`
	Fence     tasksFence     `cmd:"" help:"Create or settle a promise if a task is still held."`
	Heartbeat tasksHeartbeat `cmd:"" help:"Renew leases."`
	Suspend   tasksSuspend   `cmd:"" help:"Suspend a held one until promises settle."`
	Complete  tasksComplete  `cmd:"" help:"Settle the promise of a held one."`
	Release   tasksRelease   `cmd:"" help:"Give a held one back."`
	Halt      tasksHalt      `cmd:"" help:"Keep one from being dispatched."`
	Continue  tasksContinue  `cmd:"" help:"End a halt."`
	Search    tasksSearch    `cmd:"" help:"List them."`
}

var (
	showTask  = viewOf(protocol.DecodeTaskBody, func(s cli.Screen, b protocol.TaskBody) string { return s.Task(b.Task) })
	showClaim = viewOf(protocol.DecodeClaimBody, func(s cli.Screen, b protocol.ClaimBody) string { return s.Claim(b) })
	showTasks = viewOf(protocol.DecodeTasksBody, func(s cli.Screen, b protocol.TasksBody) string {
		if len(b.Tasks) == 0 {
			return cli.More(0, b.Cursor)
		}
		return s.Tasks(b.Tasks) + cli.More(len(b.Tasks), b.Cursor)
	})
	showSuspended = viewOf(func(data protocol.Data) (protocol.PreloadBody, error) {
		if string(data) == "{}" {
			return protocol.PreloadBody{}, nil
		}
		return protocol.DecodePreloadBody(data)
	}, func(s cli.Screen, b protocol.PreloadBody) string {
		if b.Preload == nil {
			return "Suspended.\n"
		}
		text := "Not suspended: something that it awaits is settled already.\n"
		if len(b.Preload) > 0 {
			text += s.Promises(b.Preload)
		}
		return text
	})
	showLost = viewOf(protocol.DecodeHeartbeatBody, func(_ cli.Screen, b protocol.HeartbeatBody) string {
		text := "Renewed.\n"
		for _, id := range b.Lost {
			text += "Not renewed, it is not held by this pid at this version: " + cli.Printable(id) + "\n"
		}
		return text
	})
	showFenced = viewOf(protocol.DecodeFenceBody, func(s cli.Screen, b protocol.Fenced) string {
		if b.Action.Status != protocol.StatusOK {
			return "Held, but: " + cli.Printable(b.Action.Message()) + " (" + strconv.Itoa(b.Action.Status) + ")\n"
		}
		text, err := showPromise(s, b.Action.Data)
		if err != nil {
			return "Held.\n"
		}
		return text
	})
)

type tasksGet struct {
	watchFlags
	ID string `arg:"" help:"Its id, that of its promise."`
}

// Run shows a task.
func (c *tasksGet) Run(in surroundings, p *tasksCommand) error {
	return p.watch(in, c.watchFlags, &protocol.TaskGet{ID: c.ID}, showTask, func(data protocol.Data) bool {
		b, err := protocol.DecodeTaskBody(data)
		return err == nil && b.Task.State == protocol.TaskFulfilled
	})
}

type tasksExplain struct {
	watchFlags
	ID string `arg:"" help:"Its id, that of its promise."`
}

// Run explains why a task is not running.
func (c *tasksExplain) Run(in surroundings, p *tasksCommand) error {
	s, stop, err := p.open(in)
	if err != nil {
		return err
	}
	defer stop()
	return s.show(c.watchFlags, func() (string, bool, error) {
		facts, err := s.facts(c.ID)
		if err != nil {
			return "", false, s.explain(err)
		}
		final := facts.Task.State == protocol.TaskFulfilled
		if s.json {
			text, err := s.text(s.screen().ExplainJSON(facts), nil)
			return text, final, err
		}
		return s.screen().Explain(facts), final, nil
	})
}

// facts asks a server why a task is not running; one that does not know that request is asked for the records.
func (s *session) facts(id string) (cli.Facts, error) {
	ctx, cancel := s.bounded()
	defer cancel()
	body, err := s.client.TaskExplain(ctx, id)
	f := cli.Facts{ExplainBody: body}
	if f.Partly = client.Status(err) == protocol.StatusInvalid; f.Partly {
		f.Task, err = s.client.TaskGet(ctx, id)
	}
	if err != nil {
		return f, err
	}
	promise, err := s.client.PromiseGet(ctx, id)
	if err != nil {
		return f, err
	}
	if f.Partly {
		f.Promise, f.TimeoutAt = promise.State, promise.TimeoutAt
		f.Target, _ = promise.Tags.Get(protocol.TagTarget)
	}
	delay, _ := promise.Tags.Get(protocol.TagDelay)
	f.DelayAt, _ = strconv.ParseInt(delay, 10, 64) // 0 for none
	return f, nil
}

type tasksCreate struct {
	payloadFlags
	ID      string   `arg:"" help:"Its id."`
	PID     string   `name:"pid" required:"" placeholder:"PID" help:"The worker that holds it."`
	TTL     duration `name:"ttl" required:"" placeholder:"DURATION" help:"How long the lease is."`
	Timeout duration `required:"" placeholder:"DURATION" help:"When the promise times out, from now."`
	Param   *string  `placeholder:"JSON" help:"The param as {\"headers\":{...},\"data\":\"...\"}; data is not encoded."`
	Tags    *string  `placeholder:"JSON" help:"Its tags, an object of strings; resonate:target is needed."`
}

// Run creates a task.
func (c *tasksCreate) Run(in surroundings, p *tasksCommand) error {
	param, err := c.payload(in, "param", c.Param, false)
	if err != nil {
		return err
	}
	tags, err := tagsOf("tags", c.Tags)
	if err != nil {
		return err
	}
	return p.ask(in, &protocol.TaskCreate{PID: c.PID, TTL: int64(c.TTL), Action: protocol.PromiseCreate{
		ID: c.ID, TimeoutAt: c.Timeout.after(in.nowMs()), Param: param, Tags: tags,
	}}, showClaim)
}

type tasksClaim struct {
	ID      string   `arg:"" help:"Its id."`
	PID     string   `name:"pid" required:"" placeholder:"PID" help:"The worker that claims it."`
	Version int64    `required:"" placeholder:"N" help:"The version that the execute message carried."`
	TTL     duration `name:"ttl" required:"" placeholder:"DURATION" help:"How long the lease is."`
}

// Run claims a task.
func (c *tasksClaim) Run(in surroundings, p *tasksCommand) error {
	return p.ask(in, &protocol.TaskAcquire{ID: c.ID, Version: c.Version, PID: c.PID, TTL: int64(c.TTL)}, showClaim)
}

// withAction is a task at a version with the JSON of an action, or of several.
func withAction(id string, version int64, member string, action any) []byte {
	data, _ := json.Marshal(map[string]any{"id": id, "version": version, member: action}) // JSON that was parsed
	return data
}

// headed parses an action and gives it a head if it has none: servers want one, and it says nothing.
func headed(flag, text string, into any) error {
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return failed("Invalid --%s JSON: %v", flag, cli.JSONError(err))
	}
	actions := []map[string]json.RawMessage{}
	switch v := into.(type) {
	case *map[string]json.RawMessage:
		actions = append(actions, *v)
	case *[]map[string]json.RawMessage:
		actions = *v
	}
	for _, action := range actions {
		if action != nil && action["head"] == nil {
			action["head"] = json.RawMessage(`{}`)
		}
	}
	return nil
}

type actionFlags struct {
	ID      string `arg:"" help:"Its id."`
	Version int64  `required:"" placeholder:"N" help:"The version at which it is held."`
	Action  string `required:"" placeholder:"JSON" help:"The action, {\"kind\":...,\"head\":{},\"data\":{...}}."`
}

func (c actionFlags) send(in surroundings, p *tasksCommand, kind protocol.Kind, show view) error {
	var action map[string]json.RawMessage
	if err := headed("action", c.Action, &action); err != nil {
		return err
	}
	req, err := request(kind, withAction(c.ID, c.Version, "action", action))
	if err != nil {
		return err
	}
	return p.ask(in, req, show)
}

type tasksFence struct{ actionFlags }

// Run does something under a task's version.
func (c *tasksFence) Run(in surroundings, p *tasksCommand) error {
	return c.send(in, p, protocol.KindTaskFence, showFenced)
}

type tasksComplete struct{ actionFlags }

// Run fulfills a task.
func (c *tasksComplete) Run(in surroundings, p *tasksCommand) error {
	return c.send(in, p, protocol.KindTaskFulfill, showPromise)
}

type tasksHeartbeat struct {
	PID   string `name:"pid" required:"" placeholder:"PID" help:"The worker that holds them."`
	Tasks string `required:"" placeholder:"JSON" help:"The tasks, [{\"id\":...,\"version\":N}]."`
}

// Run renews leases.
func (c *tasksHeartbeat) Run(in surroundings, p *tasksCommand) error {
	var tasks []map[string]json.RawMessage
	if err := json.Unmarshal([]byte(c.Tasks), &tasks); err != nil {
		return failed("Invalid --tasks JSON: %v", cli.JSONError(err))
	}
	data, _ := json.Marshal(map[string]any{"pid": c.PID, "tasks": tasks}) // JSON that was parsed
	req, err := request(protocol.KindTaskHeartbeat, data)
	if err != nil {
		return err
	}
	return p.ask(in, req, showLost)
}

type tasksSuspend struct {
	ID      string `arg:"" help:"Its id."`
	Version int64  `required:"" placeholder:"N" help:"The version at which it is held."`
	Actions string `required:"" placeholder:"JSON" help:"What it awaits, [{\"kind\":\"promise.register_callback\",\"head\":{},\"data\":{\"awaited\":...,\"awaiter\":...}}]."`
}

// Run suspends a task. That it need not wait is no failure.
func (c *tasksSuspend) Run(in surroundings, p *tasksCommand) error {
	var actions []map[string]json.RawMessage
	if err := headed("actions", c.Actions, &actions); err != nil {
		return err
	}
	req, err := request(protocol.KindTaskSuspend, withAction(c.ID, c.Version, "actions", actions))
	if err != nil {
		return err
	}
	return p.ask(in, req, showSuspended)
}

type tasksRelease struct {
	ID      string `arg:"" help:"Its id."`
	Version int64  `required:"" placeholder:"N" help:"The version at which it is held."`
}

// Run releases a task.
func (c *tasksRelease) Run(in surroundings, p *tasksCommand) error {
	return p.ask(in, &protocol.TaskRelease{ID: c.ID, Version: c.Version}, done("Released."))
}

type tasksHalt struct {
	ID string `arg:"" help:"Its id."`
}

// Run halts a task.
func (c *tasksHalt) Run(in surroundings, p *tasksCommand) error {
	return p.ask(in, &protocol.TaskHalt{ID: c.ID}, done("Halted."))
}

type tasksContinue struct {
	ID string `arg:"" help:"Its id."`
}

// Run continues a task.
func (c *tasksContinue) Run(in surroundings, p *tasksCommand) error {
	return p.ask(in, &protocol.TaskContinue{ID: c.ID}, done("Continued."))
}

type tasksSearch struct {
	watchFlags
	State  string    `words:"pending,acquired,suspended,halted,fulfilled" placeholder:"STATE" help:"Only these: pending, acquired, suspended, halted or fulfilled."`
	Limit  pageLimit `default:"100" placeholder:"N" help:"The largest number to list, up to 1000."`
	Cursor string    `placeholder:"CURSOR" help:"Where the last page told to go on."`
}

// Run lists tasks.
func (c *tasksSearch) Run(in surroundings, p *tasksCommand) error {
	return p.watch(in, c.watchFlags, &protocol.TaskSearch{State: protocol.TaskState(c.State), Limit: int(c.Limit), Cursor: c.Cursor}, showTasks, never)
}
