package kv_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"abide/kv"
)

// scripted answers each Update with the next error of a list.
type scripted struct {
	kv.Store
	answers []error
	calls   int
}

func (s *scripted) Update(context.Context, kv.Hints, func(kv.Tx) error) (kv.Position, error) {
	s.calls++
	if err := s.answers[min(s.calls, len(s.answers))-1]; err != nil {
		return kv.Position{}, err
	}
	return kv.NewPosition(1, uint64(s.calls)), nil
}

func conflict() error { return &kv.Error{Is: kv.ErrConflict, Store: "test", Op: "commit"} }

func TestRunRepeatsConflictsOnly(t *testing.T) {
	own := errors.New("the closure's own")
	for name, tc := range map[string]struct {
		answers []error
		calls   int
		is      error
	}{
		"success":             {[]error{nil}, 1, nil},
		"two conflicts":       {[]error{conflict(), conflict(), nil}, 3, nil},
		"conflict, then own":  {[]error{conflict(), own}, 2, own},
		"unknown commit":      {[]error{&kv.Error{Is: kv.ErrCommitUnknown}, nil}, 1, kv.ErrCommitUnknown},
		"overloaded":          {[]error{&kv.Error{Is: kv.ErrOverloaded}, nil}, 1, kv.ErrOverloaded},
		"unavailable":         {[]error{&kv.Error{Is: kv.ErrUnavailable}, nil}, 1, kv.ErrUnavailable},
		"conflict as a cause": {[]error{fmt.Errorf("engine: %w", conflict()), nil}, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{answers: tc.answers}
			at, err := kv.Run(context.Background(), s, kv.Hints{}, nil)
			if !errors.Is(err, tc.is) || s.calls != tc.calls || (err == nil) == at.IsZero() {
				t.Errorf("%d calls, %v, %v; want %d calls, %v", s.calls, at, err, tc.calls, tc.is)
			}
		})
	}
}

// The last conflict, and not the context's error, tells the caller that nothing was committed.
func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := &scripted{answers: []error{conflict()}}
	if _, err := kv.Run(ctx, s, kv.Hints{}, nil); !errors.Is(err, kv.ErrConflict) {
		t.Errorf("error %v", err)
	}
	if s.calls == 0 {
		t.Error("no attempt was made")
	}
}

func TestErrorNamesWhatAPersonNeeds(t *testing.T) {
	cause := errors.New("disk on fire")
	err := error(&kv.Error{Is: kv.ErrLimit, Store: "sqlite", Op: "put", KeyKind: "object", Detail: "a value of 3 bytes; at most 2", Err: cause})
	want := "sqlite put of object: over a limit of the storage contract (a value of 3 bytes; at most 2): disk on fire"
	if err.Error() != want {
		t.Errorf("the message is %q, want %q", err, want)
	}
	if !errors.Is(err, kv.ErrLimit) || !errors.Is(err, cause) || errors.Is(err, kv.ErrConflict) {
		t.Error("the identities are wrong")
	}
	if bare := (&kv.Error{Is: kv.ErrClosed, Store: "memory", Op: "view"}); bare.Error() != "memory view: the store is closed" || !errors.Is(bare, kv.ErrClosed) {
		t.Errorf("the message is %q", bare)
	}
}
