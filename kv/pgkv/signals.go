package pgkv

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"abide/kv"
)

const (
	// maxPayloadBytes is what of a notification's 7,999 bytes is used.
	maxPayloadBytes = 7900
	// maxPayloads bounds the notifications of one commit. What is more is not told: hints may be lost.
	maxPayloads = 8
	// maxListenPause is the longest pause before another attempt to listen.
	maxListenPause = 15 * time.Second
)

// channel is where the signals of the store go; other stores of the database have others.
func (s *shared) channel() string { return fmt.Sprintf("abide_%016x", s.store) }

// packSignals makes the payloads of notifications: who sends, and each signal's topic and body with their lengths,
// in base64, because a payload is text.
func packSignals(writer uint64, signals []kv.Signal) []string {
	var payloads []string
	head := binary.BigEndian.AppendUint64(nil, writer)
	raw := head
	flush := func() {
		if len(raw) > len(head) {
			payloads = append(payloads, base64.RawStdEncoding.EncodeToString(raw))
		}
		raw = head[:len(head):len(head)]
	}
	for _, s := range signals {
		one := binary.AppendUvarint(nil, uint64(len(s.Topic)))
		one = append(one, s.Topic...)
		one = binary.AppendUvarint(one, uint64(len(s.Body)))
		one = append(one, s.Body...)
		if base64.RawStdEncoding.EncodedLen(len(raw)+len(one)) > maxPayloadBytes {
			flush()
		}
		if len(payloads) == maxPayloads {
			return payloads
		}
		raw = append(raw, one...)
	}
	flush()
	return payloads[:min(len(payloads), maxPayloads)]
}

// unpackSignals reads a payload. What is not one is nothing: anybody may notify.
func unpackSignals(payload string) (writer uint64, signals []kv.Signal) {
	raw, err := base64.RawStdEncoding.DecodeString(payload)
	if err != nil || len(raw) < 8 {
		return 0, nil
	}
	writer, raw = binary.BigEndian.Uint64(raw), raw[8:]
	next := func() (string, bool) {
		n, size := binary.Uvarint(raw)
		if size <= 0 || n > uint64(len(raw)-size) {
			return "", false
		}
		text := string(raw[size : size+int(n)])
		raw = raw[size+int(n):]
		return text, true
	}
	for len(raw) > 0 {
		topic, ok := next()
		if !ok {
			return writer, signals
		}
		body, ok := next()
		if !ok {
			return writer, signals
		}
		signals = append(signals, kv.Signal{Topic: topic, Body: body})
	}
	return writer, signals
}

// listener hands the signals of other servers on. They are hints: while the connection is down they are lost, and
// nothing is missed but time.
type listener struct {
	*shared
	config *pgconn.Config
	self   uint64
	hint   func([]kv.Signal)
	cancel context.CancelFunc
	ended  chan struct{}
}

func (l *listener) start() {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel, l.ended = cancel, make(chan struct{})
	config := l.config.Copy()
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { l.take(n.Payload) }
	l.config = config
	go l.run(ctx)
}

func (l *listener) close() {
	l.cancel()
	<-l.ended
}

func (l *listener) take(payload string) {
	writer, signals := unpackSignals(payload)
	if writer == l.self || len(signals) == 0 {
		return
	}
	l.stats.hintsGot.Add(1)
	l.hint(signals)
}

// run listens until ctx ends, with growing pauses between attempts.
func (l *listener) run(ctx context.Context) {
	defer close(l.ended)
	pause := firstPause
	for {
		listened, err := l.listen(ctx)
		l.stats.listening.Store(false)
		if ctx.Err() != nil {
			return
		}
		if listened {
			pause = firstPause
		}
		if pause == firstPause {
			l.log.Warn("notifications of other servers do not arrive; their work is found by polling meanwhile", "error", redacted{err})
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, maxListenPause)
	}
}

// listen listens until something fails.
func (l *listener) listen(ctx context.Context) (listened bool, err error) {
	c, err := connect(ctx, l.config, nil)
	if err != nil {
		return false, err
	}
	defer c.close()
	if c.pooled {
		return false, fmt.Errorf("a connection pooler answers, and passes no notifications on: give the server's own URL for listening")
	}
	// Whoever listens is idle by trade, and must not be ended for it.
	if _, err := c.pg.Exec(ctx, "SET idle_session_timeout = 0; LISTEN "+l.channel()).ReadAll(); err != nil {
		return false, err
	}
	l.stats.listening.Store(true)
	for {
		if err := c.pg.WaitForNotification(ctx); err != nil {
			return true, err
		}
	}
}
