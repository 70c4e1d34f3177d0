// Package kvbench measures a store of the kv contract from inside the process, beside the engine without the
// contract: what group commit, limits, overlays and positions cost, and how readers and writers bear each other.
//
// A figure that compares two things is a ratio of rounds that alternate within one run, so that a machine which
// others share, or that gets warm, slows both. Like internal/bench it counts and times and asserts nothing; what a
// figure should be stands beside it.
package kvbench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"abide/kv"
)

// Mode is what a run measures.
type Mode string

// The modes.
const (
	// Write commits transactions of five puts of adjacent keys from many writers; the engine gets the same
	// puts in transactions of 64 times five. Once more with one journal entry in each.
	Write Mode = "kv-write"
	// Read gets and scans.
	Read Mode = "kv-read"
	// Mixed reads alone, then under a writer at full speed with a slow reader that pages through everything.
	Mixed Mode = "kv-mixed"
	// Size does the same in a small store and in a large one, and walks through the large one.
	Size Mode = "kv-size"
)

// Modes lists every mode.
func Modes() []Mode { return []Mode{Write, Read, Mixed, Size} }

// Limits of a Config.
const (
	// MaxClients bounds Config.Clients; the writers of Mixed are as many.
	MaxClients = 10_000
	// MaxKeys bounds Config.Keys.
	MaxKeys = 100_000_000
	// MinSizeBytes makes room in a value for what makes each one different: an engine may skip a write that
	// changes nothing.
	MinSizeBytes = 8
)

// putsPerTx is how many keys a transaction of the write load puts.
const putsPerTx = 5

// batchTx is how many transactions the engine without the contract is given in one of its own, which is about
// what group commit makes of 64 writers.
const batchTx = 64

// Engine is the engine without the contract, on a file of its own with the same layout. One goroutine uses it.
type Engine interface {
	// Write puts entries, in ascending order of keys, in one durable transaction.
	Write(entries []kv.Entry) error
	// Get reads keys in one read transaction and returns how many there were.
	Get(keys [][]byte) (found int, err error)
	// Scan reads the first limit entries of r in one read transaction and returns how many there were.
	Scan(r kv.Range, limit int) (rows int, err error)
	Close() error
}

// Subject is what is measured: an empty store, and an empty engine for comparison.
type Subject struct {
	Store  kv.Store
	Engine Engine
	// Commits counts the store's physical transactions, each of which is one sync.
	Commits func() uint64
	// LogBytes is the size of the store's write-ahead log.
	LogBytes func() int64
}

// Config says what to run.
type Config struct {
	Mode      Mode
	Clients   int           // concurrent writers, 1 to MaxClients
	For       time.Duration // measured time, above 0; Mixed takes half as much again for the reader alone
	SizeBytes int           // of each value, MinSizeBytes to kv.MaxValueBytes
	Seed      uint64        // fixes the keys
	Keys      int           // in the store, in the large one of Size; 1 to MaxKeys
	// Open makes an empty subject; the run closes it. It is called with a name for its files.
	Open func(name string) (*Subject, error)
}

// Validate says what is wrong with c, nil if nothing is.
func (c Config) Validate() error {
	switch {
	case !slices.Contains(Modes(), c.Mode):
		return fmt.Errorf("unknown mode %q: use one of %s", c.Mode, ModeNames())
	case c.Clients < 1 || c.Clients > MaxClients:
		return fmt.Errorf("%d clients: use 1 to %d", c.Clients, MaxClients)
	case c.For <= 0:
		return errors.New("the measured time must be longer than 0")
	case c.SizeBytes < MinSizeBytes || c.SizeBytes > kv.MaxValueBytes:
		return fmt.Errorf("values of %d bytes: use %d to %d", c.SizeBytes, MinSizeBytes, kv.MaxValueBytes)
	case c.Keys < 1 || c.Keys > MaxKeys:
		return fmt.Errorf("%d keys: use 1 to %d", c.Keys, MaxKeys)
	}
	return nil
}

// ModeNames lists the modes for a person.
func ModeNames() string {
	var names []string
	for _, m := range Modes() {
		names = append(names, string(m))
	}
	return strings.Join(names, ", ")
}

// Figure is one thing that was measured.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`           // "ratio", "/s", "us", "bytes", ...
	Goal  string  `json:"goal,omitempty"` // what it should be, as in ">= 0.8"; empty for a figure that is only told
}

// Run runs c and returns its figures. An error means that there is nothing to report.
func Run(ctx context.Context, c Config) ([]Figure, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r := &run{Config: c, ctx: ctx}
	modes := map[Mode]func() error{Write: r.write, Read: r.read, Mixed: r.mixed, Size: r.size}
	if err := modes[c.Mode](); err != nil {
		return nil, err
	}
	return r.figures, nil
}

// run is a run in progress.
type run struct {
	Config
	ctx     context.Context
	figures []Figure
}

// figure adds one to the report. A ratio to nothing, as where a run was too short for a single read, is left out.
func (r *run) figure(name string, value float64, unit, goal string) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	r.figures = append(r.figures, Figure{Name: name, Value: value, Unit: unit, Goal: goal})
}

// with opens a subject for the time of fn.
func (r *run) with(name string, fn func(*Subject) error) error {
	s, err := r.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(fn(s), s.Store.Close(), s.Engine.Close())
}

// rounds is how often two things that are compared alternate.
const rounds = 16

// rate does operations until d has passed and returns how many there were a second. op returns how many it was.
func (r *run) rate(d time.Duration, op func() (int, error)) (float64, error) {
	start, n := time.Now(), 0
	for {
		done, err := op()
		if err != nil {
			return 0, err
		}
		n += done
		if passed := time.Since(start); passed >= d {
			return float64(n) / passed.Seconds(), r.ctx.Err()
		}
	}
}

// contender is one of several loads that are compared.
type contender struct {
	name string
	// load runs for d and returns its rate.
	load func(d time.Duration) (float64, error)
}

// compare lets contenders alternate and returns the upper quartile of each one's rates: what else the machine does
// only ever takes away. The first round is not counted.
func (r *run) compare(contenders []contender) (quartiles []float64, err error) {
	each := r.For / time.Duration(rounds*len(contenders))
	rates := make([][]float64, len(contenders))
	for round := range rounds + 1 {
		for i, c := range contenders {
			rate, err := c.load(each)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			if round > 0 {
				rates[i] = append(rates[i], rate)
			}
		}
	}
	for i, c := range contenders {
		slices.Sort(rates[i])
		quartiles = append(quartiles, rates[i][rounds*3/4])
		r.figure(c.name, quartiles[i], "/s", "")
	}
	return quartiles, nil
}
