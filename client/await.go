package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	"abide/protocol"
)

// awaitGroup is the group of the streams on which Await listens; each has an id of its own.
const awaitGroup = "abide-await"

// How often Await looks by itself. A message tells it sooner, but servers may lose one; where no message can come it
// looks more often.
const (
	firstLook       = 250 * time.Millisecond
	maxLook         = 5 * time.Second
	maxLookUnheard  = time.Second
	listenerAddress = "poll://uni@" + awaitGroup + "/"
)

// Await waits until a promise is settled and returns it; the error is ctx's if that ends first, an *Error 404 if there
// is no such promise. It registers a listener, opens a stream for its message, and also reads the promise now and then,
// so that it needs no message to end. Once it waits, it goes on through outages of the server. Each call has a stream of its own: to wait for many promises at once, register
// listeners for one Poll.
func (c *Client) Await(ctx context.Context, id string) (protocol.Promise, error) {
	p, err := c.PromiseGet(ctx, id)
	if err != nil || p.State != protocol.Pending {
		return p, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	me := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	settled := make(chan struct{}, 1)
	deaf := make(chan struct{})
	go func() {
		defer close(deaf)
		_ = c.Poll(ctx, awaitGroup, me, func(m protocol.Message) error {
			if m.Kind == protocol.MessageUnblock && m.Promise.ID == id {
				select {
				case settled <- struct{}{}:
				default:
				}
			}
			return nil
		})
	}()
	defer func() { cancel(); <-deaf }()
	longest := maxLook
	// Registering is what arms the timeout of a promise that nobody has waited for yet. A token that may not do so can
	// still read.
	p, err = c.PromiseRegisterListener(ctx, id, listenerAddress+url.PathEscape(me))
	if refused := (*Error)(nil); errors.As(err, &refused) && refused.Status != protocol.StatusNotFound {
		p, longest = protocol.Promise{State: protocol.Pending}, maxLookUnheard
	} else if err != nil || p.State != protocol.Pending {
		return p, err
	}
	return c.look(ctx, id, settled, deaf, longest)
}

// look reads a promise until it is settled: when told, and after ever longer pauses.
func (c *Client) look(ctx context.Context, id string, settled, deaf <-chan struct{}, longest time.Duration) (protocol.Promise, error) {
	var last error
	for pause := firstLook; ; pause = min(2*pause, longest) {
		timer := time.NewTimer(min(pause, longest))
		select {
		case <-settled:
		case <-deaf:
			deaf, longest = nil, maxLookUnheard
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return protocol.Promise{}, errors.Join(ctx.Err(), last)
		}
		timer.Stop()
		p, err := c.PromiseGet(ctx, id)
		refused := Status(err) >= 400 && Status(err) < 500
		if refused || err == nil && p.State != protocol.Pending {
			return p, err
		}
		last = err
	}
}
