package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"abide/client"
	"abide/protocol"
)

var errEnough = errors.New("enough")

// poll runs Poll against a server whose n-th stream answers with answer(n), until want messages have come.
func poll(t *testing.T, want int, answer func(n int64, w http.ResponseWriter, r *http.Request)) ([]protocol.Message, error) {
	t.Helper()
	var streams atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(streams.Add(1), w, r)
	}))
	defer s.Close()
	c, err := client.New(client.Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []protocol.Message
	err = c.Poll(ctx, "g/1", "p 2", func(m protocol.Message) error {
		if got = append(got, m); len(got) == want {
			return errEnough
		}
		return nil
	})
	return got, err
}

func execute(n int) string {
	return string(protocol.AppendExecute(nil, "http://x", protocol.TaskRef{ID: fmt.Sprint("é", n), Version: int64(n)}))
}

func TestPollReadsMessages(t *testing.T) {
	large := promise
	large.Value = protocol.MakeValue(nil, strings.Repeat("é", 100_000))
	stream := ": hello\n\n" +
		"data: " + execute(1) + "\n\n" +
		"event: other\ndata: " + execute(9) + "\n\n" +
		"data: {\"kind\":\"later\",\"head\":{},\"data\":{}}\n\n" +
		"data: not JSON\n\n" +
		"id: 4\r\ndata:" + execute(2) + "\r\n\r\n" +
		"event: message\ndata: " + strings.Replace(execute(3), ",", "\ndata: ,", 1) + "\n\n" +
		"data: " + string(protocol.AppendUnblock(nil, large)) + "\n\n"
	got, err := poll(t, 4, func(_ int64, w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/poll/g%2F1/p%202" || r.Header.Get("Accept") != "text/event-stream" {
			t.Errorf("asked for %s, accepting %s", r.URL.EscapedPath(), r.Header.Get("Accept"))
		}
		_, _ = io.WriteString(w, stream)
	})
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	for i, want := range []string{"é1", "é2", "é3"} {
		if got[i].Task.ID != want || got[i].Kind != protocol.MessageExecute {
			t.Errorf("message %d is %+v", i, got[i])
		}
	}
	want, _ := large.Value.Data()
	if data, ok := got[3].Promise.Value.Data(); got[3].Promise.ID != promise.ID || !ok || data != want {
		t.Errorf("the unblock message is of %q, with %d bytes of data", got[3].Promise.ID, len(data))
	}
}

func TestPollConnectsAgain(t *testing.T) {
	got, err := poll(t, 3, func(n int64, w http.ResponseWriter, r *http.Request) {
		switch n {
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 4: // cut off in the middle of a message
			_, _ = io.WriteString(w, "data: "+execute(8)+"\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		default:
			_, _ = io.WriteString(w, "data: "+execute(int(n))+"\n\n")
		}
	})
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	for i, want := range []int64{1, 3, 5} {
		if got[i].Task.Version != want {
			t.Errorf("message %d is %+v", i, got[i])
		}
	}
}

func TestPollEndsWhenRefused(t *testing.T) {
	_, err := poll(t, 1, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "who are you", http.StatusUnauthorized)
	})
	if err == nil || !strings.Contains(err.Error(), "401") || !strings.Contains(err.Error(), "who are you") {
		t.Errorf("error %v", err)
	}
}

func TestPollEndsWithItsContext(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	c, err := client.New(client.Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Poll(ctx, "g", "p", func(protocol.Message) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
