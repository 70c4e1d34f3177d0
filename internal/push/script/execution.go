package script

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"abide/internal/push"
	"abide/protocol"
)

const (
	// callTimeout bounds one request to the engine, and the last one of a script that is ended at a stop.
	callTimeout = 5 * time.Second
	// settlePause and settlePauseMax are the pauses between attempts to settle a promise while the store fails.
	settlePause    = 100 * time.Millisecond
	settlePauseMax = 2 * time.Second
	// longestTimeoutMs is as good as for ever, and fits into a time.Duration.
	longestTimeoutMs = 100 * 365 * 24 * 60 * 60 * 1000
)

// Why a script is ended before it ends by itself.
var (
	errStopping = errors.New("the server stops")
	errLost     = errors.New("the task is no longer held")
	errTimeout  = errors.New("the promise's time is over")
)

// execution is one task whose script runs here.
type execution struct {
	*Transport
	workspace string
	pid       string
	task      protocol.TaskRef // at the version of the claim
	promise   protocol.Promise
	trace     *protocol.Trace // nil for none
	lapse     *time.Timer     // ends the lease where the store would, at the latest; keep has it once it runs
	lost      chan struct{}
}

// claim takes the task of a message. The lease is counted from before the request, as it cannot begin earlier.
func (t *Transport) claim(ctx context.Context, m push.Message) (*execution, error) {
	x := &execution{
		Transport: t, workspace: m.Workspace, trace: m.Trace, lost: make(chan struct{}, 1),
		pid: "bash-exec-" + strconv.FormatUint(rand.Uint64(), 10),
	}
	x.lapse = time.AfterFunc(t.lease, x.lose)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply := t.opt.Engine.Do(ctx, m.Workspace, &protocol.TaskAcquire{ID: m.Task.ID, Version: m.Task.Version, PID: x.pid, TTL: t.opt.LeaseMs}, nil)
	body, ok := reply.Body.(protocol.ClaimBody)
	switch {
	case reply.Status == protocol.StatusOK && ok:
		x.promise = body.Promise
		x.task = protocol.TaskRef{ID: body.Task.ID, Version: body.Task.Version}
		return x, nil
	case reply.Status == protocol.StatusNotFound || reply.Status == protocol.StatusConflict:
		x.lapse.Stop()
		return nil, push.ErrStale
	}
	x.lapse.Stop()
	return nil, fmt.Errorf("the task could not be claimed: %d %s", reply.Status, reply.Message)
}

// lose says that the task is no longer held.
func (x *execution) lose() {
	select {
	case x.lost <- struct{}{}:
	default:
	}
}

// run runs the script to its end, or until there is a reason to end it. The error is for what may go well the next time.
func (x *execution) run(ctx context.Context, what program) error {
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	go x.watch(running, end)
	go x.keep(running)

	text, err := scriptOf(x.promise.Param)
	if err != nil {
		x.settle(running, rejected(err))
		return nil
	}
	what.environment = x.environment()
	if what.container {
		what.environment = slices.Concat(x.passed, what.environment)
	}
	remaining := min(x.promise.TimeoutAt-x.opt.Engine.Now(), longestTimeoutMs)
	timed, cancel := context.WithTimeoutCause(running, time.Duration(remaining)*time.Millisecond, errTimeout)
	defer cancel()
	ended, err := x.execute(timed, what, text)
	switch cause := context.Cause(timed); {
	case cause != nil && !ended.byItself:
		return x.abandon(ctx, cause)
	case err != nil:
		x.release(ctx)
		return fmt.Errorf("the script could not be run: %w", err)
	case ended.killed:
		// Its memory may have run out, or somebody may have killed it. The lease is left to end, which paces a script
		// that always ends so.
		x.opt.Log.Warn("a script was killed; its task is dispatched again when its lease has ended", "workspace", x.workspace, "task", x.task.ID)
		return nil
	}
	x.settle(running, judge(ended.exitCode, &ended.stdout, &ended.stderr))
	return nil
}

// watch ends what runs when the lease is lost or the server stops.
func (x *execution) watch(running context.Context, end context.CancelCauseFunc) {
	select {
	case <-x.lost:
		end(errLost)
	case <-x.stopping:
		end(errStopping)
	case <-running.Done():
	}
}

// abandon is what becomes of a task whose script was ended early.
func (x *execution) abandon(ctx context.Context, cause error) error {
	if errors.Is(cause, errLost) || errors.Is(cause, errTimeout) {
		x.opt.Log.Info("a script was ended", "workspace", x.workspace, "task", x.task.ID, "reason", cause.Error())
		return nil
	}
	x.release(ctx)
	return nil
}

// keep renews the lease while running lasts. A renewal that fails is tried again while there is time: the lease that
// the last one gave ends on its own timer.
func (x *execution) keep(running context.Context) {
	defer func() {
		if p := recover(); p != nil {
			x.opt.Log.Error("the lease of a script could not be renewed", "workspace", x.workspace, "task", x.task.ID, "panic", p)
			x.lose()
		}
	}()
	defer func() { x.lapse.Stop() }() // the last one
	beat := time.NewTicker(max(x.lease/3, time.Millisecond))
	defer beat.Stop()
	for {
		select {
		case <-running.Done():
			return
		case <-beat.C:
		}
		next := time.AfterFunc(x.lease, x.lose)
		switch held, answered := x.renew(running); {
		case !answered:
			next.Stop()
		case !held:
			next.Stop()
			x.lose()
			return
		default:
			x.lapse.Stop()
			x.lapse = next
		}
	}
}

// renew sends one heartbeat. Not answered: the store cannot say whether the task is held.
func (x *execution) renew(running context.Context) (held, answered bool) {
	ctx, cancel := context.WithTimeout(running, min(callTimeout, x.lease))
	defer cancel()
	reply := x.opt.Engine.Do(ctx, x.workspace, &protocol.TaskHeartbeat{PID: x.pid, Tasks: []protocol.TaskRef{x.task}}, nil)
	if reply.Status != protocol.StatusOK {
		return false, reply.Status == protocol.StatusNotFound || reply.Status == protocol.StatusConflict
	}
	body, ok := reply.Body.(protocol.HeartbeatBody)
	return ok && len(body.Lost) == 0, true
}

// settle settles the promise. While the store fails it tries again, as long as the task is held: the work is done.
func (x *execution) settle(running context.Context, v verdict) {
	req := &protocol.TaskFulfill{
		ID: x.task.ID, Version: x.task.Version,
		Action: protocol.PromiseSettle{ID: x.task.ID, State: v.state, Value: v.value},
	}
	for pause := settlePause; ; pause = min(2*pause, settlePauseMax) {
		reply := x.do(running, req)
		switch {
		case reply.Status == protocol.StatusOK:
			return
		case reply.Status < 500 && reply.Status != protocol.StatusTooManyRequests:
			// Settled by somebody else, lost, or by the request before this one whose answer was an error.
			x.opt.Log.Info("the outcome of a script did not count", "workspace", x.workspace, "task", x.task.ID, "status", reply.Status, "reason", reply.Message)
			return
		}
		select {
		case <-running.Done():
			x.opt.Log.Warn("the outcome of a script could not be stored; its task is dispatched again", "workspace", x.workspace, "task", x.task.ID, "reason", reply.Message)
			return
		case <-time.After(pause):
		}
	}
}

// release gives the task back, so that it is dispatched again at once.
func (x *execution) release(ctx context.Context) {
	reply := x.do(ctx, &protocol.TaskRelease{ID: x.task.ID, Version: x.task.Version})
	if reply.Status >= 500 {
		x.opt.Log.Warn("the task of a script could not be released; it is dispatched again when its lease has ended", "workspace", x.workspace, "task", x.task.ID, "reason", reply.Message)
	}
}

// do serves a request that matters even when ctx has ended.
func (x *execution) do(ctx context.Context, req protocol.Request) protocol.Reply {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	return x.opt.Engine.Do(ctx, x.workspace, req, nil)
}

// environment is what a script is told of its promise, the same for every run of it, and of the trace that it is part of.
func (x *execution) environment() []string {
	told := []string{
		"RESONATE_PROMISE_ID=" + x.promise.ID,
		"RESONATE_PROMISE_CREATED_AT=" + strconv.FormatInt(x.promise.CreatedAt, 10),
		"RESONATE_PROMISE_TIMEOUT_AT=" + strconv.FormatInt(x.promise.TimeoutAt, 10),
	}
	if x.trace != nil {
		told = append(told, "TRACEPARENT="+string(x.trace.AppendParent(nil)))
		if x.trace.State != "" {
			told = append(told, "TRACESTATE="+x.trace.State)
		}
	}
	return told
}
