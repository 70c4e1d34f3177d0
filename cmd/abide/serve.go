package main

import (
	"net"
)

// serveCommand runs a server for production.
type serveCommand struct {
	ServerBind        string `setting:"server.bind" default:"0.0.0.0" placeholder:"ADDRESS" help:"Address to listen on."`
	StorageSQLitePath string `setting:"storage.sqlite.path" name:"storage-sqlite-path" default:"abide.db" placeholder:"FILE" help:"The data file of the engine sqlite."`

	serverSettings
}

// Validate checks what only serve has, and the shared settings.
func (c *serveCommand) Validate() error {
	if err := checkBind(c.ServerBind); err != nil {
		return err
	}
	if err := checkDataFile(c.StorageSQLitePath); err != nil {
		return err
	}
	return c.serverSettings.Validate()
}

// Run serves until a signal.
func (c *serveCommand) Run(in surroundings, env *environment) error {
	logger := c.logger(in.stderr)
	env.warn(logger)
	store, err := c.address(c.StorageSQLitePath)
	if err != nil {
		return err
	}
	listener, err := listen(c.ServerBind, c.ServerPort)
	if err != nil {
		return err
	}
	return runServer(in, logger, serverOptions{
		settings:  c.serverSettings,
		listeners: []net.Listener{listener},
		store:     store,
		bind:      c.ServerBind,
		debug:     c.Debug,
	})
}
