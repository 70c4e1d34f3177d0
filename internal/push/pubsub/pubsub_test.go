package pubsub_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"abide/internal/push"
	"abide/internal/push/pubsub"
	"abide/protocol"
)

// service is the client's own fake of Pub/Sub, with topics in the project "orders-1".
func service(t *testing.T, topics []string, reactions ...pstest.ServerReactorOption) *pstest.Server {
	t.Helper()
	server := pstest.NewServer(reactions...)
	t.Cleanup(func() { _ = server.Close() })
	connection, err := grpc.NewClient(server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := vkit.NewTopicAdminClient(context.Background(), option.WithGRPCConn(connection))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	for _, topic := range topics {
		if _, err := admin.CreateTopic(context.Background(), &pubsubpb.Topic{Name: "projects/orders-1/topics/" + topic}); err != nil {
			t.Fatal(err)
		}
	}
	return server
}

func transport(t *testing.T, o pubsub.Options) *pubsub.Transport {
	t.Helper()
	transport := pubsub.New(o)
	t.Cleanup(func() {
		if err := transport.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return transport
}

func execute(topic, id string, version int64) push.Message {
	task := protocol.TaskRef{ID: id, Version: version}
	return push.Message{
		Workspace: "default", Address: "gcps://orders-1/" + topic, Task: task,
		Body: protocol.AppendExecute(nil, "http://abide.test", task), Attempt: 1,
	}
}

func unblock(topic, id string) push.Message {
	promise := &protocol.Promise{ID: id, State: protocol.Resolved, Value: protocol.MakeValue(nil, "aGk=")}
	return push.Message{
		Workspace: "shop", Address: "gcps://orders-1/" + topic, Promise: promise,
		Body: protocol.AppendUnblock(nil, *promise), Attempt: 3,
	}
}

func TestMessagesArriveAsTheyAre(t *testing.T) {
	server := service(t, []string{"work"})
	transport := transport(t, pubsub.Options{EmulatorHost: server.Addr})
	sent := map[string]push.Message{} // by delivery id
	for _, m := range []push.Message{execute("work", "a", 0), execute("work", "a", 1), unblock("work", "p"), execute("work", strings.Repeat("é", 512), 7)} {
		if err := transport.Send(context.Background(), m); err != nil {
			t.Fatal(err)
		}
		got := server.Messages()
		last := got[len(got)-1]
		if string(last.Data) != string(m.Body) || !json.Valid(last.Data) {
			t.Errorf("the data is %s, want %s", last.Data, m.Body)
		}
		id := last.Attributes[pubsub.AttributeDeliveryID]
		want := map[string]string{"kind": "execute", "delivery_id": id, "attempt": "1", "workspace": "default"}
		if m.Promise != nil {
			want = map[string]string{"kind": "unblock", "delivery_id": id, "attempt": "3", "workspace": "shop"}
		}
		if !maps.Equal(last.Attributes, want) {
			t.Errorf("the attributes are %v, want %v", last.Attributes, want)
		}
		if _, again := sent[id]; again || id != m.DeliveryID() {
			t.Errorf("the delivery id %q is not this message's own", id)
		}
		sent[id] = m
	}
	again := execute("work", "a", 1)
	again.Attempt = 2
	if err := transport.Send(context.Background(), again); err != nil {
		t.Fatal(err)
	}
	got := server.Messages()
	if m := sent[got[len(got)-1].Attributes[pubsub.AttributeDeliveryID]]; m.Task != again.Task {
		t.Error("a repetition has another delivery id")
	}
}

func TestTraceGoesWithTheMessage(t *testing.T) {
	server := service(t, []string{"work"})
	transport := transport(t, pubsub.Options{EmulatorHost: server.Addr})
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, state := range []string{"", "vendor=x"} {
		m := execute("work", "a", 0)
		m.Trace = protocol.ParseTrace(parent, state)
		if err := transport.Send(context.Background(), m); err != nil {
			t.Fatal(err)
		}
		got := server.Messages()
		last := got[len(got)-1].Attributes
		if value, ok := last[pubsub.AttributeTraceState]; last[pubsub.AttributeTraceParent] != parent || value != state || ok != (state != "") {
			t.Errorf("the attributes are %v", last)
		}
	}
}

func TestManyTopicsAtOnce(t *testing.T) {
	topics := []string{"work", "more", "most"}
	server := service(t, topics)
	transport := transport(t, pubsub.Options{EmulatorHost: server.Addr})
	var all sync.WaitGroup
	for n := range 90 {
		all.Go(func() {
			if err := transport.Send(context.Background(), execute(topics[n%len(topics)], "t", int64(n))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := len(server.Messages()); n != 90 {
		t.Errorf("%d messages arrived, want 90", n)
	}
}

func TestFailures(t *testing.T) {
	reaction := func(code codes.Code) pstest.ServerReactorOption {
		return pstest.WithErrorInjection("Publish", code, "injected")
	}
	for _, c := range []struct {
		name    string
		topic   string
		react   []pstest.ServerReactorOption
		refused bool
		says    string
	}{
		{"the topic is missing", "absent", nil, true, "NotFound"},
		{"not allowed", "work", []pstest.ServerReactorOption{reaction(codes.PermissionDenied)}, true, "injected"},
		{"not now", "work", []pstest.ServerReactorOption{reaction(codes.Unavailable)}, false, "injected"},
		{"too much", "work", []pstest.ServerReactorOption{reaction(codes.ResourceExhausted)}, false, "injected"},
		{"an error of theirs", "work", []pstest.ServerReactorOption{reaction(codes.Internal)}, false, "injected"},
		{"too late", "work", []pstest.ServerReactorOption{reaction(codes.DeadlineExceeded)}, false, "gcps.timeout"},
	} {
		server := service(t, []string{"work"}, c.react...)
		err := transport(t, pubsub.Options{EmulatorHost: server.Addr}).Send(context.Background(), execute(c.topic, "a", 0))
		if err == nil || errors.Is(err, push.ErrRefused) != c.refused || errors.Is(err, push.ErrStale) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
		if n := len(server.Messages()); n != 0 {
			t.Errorf("%s: %d messages arrived", c.name, n)
		}
	}
}

// silent accepts connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	return l.Addr().String()
}

func TestSendEndsWithItsTimeAndItsContext(t *testing.T) {
	hangs := silent(t)
	err := transport(t, pubsub.Options{EmulatorHost: hangs, Timeout: 50 * time.Millisecond}).Send(context.Background(), execute("work", "a", 0))
	if err == nil || errors.Is(err, push.ErrRefused) {
		t.Errorf("a service that hangs: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	slow := transport(t, pubsub.Options{EmulatorHost: hangs, Timeout: time.Hour})
	go func() { ended <- slow.Send(ctx, execute("work", "a", 0)) }()
	cancel()
	if err := <-ended; err == nil || errors.Is(err, push.ErrRefused) {
		t.Errorf("a send that was given up: %v", err)
	}
}

func TestServiceThatComesBack(t *testing.T) {
	server := service(t, []string{"work"})
	transport := transport(t, pubsub.Options{EmulatorHost: server.Addr})
	server.SetAutoPublishResponse(false)
	server.AddPublishResponse(nil, errors.New("not yet"))
	server.AddPublishResponse(&pubsubpb.PublishResponse{MessageIds: []string{"1"}}, nil)
	if err := transport.Send(context.Background(), execute("work", "a", 0)); err == nil {
		t.Error("the first send succeeded: the client repeats by itself")
	}
	if err := transport.Send(context.Background(), execute("work", "a", 0)); err != nil {
		t.Errorf("the second send: %v", err)
	}
}

func TestWithoutCredentialsNothingLeaves(t *testing.T) {
	t.Setenv("PUBSUB_EMULATOR_HOST", "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "absent.json"))
	none := transport(t, pubsub.Options{})
	for range 2 { // a failure to open is not kept: each send looks again
		if err := none.Send(context.Background(), execute("work", "a", 0)); !errors.Is(err, push.ErrRefused) || !strings.Contains(err.Error(), "credentials") {
			t.Errorf("without credentials: %v", err)
		}
	}
}

func TestLanes(t *testing.T) {
	long := strings.Repeat("t", 255)
	for _, c := range []struct{ only, address, lane, says string }{
		{"", "gcps://orders-1/work", "orders-1/work", ""},
		{"", "gcps://orders-1/work?x=y", "orders-1/work", ""},
		{"", "gcps://example.com%3Aorders-1/work", "example.com:orders-1/work", ""},
		{"", "gcps://123456/a.b~c+d_e-f", "123456/a.b~c+d_e-f", ""},
		{"orders-1", "gcps://orders-1/work", "orders-1/work", ""},
		{"orders-1", "gcps://orders-2/work", "", "transports.gcps.project"},
		{"", "gcps://orders-1/a/b", "", "no id of a topic"},
		{"", "gcps://orders-1/ab", "", "no id of a topic"},
		{"", "gcps://orders-1/1abc", "", "no id of a topic"},
		{"", "gcps://orders-1/googly", "", "no id of a topic"},
		{"", "gcps://orders-1/" + long + "t", "", "no id of a topic"},
		{"", "gcps://Orders/work", "", "no id of a project"},
		{"", "gcps://a%2F..%2Fb/work", "", "no id of a project"},
		{"", "bash://", "", "no address of Pub/Sub"},
	} {
		address, err := protocol.ParseAddress(c.address)
		if err != nil {
			t.Fatal(err)
		}
		lane, err := pubsub.New(pubsub.Options{Project: c.only}).Lane(address, c.address)
		if lane != c.lane || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v", c.address, lane, err)
		}
		if sent := pubsub.New(pubsub.Options{Project: c.only}).Send(context.Background(), push.Message{Address: c.address}); c.says != "" && !errors.Is(sent, push.ErrRefused) {
			t.Errorf("%s is sent: %v", c.address, sent)
		}
	}
	lanes := map[string]bool{}
	for _, topic := range []string{long, long[:254] + "u", long[:254]} {
		lane, err := pubsub.New(pubsub.Options{}).Lane(protocol.Address{Scheme: "gcps", Group: "orders-1", ID: topic}, "")
		if err != nil || len(lane) > 255 || lanes[lane] {
			t.Errorf("a topic of %d bytes: %q, %v", len(topic), lane, err)
		}
		lanes[lane] = true
	}
}

func TestAddressesThatAreNone(t *testing.T) {
	for _, address := range []string{"", "gcps://", "kafka://x/y"} {
		if err := pubsub.New(pubsub.Options{}).Send(context.Background(), push.Message{Address: address}); !errors.Is(err, push.ErrRefused) {
			t.Errorf("%q: %v", address, err)
		}
	}
	if n := pubsub.New(pubsub.Options{}).Concurrency("orders-1/work"); n != pubsub.DefaultConcurrency {
		t.Errorf("%d at once, want %d", n, pubsub.DefaultConcurrency)
	}
}
