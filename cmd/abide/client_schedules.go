package main

import (
	"fmt"

	"abide/internal/cli"
	"abide/protocol"
)

// schedulesCommand is about schedules.
type schedulesCommand struct {
	serverFlags

	Get     schedulesGet     `cmd:"" help:"Show one."`
	Create  schedulesCreate  `cmd:"" help:"Create one, or show the one that has the id already."`
	Delete  schedulesDelete  `cmd:"" help:"Delete one. What it has made stays."`
	Search  schedulesSearch  `cmd:"" help:"List them."`
	Preview schedulesPreview `cmd:"" help:"Say when a cron expression runs next. Asks no server."`
}

var (
	showSchedule  = viewOf(protocol.DecodeScheduleBody, func(s cli.Screen, b protocol.ScheduleBody) string { return s.Schedule(b.Schedule) })
	showSchedules = viewOf(protocol.DecodeSchedulesBody, func(s cli.Screen, b protocol.SchedulesBody) string {
		if len(b.Schedules) == 0 {
			return cli.More(0, b.Cursor)
		}
		return s.Schedules(b.Schedules) + cli.More(len(b.Schedules), b.Cursor)
	})
)

type schedulesGet struct {
	watchFlags
	ID string `arg:"" help:"Its id."`
}

// Run shows a schedule.
func (c *schedulesGet) Run(in surroundings, p *schedulesCommand) error {
	return p.watch(in, c.watchFlags, &protocol.ScheduleGet{ID: c.ID}, showSchedule, never)
}

type schedulesCreate struct {
	payloadFlags   `prefix:"promise-"`
	ID             string   `arg:"" help:"Its id."`
	Cron           string   `required:"" placeholder:"EXPR" help:"When it runs, in UTC; abide schedules preview shows what it means."`
	PromiseID      string   `name:"promise-id" required:"" placeholder:"TEMPLATE" help:"The id of what it makes; {{.id}} and {{.timestamp}} are filled in."`
	PromiseTimeout duration `required:"" placeholder:"DURATION" help:"When each promise times out, from its run."`
	PromiseParam   *string  `placeholder:"JSON" help:"The param as {\"headers\":{...},\"data\":...}; data is encoded."`
	PromiseTags    *string  `placeholder:"JSON" help:"Tags, an object of strings; resonate:target makes a task of each promise."`
}

// Run creates a schedule.
func (c *schedulesCreate) Run(in surroundings, p *schedulesCommand) error {
	param, err := c.payload(in, "promise-param", c.PromiseParam, true)
	if err != nil {
		return err
	}
	tags, err := tagsOf("promise-tags", c.PromiseTags)
	if err != nil {
		return err
	}
	return p.ask(in, &protocol.ScheduleCreate{
		ID: c.ID, Cron: c.Cron, PromiseID: c.PromiseID, PromiseTimeout: int64(c.PromiseTimeout), PromiseParam: param, PromiseTags: tags,
	}, showSchedule)
}

type schedulesDelete struct {
	ID string `arg:"" help:"Its id."`
}

// Run deletes a schedule.
func (c *schedulesDelete) Run(in surroundings, p *schedulesCommand) error {
	return p.ask(in, &protocol.ScheduleDelete{ID: c.ID}, done("Deleted."))
}

type schedulesSearch struct {
	watchFlags
	Tags   *string   `placeholder:"JSON" help:"Only those whose promises have all these tags."`
	Limit  pageLimit `default:"10" placeholder:"N" help:"The largest number to list, up to 1000."`
	Cursor string    `placeholder:"CURSOR" help:"Where the last page told to go on."`
}

// Run lists schedules.
func (c *schedulesSearch) Run(in surroundings, p *schedulesCommand) error {
	tags, err := tagsOf("tags", c.Tags)
	if err != nil {
		return err
	}
	return p.watch(in, c.watchFlags, &protocol.ScheduleSearch{Tags: tags, Limit: int(c.Limit), Cursor: c.Cursor}, showSchedules, never)
}

type schedulesPreview struct {
	Cron  string `arg:"" help:"The expression, in quotes."`
	Count int    `short:"n" default:"5" placeholder:"N" help:"How many runs to show."`
}

// Validate checks the values; kong calls it.
func (c *schedulesPreview) Validate() error {
	if c.Count < 1 || c.Count > cli.MaxPreview {
		return fmt.Errorf("--count must be from 1 to %d", cli.MaxPreview)
	}
	return nil
}

// Run shows when an expression matches.
func (c *schedulesPreview) Run(in surroundings, p *schedulesCommand) error {
	s, stop, err := p.open(in)
	if err != nil {
		return err
	}
	defer stop()
	preview, err := cli.NewPreview(c.Cron, c.Count, in.nowMs())
	if err != nil {
		return failed("Invalid cron expression: %v", err)
	}
	if p.JSON != nil && *p.JSON {
		return s.print(cli.Pretty(preview.JSON()))
	}
	return s.print(s.screen().Preview(preview))
}
