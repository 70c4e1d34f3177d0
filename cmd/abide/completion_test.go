package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCandidates(t *testing.T) {
	for _, c := range []struct{ words, want string }{ // the last word is what follows the last blank
		{"promi", "promises"},
		{"promises reg", "register-callback register-listener"},
		{"promise ca", "cancel"},
		{"schedules create --promise-t", "--promise-timeout --promise-tags"},
		{"tasks get --ser", "--server"},
		{"-S", ""},
		{"tasks -S http://x con", "continue"},
		{"tasks --server=http://x con", "continue"},
		{"tasks --utc con", "continue"},
		{"tasks get t ", ""},
		{"completion ", "bash zsh fish"},
		{"completion f", "fish"},
		{"promises search --state rejected_", "rejected_canceled rejected_timedout"},
		{"serve --storage-type ", "sqlite postgres mysql"},
		{"serve --server-port ", ""},
		{"bench fl", "flood"},
		{"nonsense --nonsense ", ""},
		{"__", ""},
	} {
		args := append([]string{"__complete", "bash", "--"}, strings.Split(c.words, " ")...)
		r := runWith(nil, args...)
		if got := strings.Join(strings.Fields(r.stdout), " "); got != c.want || r.code != exitOK {
			if c.words == "nonsense --nonsense " && strings.Contains(got, "serve") {
				continue // an unknown word may be a mistake: the commands are still offered
			}
			t.Errorf("%q: %q, want %q (exit %d, %s)", c.words, got, c.want, r.code, r.stderr)
		}
	}
	if r := runWith(nil, "__complete", "zsh", "--", "tre"); r.stdout != "tree:Show a promise and everything that was called below it.\n" {
		t.Errorf("zsh: %q", r.stdout)
	}
	if r := runWith(nil, "__complete", "fish", "--", "tre"); r.stdout != "tree\tShow a promise and everything that was called below it.\n" {
		t.Errorf("fish: %q", r.stdout)
	}
}

// TestWordsAreAccepted: whatever completion offers for the values of a setting, the setting takes.
func TestWordsAreAccepted(t *testing.T) {
	for flag, further := range map[string]string{
		"--level": "", "--log-format": "", "--observability-otlp-protocol": "",
		"--transports-http-push-auth-mode": "--transports-http-push-auth-token t --transports-http-push-auth-secret whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz --transports-http-push-allow a.example",
		"--storage-type":                   "--storage-postgres-url postgres://a@b/c --storage-mysql-url mysql://a@b/c",
	} {
		offered := strings.Fields(runWith(nil, "__complete", "bash", "--", "serve", flag, "").stdout)
		if len(offered) < 2 {
			t.Errorf("%s: %q", flag, offered)
		}
		for _, word := range offered {
			r := runWith(nil, append([]string{"config", "check", "--config", "", flag, word}, strings.Fields(further)...)...)
			if strings.Contains(r.stderr, word+"\" is") || strings.Contains(r.stderr, "is \""+word) || strings.Contains(r.stderr, "must be one of") {
				t.Errorf("%s %s: %s", flag, word, r.stderr)
			}
		}
	}
	modes := strings.Fields(runWith(nil, "__complete", "bash", "--", "bench", "").stdout)
	says, _, _ := strings.Cut(runWith(nil, "bench", "nonsense").stderr, "\n")
	if _, list, _ := strings.Cut(says, "use one of "); len(strings.Split(list, ",")) != len(modes) {
		t.Errorf("%d modes are offered: %q, and there are %s", len(modes), modes, says)
	}
	for _, mode := range modes {
		if !strings.Contains(says, mode) {
			t.Errorf("%s is no mode: %s", mode, says)
		}
	}
}

// TestScriptsInTheirShells: each shell that is here accepts its script, and bash completes with it.
func TestScriptsInTheirShells(t *testing.T) {
	for shell := range completionScripts {
		r := runWith(nil, "completion", shell)
		if r.code != exitOK || !strings.Contains(r.stdout, "__complete "+shell) {
			t.Errorf("%s: %+v", shell, r)
		}
		program, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not installed; its script is not tried", shell)
			continue
		}
		file := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(file, []byte(r.stdout), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(program, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", shell, err, out)
		}
		if shell != "bash" {
			continue
		}
		// A stand-in for the binary: it prints what it was asked.
		try := `abide() { printf '%s\n' "$@"; }; source ` + file + `; COMP_WORDS=(abide promises 'x y' ''); COMP_CWORD=3; _abide; printf '[%s]' "${COMPREPLY[@]}"`
		out, err := exec.Command(program, "-c", try).CombinedOutput()
		if err != nil || string(out) != "[__complete][bash][--][promises][x y]" && string(out) != "[__complete][bash][--][promises][x y][]" {
			t.Errorf("bash: %v: %s", err, out)
		}
	}
}

func TestHelpOfClientCommands(t *testing.T) {
	for _, command := range []string{"promises", "promises create", "tasks", "tasks explain", "schedules", "schedules preview", "invoke", "wait", "tree", "mcp", "completion"} {
		r := runWith(nil, append(strings.Fields(command), "--help")...)
		if r.code != exitOK || r.stderr != "" {
			t.Errorf("%s: %+v", command, r)
		}
		golden(t, "help_"+strings.ReplaceAll(command, " ", "_")+".txt", r.stdout)
	}
}
