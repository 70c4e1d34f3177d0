package auth

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// fileInterval is how often files are read again.
	fileInterval = 5 * time.Second
	// firstRetry is the pause after the first failed fetch; each further one doubles it, up to Options.Refresh.
	firstRetry = 2 * time.Second
	// minRound is the least time between two rounds that unknown keys ask for: tokens with invented key names
	// are cheap to make, and the provider of the keys is not to pay for them.
	minRound = 10 * time.Second
	// maxKeyWait is how long a request waits for such a round, and maxKeyWaiting how many may.
	maxKeyWait    = 2 * time.Second
	maxKeyWaiting = 1024
)

// Reload reads every source now. The error tells what could not be loaded; the last good keys of it stay in force. It
// may be called while Run runs.
func (v *Verifier) Reload(ctx context.Context) error {
	return v.load(ctx, true)
}

// load reads the files, and in a whole round the URLs as well, and puts the keys in force, one round at a time.
func (v *Verifier) load(ctx context.Context, whole bool) error {
	v.loading.Lock()
	defer v.loading.Unlock()
	var errs []error
	changed := false
	for _, s := range v.sources {
		if s.far && !whole {
			continue
		}
		fresh, err := s.load(ctx)
		changed = changed || fresh
		if err != nil {
			errs = append(errs, err)
		}
	}
	if changed {
		errs = append(errs, v.enforce())
	}
	if whole {
		v.mu.Lock()
		close(v.round)
		v.round, v.endedAt = make(chan struct{}), v.o.Now()
		v.mu.Unlock()
	}
	return errors.Join(errs...)
}

// enforce puts the keys of all sources in force, if they are not too many.
func (v *Verifier) enforce() error {
	var sets []*KeySet
	for _, s := range v.sources {
		if s.set != nil {
			sets = append(sets, s.set)
		}
	}
	all, err := union(sets)
	if err != nil {
		return err
	}
	v.keys.Store(all)
	v.o.Log.Info("keys that verify tokens are loaded", "keys", all.Len())
	return nil
}

// awaitRound asks for a whole round and waits for its end, but not if there was one only just now, or if too many wait
// already.
func (v *Verifier) awaitRound(ctx context.Context) {
	v.mu.Lock()
	if v.o.Now().Sub(v.endedAt) < minRound || v.waiting >= maxKeyWaiting || len(v.sources) == 0 {
		v.mu.Unlock()
		return
	}
	v.waiting++
	ended := v.round
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		v.waiting--
		v.mu.Unlock()
	}()
	select {
	case v.wake <- struct{}{}:
	default: // it has been asked for
	}
	timer := time.NewTimer(maxKeyWait)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Run keeps the keys up to date until ctx ends: files every few seconds, a URL as Options.Refresh says, and both
// when a token names a key that is not known. What cannot be loaded is logged, ever more rarely, and
// tried again, a URL with growing pauses; the last good keys stay in force.
func (v *Verifier) Run(ctx context.Context) {
	nextFetch := v.o.Refresh
	for since := time.Duration(0); ; {
		pause := min(fileInterval, max(nextFetch-since, 0))
		timer := time.NewTimer(pause)
		asked := false
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-v.wake:
			asked = true
			timer.Stop()
		case <-timer.C:
		}
		since += pause
		whole := asked || since >= nextFetch
		err := v.load(ctx, whole)
		failures := v.failures(false)
		if err != nil && ctx.Err() == nil && failures&(failures-1) == 0 { // the first, second, fourth, ... in a row
			v.o.Log.Error("keys that verify tokens could not be loaded again; the last good ones stay in force", "error", err, "failures", failures)
		}
		if whole {
			since, nextFetch = 0, v.pause()
		}
	}
}

// failures is how often in a row a source could not be loaded: the worst of all, or of those that are fetched.
func (v *Verifier) failures(far bool) int {
	v.loading.Lock()
	defer v.loading.Unlock()
	worst := 0
	for _, s := range v.sources {
		if s.far || !far {
			worst = max(worst, s.failures)
		}
	}
	return worst
}

// pause is how long it is until the next fetch: with chance in it, so that many servers do not come at once.
func (v *Verifier) pause() time.Duration {
	failures := v.failures(true)
	d := v.o.Refresh
	if failures > 0 {
		d = min(d, firstRetry<<min(failures-1, 16))
	}
	return d - rand.N(d/10+1)
}
