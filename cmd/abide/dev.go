package main

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// The folder that keeps a project's development data, and the file in it.
const (
	devFolder = ".abide"
	devFile   = "dev.db"
)

// devCommand runs a server for the developer of this machine. Its store and its address come from flags
// alone (see commands): a production server's variables in the same shell must not make it open production's data or the
// whole network.
type devCommand struct {
	ServerBind        string `placeholder:"ADDRESS" help:"Address to listen on; by default the loopback addresses. Anybody who reaches this server may delete everything in it."`
	StorageSQLitePath string `name:"storage-sqlite-path" placeholder:"FILE" xor:"data" help:"The data file; by default .abide/dev.db in the current folder."`
	Ephemeral         bool   `xor:"data" help:"Keep the data in a temporary folder that is removed at the end."`

	serverSettings
}

// Validate checks what only dev has, and the shared settings.
func (c *devCommand) Validate() error {
	if c.ServerBind != "" {
		if err := checkBind(c.ServerBind); err != nil {
			return err
		}
	}
	if c.StorageSQLitePath != "" {
		if err := checkDataFile(c.StorageSQLitePath); err != nil {
			return err
		}
	}
	return c.serverSettings.Validate()
}

// Run serves until a signal.
func (c *devCommand) Run(in surroundings, env *environment) error {
	logger := c.logger(in.stderr)
	env.warn(logger)
	store, remove, err := c.prepareStore()
	if err != nil {
		return err
	}
	defer remove()
	listeners, err := c.listen()
	if err != nil {
		return err
	}
	note := ""
	if c.Ephemeral {
		note = " (removed at the end)"
	}
	fmt.Fprintf(in.stdout, "%-14s %s%s\npoint SDKs at: RESONATE_URL=%s\n", store.noun()+":", store, note, c.baseURL(portOf(listeners[0])))
	return runServer(in, logger, serverOptions{
		settings:  c.serverSettings,
		listeners: listeners,
		store:     store,
		bind:      cmp.Or(c.ServerBind, "127.0.0.1"),
		debug:     true,
		hosts:     c.hosts(),
	})
}

// hosts are the names of a server that only its own machine reaches. With an address chosen by the developer
// any name may be one.
func (c *devCommand) hosts() []string {
	if c.ServerBind != "" {
		return nil
	}
	names := []string{"localhost", strings.ToLower(c.ServerHost)}
	if u, err := url.Parse(c.ServerURL); err == nil && u.Hostname() != "" {
		names = append(names, strings.ToLower(u.Hostname()))
	}
	return names
}

func (c *devCommand) listen() ([]net.Listener, error) {
	if c.ServerBind == "" {
		return listenLoopback(c.ServerPort)
	}
	listener, err := listen(c.ServerBind, c.ServerPort)
	return []net.Listener{listener}, err
}

// prepareStore says which store is served, and gives the function that removes what must not stay.
func (c *devCommand) prepareStore() (a storeAddress, remove func(), err error) {
	if a, err = c.address(""); err != nil || a.engine != engineSQLite {
		return a, func() {}, err
	}
	a.place, remove, err = c.prepareData()
	return a, remove, err
}

// prepareData says where the data file is, makes the folders that are dev's own, and gives the function
// that removes what must not stay.
func (c *devCommand) prepareData() (dataFile string, remove func(), err error) {
	switch {
	case c.Ephemeral:
		folder, err := os.MkdirTemp("", "abide-dev-")
		if err != nil {
			return "", nil, fmt.Errorf("cannot make a temporary folder: %w", err)
		}
		return filepath.Join(folder, devFile), func() { _ = os.RemoveAll(folder) }, nil
	case c.StorageSQLitePath != "":
		dataFile, err = filepath.Abs(c.StorageSQLitePath)
		return dataFile, func() {}, err
	}
	if err := makeDevFolder(devFolder); err != nil {
		return "", nil, err
	}
	dataFile, err = filepath.Abs(filepath.Join(devFolder, devFile))
	return dataFile, func() {}, err
}

// makeDevFolder makes the folder unless it is there, and has git ignore all of it: a project that tries
// abide shall not find a database in its next commit.
func makeDevFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("cannot make the folder %s for the data (choose a file with --storage-sqlite-path, or --ephemeral): %w", folder, err)
	}
	ignore := filepath.Join(folder, ".gitignore")
	if _, err := os.Stat(ignore); err == nil {
		return nil
	}
	if err := os.WriteFile(ignore, []byte("*\n"), 0o600); err != nil {
		return fmt.Errorf("cannot write %s: %w", ignore, err)
	}
	return nil
}
