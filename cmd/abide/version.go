package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"abide/protocol"
)

// release is the version of this tree; a release build sets it with -ldflags "-X main.release=...".
var release = "0.1.0-dev"

// versionCommand prints what the binary is.
type versionCommand struct {
	JSON bool `name:"json" help:"Print one JSON object."`
}

// versionReport is the output of abide version --json; its fields are only ever added to.
type versionReport struct {
	Version  string `json:"version"`
	Protocol string `json:"protocol"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Commit   string `json:"commit"`   // empty if the build did not record one
	Modified bool   `json:"modified"` // the tree differed from the commit
}

// Run prints the report.
func (c *versionCommand) Run(in surroundings) error {
	r := describeBuild()
	if c.JSON {
		return json.NewEncoder(in.stdout).Encode(r)
	}
	commit := r.Commit
	switch {
	case commit == "":
		commit = "not recorded"
	case r.Modified:
		commit += " with local changes"
	}
	_, err := fmt.Fprintf(in.stdout, "abide %s\nprotocol %s\n%s %s\ncommit %s\n", r.Version, r.Protocol, r.Go, r.Platform, commit)
	return err
}

func buildVersion() string { return release }

func describeBuild() versionReport {
	r := versionReport{
		Version:  buildVersion(),
		Protocol: protocol.Version,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			switch setting.Key {
			case "vcs.revision":
				r.Commit = setting.Value
			case "vcs.modified":
				r.Modified = setting.Value == "true"
			}
		}
	}
	return r
}
