package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"abide/kv/kvbench"
	"abide/kv/sqlitekv"
)

// Numbers of keys in the modes of the store alone, unless told otherwise.
const (
	benchKeys      = 100_000
	benchKeysLarge = 1_000_000
)

// kvReport is what a run of a mode of the store alone prints; members are only ever added.
type kvReport struct {
	Mode      kvbench.Mode     `json:"mode"`
	Clients   int              `json:"clients"`
	ForMs     int64            `json:"forMs"`
	SizeBytes int              `json:"sizeBytes"`
	Seed      uint64           `json:"seed"`
	Keys      int              `json:"keys"`
	Version   string           `json:"version"`
	Go        string           `json:"go"`
	OS        string           `json:"os"`
	Arch      string           `json:"arch"`
	CPUs      int              `json:"cpus"`
	Figures   []kvbench.Figure `json:"figures"`
}

// ofStore tells whether the mode measures the store alone.
func (c *benchCommand) ofStore() bool {
	return slices.Contains(kvbench.Modes(), kvbench.Mode(c.Mode))
}

func (c *benchCommand) validateStore() error {
	switch {
	case c.StorageType != "" || c.StoragePostgresURL != "" || c.StorageMySQLURL != "":
		return fmt.Errorf("%s measures SQLite's store: leave the storage flags out", c.Mode)
	case c.URL != "":
		return fmt.Errorf("%s measures a store inside this process: leave --url out", c.Mode)
	case c.Preload != 0:
		return fmt.Errorf("%s has no promises: use --keys instead of --preload", c.Mode)
	}
	return c.storeConfig("").Validate()
}

// storeConfig is the run on files below folder.
func (c *benchCommand) storeConfig(folder string) kvbench.Config {
	keys := c.Keys
	if keys == 0 {
		keys = benchKeys
		if kvbench.Mode(c.Mode) == kvbench.Size {
			keys = benchKeysLarge
		}
	}
	return kvbench.Config{
		Mode: kvbench.Mode(c.Mode), Clients: c.clients(defaultClients), For: c.For.duration(), SizeBytes: c.Size, Seed: c.Seed, Keys: keys,
		Open: func(name string) (*kvbench.Subject, error) { return openSubject(filepath.Join(folder, name)) },
	}
}

// openSubject makes a store, and a bare file of the same engine beside it.
func openSubject(path string) (*kvbench.Subject, error) {
	store, err := sqlitekv.Open(sqlitekv.Options{Path: path + ".db", Now: time.Now})
	if err != nil {
		return nil, err
	}
	bare, err := sqlitekv.OpenBare(sqlitekv.Options{Path: path + "-bare.db"})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &kvbench.Subject{
		Store:    store,
		Engine:   bare,
		Commits:  func() uint64 { return store.Stats().Commits },
		LogBytes: func() int64 { return store.Stats().WALBytes },
	}, nil
}

// runStore measures the store and prints the report.
func (c *benchCommand) runStore(ctx context.Context, in surroundings) error {
	if err := makeDevFolder(devFolder); err != nil {
		return err
	}
	folder, err := os.MkdirTemp(devFolder, "bench-")
	if err != nil {
		return fmt.Errorf("cannot make a folder for the data: %w", err)
	}
	defer os.RemoveAll(folder)
	config := c.storeConfig(folder)
	figures, err := kvbench.Run(ctx, config)
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	}
	return json.NewEncoder(in.stdout).Encode(kvReport{
		Mode: config.Mode, Clients: config.Clients, ForMs: config.For.Milliseconds(), SizeBytes: config.SizeBytes,
		Seed: config.Seed, Keys: config.Keys, Version: buildVersion(), Go: runtime.Version(), OS: runtime.GOOS,
		Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Figures: figures,
	})
}
