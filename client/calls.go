package client

import (
	"context"
	"fmt"

	"abide/protocol"
)

// What follows is one method per kind of request. Each returns an *Error if the server's answer is not a
// success; what the statuses mean is said with the kinds in package protocol.

// PromiseGet reads a promise.
func (c *Client) PromiseGet(ctx context.Context, id string) (protocol.Promise, error) {
	return c.promise(ctx, &protocol.PromiseGet{ID: id})
}

// PromiseCreate creates a promise, or returns the one that has its id already.
func (c *Client) PromiseCreate(ctx context.Context, r protocol.PromiseCreate) (protocol.Promise, error) {
	return c.promise(ctx, &r)
}

// PromiseSettle settles a promise, or returns it as it was settled before.
func (c *Client) PromiseSettle(ctx context.Context, r protocol.PromiseSettle) (protocol.Promise, error) {
	return c.promise(ctx, &r)
}

// PromiseRegisterCallback makes the settlement of awaited resume the task awaiter, and returns awaited: if
// it is settled already, nothing will follow.
func (c *Client) PromiseRegisterCallback(ctx context.Context, awaited, awaiter string) (protocol.Promise, error) {
	return c.promise(ctx, &protocol.PromiseRegisterCallback{Awaited: awaited, Awaiter: awaiter})
}

// PromiseRegisterListener makes the settlement of awaited send an unblock message to address, and returns
// awaited: if it is settled already, no message will follow.
func (c *Client) PromiseRegisterListener(ctx context.Context, awaited, address string) (protocol.Promise, error) {
	return c.promise(ctx, &protocol.PromiseRegisterListener{Awaited: awaited, Address: address})
}

func (c *Client) promise(ctx context.Context, req protocol.Request) (protocol.Promise, error) {
	body, err := call(ctx, c, req, protocol.DecodePromiseBody)
	return body.Promise, err
}

// PromiseSearch reads one page of promises. The cursor of the page, if it is not empty, asks for the next.
func (c *Client) PromiseSearch(ctx context.Context, r protocol.PromiseSearch) (protocol.PromisesBody, error) {
	return call(ctx, c, &r, protocol.DecodePromisesBody)
}

// TaskGet reads a task.
func (c *Client) TaskGet(ctx context.Context, id string) (protocol.Task, error) {
	body, err := call(ctx, c, &protocol.TaskGet{ID: id}, protocol.DecodeTaskBody)
	return body.Task, err
}

// TaskCreate creates a promise with its task acquired by the caller. If the promise was settled before,
// the task comes back fulfilled.
func (c *Client) TaskCreate(ctx context.Context, r protocol.TaskCreate) (protocol.ClaimBody, error) {
	return call(ctx, c, &r, protocol.DecodeClaimBody)
}

// TaskAcquire claims a task at the version that its execute message carried.
func (c *Client) TaskAcquire(ctx context.Context, r protocol.TaskAcquire) (protocol.ClaimBody, error) {
	return call(ctx, c, &r, protocol.DecodeClaimBody)
}

// TaskFence runs one inner request if the task is still held. The inner answer has a status of its own.
func (c *Client) TaskFence(ctx context.Context, r protocol.TaskFence) (protocol.Fenced, error) {
	if (r.Create == nil) == (r.Settle == nil) {
		return protocol.Fenced{}, fmt.Errorf("%s: exactly one of Create and Settle must be set", r.Kind())
	}
	return call(ctx, c, &r, protocol.DecodeFenceBody)
}

// TaskHeartbeat renews leases and returns the ids of tasks that were not renewed, where the server tells.
func (c *Client) TaskHeartbeat(ctx context.Context, r protocol.TaskHeartbeat) (lost []string, err error) {
	body, err := call(ctx, c, &r, protocol.DecodeHeartbeatBody)
	return body.Lost, err
}

// TaskSuspend suspends a held task. If an awaited promise is settled already, the task stays held: then
// suspended is false, and preload holds what the worker may go on with.
func (c *Client) TaskSuspend(ctx context.Context, r protocol.TaskSuspend) (suspended bool, preload []protocol.Promise, err error) {
	response, pause, err := c.do(ctx, &r)
	switch {
	case err != nil:
		return false, nil, err
	case response.Status == protocol.StatusOK:
		return true, nil, nil
	case response.Status != protocol.StatusPreload:
		return false, nil, failure(r.Kind(), response, pause)
	}
	body, err := protocol.DecodePreloadBody(response.Data)
	if err != nil {
		return false, nil, fmt.Errorf("%s: the answer's data: %w", r.Kind(), err)
	}
	return false, body.Preload, nil
}

// TaskFulfill settles the promise of a held task.
func (c *Client) TaskFulfill(ctx context.Context, r protocol.TaskFulfill) (protocol.Promise, error) {
	return c.promise(ctx, &r)
}

// TaskRelease gives a held task back.
func (c *Client) TaskRelease(ctx context.Context, id string, version int64) error {
	return order(ctx, c, &protocol.TaskRelease{ID: id, Version: version})
}

// TaskHalt stops a task from being dispatched until TaskContinue.
func (c *Client) TaskHalt(ctx context.Context, id string) error {
	return order(ctx, c, &protocol.TaskHalt{ID: id})
}

// TaskContinue ends a halt.
func (c *Client) TaskContinue(ctx context.Context, id string) error {
	return order(ctx, c, &protocol.TaskContinue{ID: id})
}

// TaskSearch reads one page of tasks. The cursor of the page, if it is not empty, asks for the next.
func (c *Client) TaskSearch(ctx context.Context, r protocol.TaskSearch) (protocol.TasksBody, error) {
	return call(ctx, c, &r, protocol.DecodeTasksBody)
}

// TaskExplain asks why a task is not running: an extension, which other servers of the protocol answer with status 400.
func (c *Client) TaskExplain(ctx context.Context, id string) (protocol.ExplainBody, error) {
	return call(ctx, c, &protocol.TaskExplain{ID: id}, protocol.DecodeExplainBody)
}

// ScheduleGet reads a schedule.
func (c *Client) ScheduleGet(ctx context.Context, id string) (protocol.Schedule, error) {
	body, err := call(ctx, c, &protocol.ScheduleGet{ID: id}, protocol.DecodeScheduleBody)
	return body.Schedule, err
}

// ScheduleCreate creates a schedule, or returns the one that has its id already.
func (c *Client) ScheduleCreate(ctx context.Context, r protocol.ScheduleCreate) (protocol.Schedule, error) {
	body, err := call(ctx, c, &r, protocol.DecodeScheduleBody)
	return body.Schedule, err
}

// ScheduleDelete removes a schedule; the promises that it has made stay.
func (c *Client) ScheduleDelete(ctx context.Context, id string) error {
	return order(ctx, c, &protocol.ScheduleDelete{ID: id})
}

// ScheduleSearch reads one page of schedules. The cursor of the page, if it is not empty, asks for the next.
func (c *Client) ScheduleSearch(ctx context.Context, r protocol.ScheduleSearch) (protocol.SchedulesBody, error) {
	return call(ctx, c, &r, protocol.DecodeSchedulesBody)
}

// DebugStart pauses the server's loops for the workspace. It and the other debug calls need a server with
// debug on.
func (c *Client) DebugStart(ctx context.Context) error { return order(ctx, c, &protocol.DebugStart{}) }

// DebugStop ends DebugStart.
func (c *Client) DebugStop(ctx context.Context) error { return order(ctx, c, &protocol.DebugStop{}) }

// DebugReset deletes everything in the workspace.
func (c *Client) DebugReset(ctx context.Context) error { return order(ctx, c, &protocol.DebugReset{}) }

// DebugTick runs one pass of what time makes happen, at the given instant in epoch milliseconds.
func (c *Client) DebugTick(ctx context.Context, time int64) error {
	return order(ctx, c, &protocol.DebugTick{Time: time})
}

// DebugSnap reads the whole state of the workspace.
func (c *Client) DebugSnap(ctx context.Context) (protocol.SnapBody, error) {
	return call(ctx, c, &protocol.DebugSnap{}, protocol.DecodeSnapBody)
}
