// Package pubsub publishes messages to topics of Google Cloud Pub/Sub: the addresses gcps://project/topic.
//
// One message is one call of the service's Publish (docs/decisions/0043). The official client's publisher, which
// gathers messages for ten milliseconds and sends them from goroutines of its own, would add a wait to every step
// of a workflow and state to every topic, and would go on sending what its caller has given up.
package pubsub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"abide/internal/push"
	"abide/protocol"
)

// Limits and defaults of a Transport.
const (
	// DefaultTimeout bounds one publish.
	DefaultTimeout = 10 * time.Second
	// DefaultConcurrency is how many publishes to one topic run at once.
	DefaultConcurrency = 256
	// maxLaneBytes is the longest name of a lane that the queue takes.
	maxLaneBytes = 255
	// maxReasonBytes bounds what is passed on of an error that the service has written.
	maxReasonBytes = 500
)

// The attributes of a published message.
const (
	// AttributeKind is execute or unblock.
	AttributeKind = "kind"
	// AttributeDeliveryID is the same for every repetition of a message, and for no other message: receivers know
	// repetitions by it.
	AttributeDeliveryID = "delivery_id"
	// AttributeAttempt counts the sends of the message that one life of the server has begun, from 1.
	AttributeAttempt = "attempt"
	// AttributeWorkspace is the workspace of the message.
	AttributeWorkspace = "workspace"
	// AttributeTraceParent and AttributeTraceState are the trace that an execute is part of, as W3C Trace Context
	// writes it; absent if it is part of none.
	AttributeTraceParent = "traceparent"
	AttributeTraceState  = "tracestate"
)

// Options of a Transport. Zero fields have the defaults stated.
type Options struct {
	// Project, if not empty, is the only project whose topics are published to.
	Project string
	// Timeout bounds one publish. Default DefaultTimeout.
	Timeout time.Duration
	// Concurrency is how many publishes to one topic may run at once. Default DefaultConcurrency.
	Concurrency int
	// EmulatorHost, if not empty, is the host and port of an emulator, which is spoken to without credentials and
	// without TLS.
	EmulatorHost string
	// UserAgent names this server to the service.
	UserAgent string
}

// Transport publishes messages. It is safe for concurrent use.
type Transport struct {
	opt Options

	// opening is held by whoever makes the client, or looks at it; a channel, so that a Send that waits for it ends
	// with its context.
	opening chan struct{}
	client  *vkit.TopicAdminClient
}

var _ push.Transport = (*Transport)(nil)

// New makes a transport. It touches neither the network nor credentials: both are looked for at the first Send.
func New(o Options) *Transport {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Concurrency == 0 {
		o.Concurrency = DefaultConcurrency
	}
	return &Transport{opt: o, opening: make(chan struct{}, 1)}
}

var (
	// topicName is what the service takes as the id of a topic.
	topicName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}$`)
	// projectName is a project's id, with the domain that old ones begin with, or its number.
	projectName = regexp.MustCompile(`^([a-z0-9.\-]+:)?[a-z0-9][a-z0-9\-]{0,62}$`)
)

// ValidProject reports whether a text can be the id or the number of a project.
func ValidProject(s string) bool { return projectName.MatchString(s) }

// Lane is the project and the topic of an address, separated by a slash.
func (t *Transport) Lane(address protocol.Address, text string) (string, error) {
	project, topic := address.Group, address.ID
	switch {
	case address.Scheme != protocol.SchemeGCPS:
		return "", fmt.Errorf("%.100q is no address of Pub/Sub, which are gcps://project/topic", text)
	case !ValidProject(project):
		return "", fmt.Errorf("%.100q is no id of a project", project)
	case !topicName.MatchString(topic) || strings.HasPrefix(topic, "goog"):
		return "", fmt.Errorf("%.100q is no id of a topic: 3 to 255 letters, digits and -_.~+%%, the first a letter, and not goog at the beginning", topic)
	case t.opt.Project != "" && project != t.opt.Project:
		return "", fmt.Errorf("the project %.100q is not the one that this server publishes to (transports.gcps.project is %q)", project, t.opt.Project)
	}
	lane := project + "/" + topic
	if len(lane) > maxLaneBytes {
		sum := sha256.Sum256([]byte(lane))
		lane = lane[:maxLaneBytes-2*sha256.Size] + hex.EncodeToString(sum[:])
	}
	return lane, nil
}

// Concurrency is how many publishes to a topic may run at once.
func (t *Transport) Concurrency(string) int { return t.opt.Concurrency }

// Send publishes a message: its body as the data, what else is known of it as attributes.
func (t *Transport) Send(ctx context.Context, m push.Message) error {
	address, err := protocol.ParseAddress(m.Address)
	if err != nil {
		return fmt.Errorf("%w: %w", push.ErrRefused, err)
	}
	if _, err := t.Lane(address, m.Address); err != nil {
		return fmt.Errorf("%w: %w", push.ErrRefused, err)
	}
	ctx, cancel := context.WithTimeout(ctx, t.opt.Timeout)
	defer cancel()
	client, err := t.open(ctx)
	if err != nil {
		return err
	}
	_, err = client.Publish(ctx, &pubsubpb.PublishRequest{
		Topic:    "projects/" + address.Group + "/topics/" + address.ID,
		Messages: []*pubsubpb.PubsubMessage{{Data: m.Body, Attributes: attributes(m)}},
	})
	return judge(err)
}

func attributes(m push.Message) map[string]string {
	all := map[string]string{
		AttributeKind:       protocol.MessageExecute,
		AttributeDeliveryID: m.DeliveryID(),
		AttributeAttempt:    strconv.Itoa(m.Attempt),
		AttributeWorkspace:  m.Workspace,
	}
	if m.Promise != nil {
		all[AttributeKind] = protocol.MessageUnblock
	}
	if m.Trace != nil {
		all[AttributeTraceParent] = string(m.Trace.AppendParent(nil))
		if m.Trace.State != "" {
			all[AttributeTraceState] = m.Trace.State
		}
	}
	return all
}

// open is the client, made by whoever is the first to need it. Credentials that cannot be had now may be there
// later, so a failure is not kept. Looking for them takes no context: it goes on when the one who asked has gone.
func (t *Transport) open(ctx context.Context) (*vkit.TopicAdminClient, error) {
	select {
	case t.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if client := t.client; client != nil {
		<-t.opening
		return client, nil
	}
	type outcome struct {
		client *vkit.TopicAdminClient
		err    error
	}
	opened := make(chan outcome, 1)
	go func() {
		defer func() { <-t.opening }()
		client, err := t.dial()
		if err == nil {
			t.client = client
		}
		opened <- outcome{client, err}
	}()
	select {
	case o := <-opened:
		return o.client, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (t *Transport) dial() (*vkit.TopicAdminClient, error) {
	options := []option.ClientOption{option.WithUserAgent(t.opt.UserAgent)}
	if t.opt.EmulatorHost != "" {
		options = append(options, option.WithEndpoint(t.opt.EmulatorHost), option.WithoutAuthentication(), option.WithTelemetryDisabled(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
	client, err := vkit.NewTopicAdminClient(context.Background(), options...)
	if err != nil {
		return nil, fmt.Errorf("%w: there are no credentials for Pub/Sub: %s", push.ErrRefused, short(err))
	}
	client.CallOptions.Publish = nil // the queue repeats what failed, with pauses of its own
	return client, nil
}

// judge tells what no repetition mends from what may go well the next time.
func judge(err error) error {
	if err == nil {
		return nil
	}
	switch status.Code(err) {
	case codes.NotFound, codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition:
		return fmt.Errorf("%w: Pub/Sub answered %s", push.ErrRefused, short(err))
	}
	if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded {
		return errors.New("Pub/Sub did not answer in time (transports.gcps.timeout)")
	}
	return fmt.Errorf("Pub/Sub: %s", short(err))
}

// short is an error's text, cut.
func short(err error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) > maxReasonBytes {
		text = strings.ToValidUTF8(text[:maxReasonBytes], "") + "..."
	}
	return text
}

// Close ends the connections. No Send may be running or follow.
func (t *Transport) Close(ctx context.Context) error {
	select {
	case t.opening <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.opening }()
	if t.client == nil {
		return nil
	}
	client := t.client
	t.client = nil
	return client.Close()
}
