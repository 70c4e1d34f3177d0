package main

import (
	"io"
	"log/slog"
)

// newLogger logs text lines at or above level to w. Nobody who logs hands it payloads.
func newLogger(w io.Writer, level logLevel) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.Level(level)}))
}

// warn logs the variables that look like settings and are none: most often a typing mistake, or a setting
// of the reference server that this version does not have. It names the configuration file, too: one that is found by
// search may be another than was thought.
func (e *environment) warn(logger *slog.Logger) {
	for _, name := range e.unknown() {
		logger.Warn("environment variable is not a setting of this version and is ignored", "name", name)
	}
	if e.file == nil || e.file.path == "" {
		return
	}
	logger.Info("configuration file", "path", e.file.path)
	for _, s := range e.file.ignored {
		logger.Warn("setting of the configuration file has no effect in this version", "place", e.file.place(s))
	}
}
