// Command abide is a durable-execution server that speaks the Distributed Async Await protocol, and the
// tools around it. It is the only reader of flags and of the environment, and the only importer of
// storage backends: everything below it is handed its options.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Exit codes of every subcommand.
const (
	exitOK      = 0
	exitFailure = 1 // it was understood and failed: one line "Fatal: <reason>"; or abide check has found something
	exitUsage   = 2 // an unknown flag or subcommand, a bad value: nothing was started
)

// commands is the whole command line. The order is that of the help.
type commands struct {
	Serve    serveCommand    `cmd:"" help:"Run the server. Data is kept in abide.db unless told otherwise."`
	Dev      devCommand      `cmd:"" flagsalone:"storage." help:"Run a server for development on this machine: loopback only, data in .abide/, debug requests allowed."`
	Check    checkCommand    `cmd:"" help:"Check a store whose server does not run, from end to end; on request, repair its indexes."`
	Copy     copyCommand     `cmd:"" help:"Move everything in a store into an empty one of any engine, and check that it arrived. Servers of neither may run."`
	Backup   backupCommand   `cmd:"" help:"Copy a data file as it is at one instant, while its server runs."`
	Migrate  migrateCommand  `cmd:"" help:"Make the tables of a store without serving it, or print the SQL that makes them."`
	Bench    benchCommand    `cmd:"" flagsalone:"storage." help:"Measure a server and print one JSON object. It counts and times; it asserts nothing."`
	Simulate simulateCommand `cmd:"" help:"Run whole servers, workers and faults in simulated time, many seeds, and check everything they answer."`
	Cluster  clusterCommand  `cmd:"" help:"List the servers on one store: who lives, whose clock is off, how many workers each has."`
	Verify   verifyCommand   `cmd:"" help:"Check a running server from outside, request by request, against the protocol."`
	Ready    readyCommand    `cmd:"" help:"Ask whether a server can serve requests now, the one of this machine unless told otherwise. Exit 0 if it can, else 1 and the reason."`
	Config   configCommand   `cmd:"" help:"Look at the settings of a server: check them, or show them with where each comes from."`
	Token    tokenCommand    `cmd:"" help:"Make keys and tokens for development, and look into tokens."`
	Version  versionCommand  `cmd:"" help:"Print what this binary is."`

	clientCommands
}

// surroundings are what a subcommand may touch of the process that it runs in; tests hand in their own.
type surroundings struct {
	environ []string
	stdin   io.Reader // nil for none
	stdout  io.Writer
	stderr  io.Writer
	signals <-chan os.Signal // interrupt and termination
	abort   func()           // ends the process at once

	terminal bool           // stdout is one
	now      func() int64   // epoch milliseconds; nil for the machine's clock
	zone     *time.Location // of the person; nil for the machine's
}

// untilSignal is the context of a subcommand that an interrupt ends early. stop releases it.
func (in surroundings) untilSignal() (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(context.Background())
	go func() {
		select {
		case <-in.signals:
			stop()
		case <-ctx.Done():
		}
	}()
	return ctx, stop
}

func main() {
	os.Exit(run(os.Args[1:], surroundings{
		environ: os.Environ(),
		stdin:   os.Stdin,
		stdout:  os.Stdout,
		stderr:  os.Stderr,
		signals: stopSignals(),
		abort:   func() { os.Exit(exitFailure) },

		terminal: isTerminal(os.Stdout),
	}))
}

// run is the whole program but for the process: it parses args, runs the subcommand and returns the exit
// code.
func run(args []string, in surroundings) int {
	var cli commands
	env := readEnvironment(in.environ)
	helped := false
	parser, err := kong.New(&cli,
		kong.Name("abide"),
		kong.Description("A durable-execution server that every Resonate SDK can be pointed at."),
		kong.Writers(in.stdout, in.stderr),
		kong.Exit(func(int) { helped = true }),
		kong.Resolvers(env),
		kong.Bind(env),
		kong.ValueFormatter(env.describeFlag),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100, NoExpandSubcommands: true}),
	)
	if err != nil {
		return report(in.stderr, err)
	}
	env.learn(parser.Model)
	if len(args) == 0 {
		parser.Stdout = in.stderr
		_, _ = parser.Parse([]string{"--help"})
		return exitUsage
	}
	if args[0] == "--version" || args[0] == "-v" { // no flags of all commands: some have one of that name
		fmt.Fprintf(in.stdout, "abide %s\n", buildVersion())
		return exitOK
	}
	args = commandFirst(args)
	if args[0] == "help" { // what people try first
		args = append(args[1:], "--help")
	}
	command, err := parser.Parse(args)
	switch {
	case helped:
		return exitOK
	case err != nil:
		fmt.Fprintf(in.stderr, "abide: %s\n", withoutPasswords(env.mistake(err)))
		fmt.Fprintln(in.stderr, advice(err))
		return exitUsage
	}
	if err := env.refuse(); err != nil {
		fmt.Fprintf(in.stderr, "abide: %v\n", err)
		return exitUsage
	}
	if err := command.Run(in, env); err != nil {
		return report(in.stderr, namedError{err, env.named(err.Error(), command.Selected().Flags)})
	}
	return exitOK
}

// usageError is a mistake in the command line or the environment that shows only once a subcommand looks
// at it.
type usageError struct{ error }

// report prints the one line of a failure and returns its exit code.
func report(stderr io.Writer, err error) int {
	var usage usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(stderr, "abide: %v\n", err)
		return exitUsage
	}
	var failure clientError
	if errors.As(err, &failure) {
		if failure.text != "" {
			fmt.Fprintf(stderr, "Error: %s\n", failure.text)
		}
		return failure.code
	}
	if !errors.Is(err, errFindings) {
		fmt.Fprintf(stderr, "Fatal: %s\n", strings.ReplaceAll(err.Error(), "\n\t", " ")) // drivers list their attempts so
	}
	return exitFailure
}
