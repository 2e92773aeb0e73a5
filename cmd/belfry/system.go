package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/term"
)

// system is what a command uses of the process. Tests hand in one of their own and so run commands without a process.
type system struct {
	in       io.Reader
	out, err io.Writer
	// inTerminal, outTerminal and errTerminal tell whether a person sits at the other end.
	inTerminal, outTerminal, errTerminal bool
	// inPiped tells that a pipe or a file was handed in as standard input.
	inPiped   bool
	lookupEnv func(name string) (string, bool)
	// environ returns all variables, as name=value.
	environ func() []string
	// size returns the columns and rows of the terminal of out; 80 and 24 if they cannot be had.
	size func() (columns, rows int)
	now  func() time.Time
	// requestID makes the id of a call that may have to be repeated: a UUID of version 7. Its time tells the server when it
	// is too old to be remembered, so that a repeat that comes too late is refused instead of done twice.
	requestID func() string
	// exit ends the process at once.
	exit func(code int)
}

// newSystem returns the process's own.
func newSystem() *system {
	return &system{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		inTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		inPiped:     piped(os.Stdin),
		outTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		errTerminal: term.IsTerminal(int(os.Stderr.Fd())),
		lookupEnv:   os.LookupEnv,
		environ:     os.Environ,
		size: func() (int, int) {
			columns, rows, err := term.GetSize(int(os.Stdout.Fd()))
			if err != nil || columns < 1 || rows < 1 {
				return 80, 24
			}
			return columns, rows
		},
		now:       time.Now,
		requestID: func() string { return uuid.Must(uuid.NewV7()).String() },
		exit:      os.Exit,
	}
}

// piped reports whether a file is a pipe or a regular file, which somebody fills to be read.
func piped(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && (info.Mode().IsRegular() || info.Mode()&os.ModeNamedPipe != 0)
}

// color reports whether the output may be coloured: on a terminal, unless NO_COLOR says otherwise (no-color.org).
func (s *system) color() bool {
	noColor, _ := s.lookupEnv("NO_COLOR")
	terminal, _ := s.lookupEnv("TERM")
	return s.outTerminal && noColor == "" && terminal != "dumb"
}

// echoPeriod is how long after a signal the same one is taken for its echo: timeout(1) and others send it to the process and
// then to its group. Nobody presses a key twice in that time.
const echoPeriod = 100 * time.Millisecond

// interruptible returns a context that the first SIGINT or SIGTERM ends. A second signal ends the process at once, with
// the code that a shell gives a process killed by it: whoever presses twice does not want to wait for a drain. Signals are
// caught until the process has ended, for the echo of the first one may come as late as that.
func interruptible(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		first := <-signals
		cancel(interruption{first})
		number, _ := second(signals, first).(syscall.Signal)
		os.Exit(codeSignal + int(number))
	}()
	return ctx
}

// second returns the next signal that is no echo of the first, which has just come.
func second(signals <-chan os.Signal, first os.Signal) os.Signal {
	began := time.Now()
	for {
		if sig := <-signals; sig != first || time.Since(began) >= echoPeriod {
			return sig
		}
	}
}

// interruption is the cause of a context that a signal ended.
type interruption struct{ signal os.Signal }

func (i interruption) Error() string { return "stopped by signal: " + i.signal.String() }
