package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"abide/client"
	"abide/protocol"
)

// serve starts a server that answers every request with reply, and returns a client of it and where the
// last request is put.
func serve(t *testing.T, reply func(protocol.Request) protocol.Reply) (*client.Client, *received) {
	t.Helper()
	last := &received{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		env, err := protocol.DecodeEnvelope(body)
		if err != nil {
			t.Errorf("the envelope is refused: %v: %s", err, body)
			return
		}
		req, err := protocol.DecodeRequest(env.Kind, env.Data)
		if err != nil {
			t.Errorf("the request is refused: %v: %s", err, body)
			return
		}
		*last = received{req, env, r.Header.Get("Authorization"), r.URL.Path}
		answer := reply(req)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(answer.Status)
		_, _ = w.Write(protocol.AppendResponse(nil, env.Kind, env.CorrID, answer))
	}))
	t.Cleanup(s.Close)
	c, err := client.New(client.Options{URL: s.URL + "/w/x/", Token: "secret", DebugTime: func() int64 { return 77 }})
	if err != nil {
		t.Fatal(err)
	}
	return c, last
}

type received struct {
	request       protocol.Request
	envelope      protocol.Envelope
	authorization string
	path          string
}

var (
	promise = protocol.Promise{
		ID: "p é/😀", State: protocol.Resolved, Param: protocol.MakeValue(map[string]string{"h": "v"}, "AA=="), Value: protocol.MakeValue(nil, "Ag=="),
		Tags: protocol.Tags{{Name: "a", Value: "b"}}, TimeoutAt: 9, CreatedAt: 1, SettledAt: 2,
	}
	task     = protocol.Task{ID: "p", State: protocol.TaskAcquired, Version: 3, Resumes: 1, TTL: 4, PID: "w"}
	schedule = protocol.Schedule{
		ID: "s", Cron: "* * * * *", PromiseID: "s.{{.timestamp}}", PromiseTimeout: 5, PromiseParam: protocol.MakeValue(nil, "x"),
		PromiseTags: protocol.Tags{{Name: protocol.TagTarget, Value: "poll://any@g"}}, CreatedAt: 1, NextRunAt: 2,
	}
	create = protocol.PromiseCreate{ID: "p.1", TimeoutAt: 9, Param: promise.Param, Tags: protocol.Tags{{Name: protocol.TagTarget, Value: "poll://any@g"}}}
	settle = protocol.PromiseSettle{ID: "p", State: protocol.Rejected, Value: promise.Value}
)

// calls has every typed call once: what it sends, what the server answers, what it returns.
var calls = []struct {
	call func(context.Context, *client.Client) (any, error)
	sent protocol.Request
	body protocol.Body
	want any
}{
	{func(ctx context.Context, c *client.Client) (any, error) { return c.PromiseGet(ctx, promise.ID) },
		&protocol.PromiseGet{ID: promise.ID}, protocol.PromiseBody{Promise: promise}, promise},
	{func(ctx context.Context, c *client.Client) (any, error) { return c.PromiseCreate(ctx, create) },
		&create, protocol.PromiseBody{Promise: promise}, promise},
	{func(ctx context.Context, c *client.Client) (any, error) { return c.PromiseSettle(ctx, settle) },
		&settle, protocol.PromiseBody{Promise: promise}, promise},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.PromiseRegisterCallback(ctx, "a", "b")
	},
		&protocol.PromiseRegisterCallback{Awaited: "a", Awaiter: "b"}, protocol.PromiseBody{Promise: promise}, promise},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.PromiseRegisterListener(ctx, "a", "poll://uni@g/p")
	},
		&protocol.PromiseRegisterListener{Awaited: "a", Address: "poll://uni@g/p"}, protocol.PromiseBody{Promise: promise}, promise},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.PromiseSearch(ctx, protocol.PromiseSearch{State: protocol.Pending, Tags: promise.Tags, Limit: 7, Cursor: "c"})
	},
		&protocol.PromiseSearch{State: protocol.Pending, Tags: promise.Tags, Limit: 7, Cursor: "c"},
		protocol.PromisesBody{Promises: []protocol.Promise{promise}, Cursor: "d"}, protocol.PromisesBody{Promises: []protocol.Promise{promise}, Cursor: "d"}},
	{func(ctx context.Context, c *client.Client) (any, error) { return c.TaskGet(ctx, "p") },
		&protocol.TaskGet{ID: "p"}, protocol.TaskBody{Task: task}, task},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.TaskCreate(ctx, protocol.TaskCreate{PID: "w", TTL: 4, Action: create})
	},
		&protocol.TaskCreate{PID: "w", TTL: 4, Action: create}, claim, claim},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.TaskAcquire(ctx, protocol.TaskAcquire{ID: "p", Version: 2, PID: "w", TTL: 4})
	},
		&protocol.TaskAcquire{ID: "p", Version: 2, PID: "w", TTL: 4}, claim, claim},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.TaskHeartbeat(ctx, protocol.TaskHeartbeat{PID: "w", Tasks: []protocol.TaskRef{{ID: "p", Version: 3}}})
	},
		&protocol.TaskHeartbeat{PID: "w", Tasks: []protocol.TaskRef{{ID: "p", Version: 3}}},
		protocol.HeartbeatBody{Lost: []string{"p"}}, []string{"p"}},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.TaskFulfill(ctx, protocol.TaskFulfill{ID: "p", Version: 3, Action: settle})
	},
		&protocol.TaskFulfill{ID: "p", Version: 3, Action: settle}, protocol.PromiseBody{Promise: promise}, promise},
	{func(ctx context.Context, c *client.Client) (any, error) { return nil, c.TaskRelease(ctx, "p", 3) },
		&protocol.TaskRelease{ID: "p", Version: 3}, protocol.EmptyBody{}, nil},
	{func(ctx context.Context, c *client.Client) (any, error) { return nil, c.TaskHalt(ctx, "p") },
		&protocol.TaskHalt{ID: "p"}, protocol.EmptyBody{}, nil},
	{func(ctx context.Context, c *client.Client) (any, error) { return nil, c.TaskContinue(ctx, "p") },
		&protocol.TaskContinue{ID: "p"}, protocol.EmptyBody{}, nil},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.TaskSearch(ctx, protocol.TaskSearch{State: protocol.TaskHalted, Limit: 7})
	},
		&protocol.TaskSearch{State: protocol.TaskHalted, Limit: 7}, protocol.TasksBody{Tasks: []protocol.Task{task}}, protocol.TasksBody{Tasks: []protocol.Task{task}}},
	{func(ctx context.Context, c *client.Client) (any, error) { return c.ScheduleGet(ctx, "s") },
		&protocol.ScheduleGet{ID: "s"}, protocol.ScheduleBody{Schedule: schedule}, schedule},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.ScheduleCreate(ctx, protocol.ScheduleCreate{
			ID: "s", Cron: schedule.Cron, PromiseID: schedule.PromiseID, PromiseTimeout: 5, PromiseParam: schedule.PromiseParam, PromiseTags: schedule.PromiseTags,
		})
	},
		&protocol.ScheduleCreate{
			ID: "s", Cron: schedule.Cron, PromiseID: schedule.PromiseID, PromiseTimeout: 5, PromiseParam: schedule.PromiseParam, PromiseTags: schedule.PromiseTags,
		}, protocol.ScheduleBody{Schedule: schedule}, schedule},
	{func(ctx context.Context, c *client.Client) (any, error) { return nil, c.ScheduleDelete(ctx, "s") },
		&protocol.ScheduleDelete{ID: "s"}, protocol.EmptyBody{}, nil},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.ScheduleSearch(ctx, protocol.ScheduleSearch{Limit: 3})
	},
		&protocol.ScheduleSearch{Limit: 3}, protocol.SchedulesBody{Schedules: []protocol.Schedule{schedule}}, protocol.SchedulesBody{Schedules: []protocol.Schedule{schedule}}},
	{func(ctx context.Context, c *client.Client) (any, error) { return nil, c.DebugStart(ctx) },
		&protocol.DebugStart{}, protocol.EmptyBody{}, nil},
	{func(ctx context.Context, c *client.Client) (any, error) { return nil, c.DebugStop(ctx) },
		&protocol.DebugStop{}, protocol.EmptyBody{}, nil},
	{func(ctx context.Context, c *client.Client) (any, error) { return nil, c.DebugReset(ctx) },
		&protocol.DebugReset{}, protocol.EmptyBody{}, nil},
	{func(ctx context.Context, c *client.Client) (any, error) { return nil, c.DebugTick(ctx, 77) },
		&protocol.DebugTick{Time: 77}, protocol.TickBody{}, nil},
	{func(ctx context.Context, c *client.Client) (any, error) {
		snap, err := c.DebugSnap(ctx)
		return len(snap.Promises), err
	},
		&protocol.DebugSnap{}, protocol.SnapBody{Promises: []protocol.Promise{promise}}, 1},
}

var claim = protocol.ClaimBody{Task: task, Promise: promise, Preload: []protocol.Promise{promise}}

func TestEveryCall(t *testing.T) {
	for _, tc := range calls {
		t.Run(string(tc.sent.Kind()), func(t *testing.T) {
			c, last := serve(t, func(protocol.Request) protocol.Reply { return protocol.OK(tc.body) })
			got, err := tc.call(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("returned %+v, want %+v", got, tc.want)
			}
			if !reflect.DeepEqual(last.request, tc.sent) {
				t.Errorf("the server read %+v, want %+v", last.request, tc.sent)
			}
			if last.authorization != "Bearer secret" || last.envelope.Auth != "secret" || last.path != "/w/x/" || last.envelope.DebugTime == nil {
				t.Errorf("sent with %q, %q, %q, %v", last.authorization, last.envelope.Auth, last.path, last.envelope.DebugTime)
			}

			c, _ = serve(t, func(protocol.Request) protocol.Reply { return protocol.Fail(409, "no, because") })
			var answer *client.Error
			if _, err := tc.call(t.Context(), c); !errors.As(err, &answer) || client.Status(err) != 409 || answer.Message != "no, because" || answer.Kind != tc.sent.Kind() {
				t.Errorf("a 409 is returned as %v", err)
			}
		})
	}
}

func TestFence(t *testing.T) {
	r := protocol.TaskFence{ID: "p", Version: 3, Create: &create}
	c, last := serve(t, func(protocol.Request) protocol.Reply {
		return protocol.OK(protocol.FenceBody{ActionKind: protocol.KindPromiseCreate, CorrID: "1", Action: protocol.OK(protocol.PromiseBody{Promise: promise})})
	})
	fenced, err := c.TaskFence(t.Context(), r)
	if err != nil || fenced.Action.Status != 200 || !reflect.DeepEqual(last.request, &r) {
		t.Errorf("%+v %v; the server read %+v", fenced, err, last.request)
	}
	if _, err := c.TaskFence(t.Context(), protocol.TaskFence{ID: "p"}); err == nil {
		t.Error("a fence around nothing is sent")
	}
}

func TestSuspend(t *testing.T) {
	r := protocol.TaskSuspend{ID: "p", Version: 3, Awaited: []string{"a", "b"}}
	for _, tc := range []struct {
		reply     protocol.Reply
		suspended bool
		preload   int
		status    int
	}{
		{protocol.OK(protocol.EmptyBody{}), true, 0, 0},
		{protocol.Reply{Status: 300, Body: protocol.PreloadBody{Preload: []protocol.Promise{promise}}}, false, 1, 0},
		{protocol.Fail(422, "unknown"), false, 0, 422},
	} {
		c, last := serve(t, func(protocol.Request) protocol.Reply { return tc.reply })
		suspended, preload, err := c.TaskSuspend(t.Context(), r)
		if suspended != tc.suspended || len(preload) != tc.preload || client.Status(err) != tc.status || !reflect.DeepEqual(last.request, &r) {
			t.Errorf("%d: %v %v %v; the server read %+v", tc.reply.Status, suspended, preload, err, last.request)
		}
	}
}

func TestAnswersThatAreNoneOfTheProtocols(t *testing.T) {
	for _, text := range []string{"", "<html>", "{}", `{"kind":"x","head":{},"data":{}}`, "\xff"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_, _ = io.WriteString(w, text)
		}))
		c, err := client.New(client.Options{URL: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.PromiseGet(t.Context(), "p"); err == nil || client.Status(err) != 0 || !strings.Contains(err.Error(), "413") {
			t.Errorf("%q: %v", text, err)
		}
		s.Close()
	}
}

func TestSuccessWithoutItsData(t *testing.T) {
	c, _ := serve(t, func(protocol.Request) protocol.Reply { return protocol.OK(protocol.EmptyBody{}) })
	if _, err := c.PromiseGet(t.Context(), "p"); err == nil || client.Status(err) != 0 {
		t.Errorf("error %v", err)
	}
}

func TestNewRefusesWhatIsNoBaseURL(t *testing.T) {
	for _, url := range []string{"", "localhost:8001", "ftp://x", "http://", "http://x/?a=b", "http://x/#f", "http://[::1"} {
		if _, err := client.New(client.Options{URL: url}); err == nil {
			t.Errorf("%q is accepted", url)
		}
	}
}

func TestContextEndsACall(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer s.Close()
	c, err := client.New(client.Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.PromiseGet(ctx, "p"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
