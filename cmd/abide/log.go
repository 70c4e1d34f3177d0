package main

import (
	"io"
	"log/slog"
)

// loggingSettings say what a server logs and how. (docs/logging.md)
type loggingSettings struct {
	Level     logLevel `setting:"level" default:"info" words:"debug,info,warn,error,off" placeholder:"LEVEL" help:"What is logged: debug, info, warn, error or off."`
	LogFormat string   `setting:"observability.log_format" name:"log-format" default:"text" enum:"text,json" placeholder:"FORMAT" help:"How it is logged: text, or json with an object a line."`
}

// logger is the log of a server.
func (s *loggingSettings) logger(w io.Writer) *slog.Logger {
	if s.LogFormat != "json" {
		return newLogger(w, s.Level)
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.Level(s.Level), ReplaceAttr: readable}))
}

// readable writes spans of time as people do: JSON would have them in nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// newLogger logs text lines at or above level to w. Nobody who logs hands it payloads or secrets. There are no colours: a
// log is read by programs as well.
func newLogger(w io.Writer, level logLevel) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.Level(level)}))
}

// warn logs the variables that look like settings and are none: most often a typing mistake, or a setting
// of the reference server that this version does not have. It names the configuration file, too: one that is found by
// search may be another than was thought.
func (e *environment) warn(logger *slog.Logger) {
	for _, name := range e.unknown() {
		rest, _ := splitPrefix(name)
		logger.Warn("environment variable is not a setting of this version and is ignored"+e.didYouMean(keyOf(rest)), "name", name)
	}
	if e.file == nil || e.file.path == "" {
		return
	}
	logger.Info("configuration file", "path", e.file.path)
	for _, s := range e.file.ignored {
		logger.Warn("setting of the configuration file has no effect in this version", "place", e.file.place(s))
	}
}
