package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"abide/client"
	"abide/internal/testserver"
	"abide/protocol"
)

// start runs a server in this process; a program would be given the URL of one.
func start() (*client.Client, func()) {
	server, err := testserver.Start(testserver.Options{})
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.New(client.Options{URL: server.URL})
	if err != nil {
		log.Fatal(err)
	}
	return c, func() { _ = server.Stop() }
}

func inAnHour() int64 { return time.Now().Add(time.Hour).UnixMilli() }

// A promise is created by somebody, settled by somebody else, and read by anybody.
func ExampleClient_PromiseCreate() {
	c, stop := start()
	defer stop()
	ctx := context.Background()

	p, err := c.PromiseCreate(ctx, protocol.PromiseCreate{ID: "approval-1", TimeoutAt: inAnHour()})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.ID, p.State)

	// Creating and settling are safe to repeat: what is there already comes back as it is.
	for _, answer := range []protocol.PromiseState{protocol.Resolved, protocol.Rejected} {
		p, err = c.PromiseSettle(ctx, protocol.PromiseSettle{ID: "approval-1", State: answer, Value: protocol.MakeValue(nil, "eWVz")})
		if err != nil {
			log.Fatal(err)
		}
		data, _ := p.Value.Data()
		fmt.Println(p.State, data)
	}
	// Output:
	// approval-1 pending
	// resolved eWVz
	// resolved eWVz
}

// What a server refuses is an *Error with the status of its answer.
func ExampleStatus() {
	c, stop := start()
	defer stop()

	_, err := c.PromiseGet(context.Background(), "nobody")
	fmt.Println(client.Status(err) == protocol.StatusNotFound)
	var answer *client.Error
	if errors.As(err, &answer) {
		fmt.Println(answer.Kind, answer.Message)
	}
	// Output:
	// true
	// promise.get Promise not found
}

// Await returns when a promise is settled, here or elsewhere.
func ExampleClient_Await() {
	c, stop := start()
	defer stop()
	ctx := context.Background()
	if _, err := c.PromiseCreate(ctx, protocol.PromiseCreate{ID: "approval-2", TimeoutAt: inAnHour()}); err != nil {
		log.Fatal(err)
	}
	go func() {
		_, _ = c.PromiseSettle(ctx, protocol.PromiseSettle{ID: "approval-2", State: protocol.Rejected})
	}()

	p, err := c.Await(ctx, "approval-2")
	fmt.Println(p.State, err)
	// Output:
	// rejected <nil>
}

// A worker takes messages from its stream, claims the task of each, and fulfills it.
func ExampleClient_Poll() {
	c, stop := start()
	defer stop()
	ctx := context.Background()
	_, err := c.PromiseCreate(ctx, protocol.PromiseCreate{
		ID: "job-1", TimeoutAt: inAnHour(),
		Tags: protocol.Tags{{Name: protocol.TagTarget, Value: "poll://any@workers"}},
	})
	if err != nil {
		log.Fatal(err)
	}

	done := errors.New("done")
	err = c.Poll(ctx, "workers", "worker-1", func(m protocol.Message) error {
		if m.Kind != protocol.MessageExecute {
			return nil
		}
		claim, err := c.TaskAcquire(ctx, protocol.TaskAcquire{ID: m.Task.ID, Version: m.Task.Version, PID: "worker-1", TTL: 60_000})
		if client.Status(err) == protocol.StatusConflict {
			return nil // somebody else was quicker
		}
		if err != nil {
			return err // a longer-lived worker would go on: an unclaimed task is sent again
		}
		p, err := c.TaskFulfill(ctx, protocol.TaskFulfill{
			ID: claim.Task.ID, Version: claim.Task.Version,
			Action: protocol.PromiseSettle{ID: claim.Task.ID, State: protocol.Resolved, Value: protocol.MakeValue(nil, "NDI=")},
		})
		if err != nil {
			return err
		}
		fmt.Println(p.ID, p.State)
		return done
	})
	fmt.Println(err == done)
	// Output:
	// job-1 resolved
	// true
}

// Which requests the client repeats on its own after a connection broke in the middle.
func ExampleRepeatable() {
	fmt.Println(client.Repeatable(protocol.KindPromiseCreate), client.Repeatable(protocol.KindTaskAcquire))
	// Output:
	// true false
}
