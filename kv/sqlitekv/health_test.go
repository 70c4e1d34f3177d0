package sqlitekv

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"abide/kv"
)

// await waits for something that the probe brings about.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after a minute", what)
		}
	}
}

func TestAFullDiskIsProbedWithoutTraffic(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	f := &faults{}
	s := openFaulty(t, path, f)
	if err := s.Writable(); err != nil {
		t.Errorf("a new store: %v", err)
	}
	f.set(func(f *faults) { f.walWrite, f.dbWrite = syscall.ENOSPC, syscall.ENOSPC })
	if _, err := set(s, "a", "1"); !errors.Is(err, kv.ErrUnavailable) {
		t.Fatalf("with a full disk: %v", err)
	}
	if err := s.Writable(); !errors.Is(err, errDiskFull) {
		t.Errorf("with a full disk the store says %v", err)
	}
	tried := f.failures()
	await(t, "a probe", func() bool { return f.failures() > tried })
	if err := s.Writable(); !errors.Is(err, errDiskFull) {
		t.Errorf("after a probe that failed the store says %v", err)
	}
	f.set(func(f *faults) { f.walWrite, f.dbWrite = nil, nil })
	await(t, "room again", func() bool { return s.Writable() == nil })
	if _, err := set(s, "a", "2"); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if left, err := filepath.Glob(path + ".probe"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A commit that works while the disk is full does not make the store writable: it happened to fit.
func TestOnlyTheProbeSaysWritable(t *testing.T) {
	t.Parallel()
	f := &faults{}
	s := openFaulty(t, filepath.Join(t.TempDir(), "a.db"), f)
	f.set(func(f *faults) { f.walWrite = syscall.ENOSPC })
	if _, err := set(s, "a", "1"); !errors.Is(err, kv.ErrUnavailable) {
		t.Fatal(err)
	}
	f.set(func(f *faults) { f.walWrite = nil })
	if _, err := set(s, "a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Writable(); err == nil {
		t.Error("writable before a probe")
	}
	await(t, "the probe", func() bool { return s.Writable() == nil })
}

func TestAPoisonedHandleIsRepairedWithoutTraffic(t *testing.T) {
	t.Parallel()
	f := &faults{lose: true}
	s := openFaulty(t, filepath.Join(t.TempDir(), "a.db"), f)
	f.set(func(f *faults) { f.walSync = syscall.EIO })
	_, err := set(s, "a", "1")
	var unknown *kv.Error
	if !errors.Is(err, kv.ErrCommitUnknown) || !errors.As(err, &unknown) {
		t.Fatal(err)
	}
	if err := s.Writable(); !errors.Is(err, kv.ErrCommitUnknown) || errors.Is(err, errDiskFull) {
		t.Errorf("after a sync that failed the store says %v", err)
	}
	f.set(func(f *faults) { f.walSync = nil })
	await(t, "the repair", func() bool { return s.Writable() == nil })
	if outcome, _, err := s.Resolve(context.Background(), unknown.Token); outcome != kv.OutcomeNotCommitted || err != nil {
		t.Errorf("resolved: %v, %v", outcome, err)
	}
}

func TestAProbeThatACrashLeftIsRemoved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	if err := os.WriteFile(path+probeSuffix, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	openAt(t, Options{Path: path})
	if _, err := os.Stat(path + probeSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
