package cli

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

// System is what a command uses of the process. Tests hand in one of their own and so run commands
// without a process.
type System struct {
	In       io.Reader
	Out, Err io.Writer
	// InTerminal, OutTerminal and ErrTerminal tell whether a person sits at the other end.
	InTerminal, OutTerminal, ErrTerminal bool
	// InPiped tells that a pipe or a file was handed in as standard input.
	InPiped   bool
	LookupEnv func(name string) (string, bool)
	// Environ returns all variables, as name=value.
	Environ func() []string
	// Size returns the columns and rows of the terminal of out; 80 and 24 if they cannot be had.
	Size func() (columns, rows int)
	Now  func() time.Time
	// RequestID makes the id of a call that may have to be repeated: a UUID of version 7. Its time
	// tells the server when it is too old to be remembered, so that a repeat that comes too late is
	// refused instead of done twice.
	RequestID func() string
	// Exit ends the process at once.
	Exit func(code int)
}

// NewSystem returns the process's own.
func NewSystem() *System {
	return &System{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		InPiped:     piped(os.Stdin),
		OutTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		ErrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
		LookupEnv:   os.LookupEnv,
		Environ:     os.Environ,
		Size: func() (int, int) {
			columns, rows, err := term.GetSize(int(os.Stdout.Fd()))
			if err != nil || columns < 1 || rows < 1 {
				return 80, 24
			}
			return columns, rows
		},
		Now:       time.Now,
		RequestID: func() string { return uuid.Must(uuid.NewV7()).String() },
		Exit:      os.Exit,
	}
}

// piped reports whether a file is a pipe or a regular file, which has input to be read.
func piped(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && (info.Mode().IsRegular() || info.Mode()&os.ModeNamedPipe != 0)
}

// Variable returns a variable of the environment; empty if it is not set.
func (s *System) Variable(name string) string {
	value, _ := s.LookupEnv(name)
	return value
}

// Color reports whether the output may be coloured: on a terminal, unless NO_COLOR says otherwise
// (no-color.org).
func (s *System) Color() bool {
	noColor, _ := s.LookupEnv("NO_COLOR")
	terminal, _ := s.LookupEnv("TERM")
	return s.OutTerminal && noColor == "" && terminal != "dumb"
}

// echoPeriod is how long after a signal the same one is taken for its echo: timeout(1) and others
// send it to the process and then to its group. No user presses a key twice in that time.
const echoPeriod = 100 * time.Millisecond

// Interruptible returns a context that the first SIGINT or SIGTERM ends. A second signal ends the
// process at once, with the code that a shell gives a process killed by it: the user does not want
// to wait for a drain. Signals are caught until the process has ended, because the echo of the
// first one may come as late as that.
func Interruptible(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		first := <-signals
		cancel(Interruption{Signal: first})
		number, _ := second(signals, first).(syscall.Signal)
		os.Exit(CodeSignal + int(number))
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

// Interruption is the cause of a context that a signal ended.
type Interruption struct{ Signal os.Signal }

func (i Interruption) Error() string { return "stopped by signal: " + i.Signal.String() }
