package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
)

// system is what a command uses of the process. Tests hand in one of their own and so run commands without a process.
type system struct {
	in       io.Reader
	out, err io.Writer
	// inTerminal, outTerminal and errTerminal tell whether a person sits at the other end.
	inTerminal, outTerminal, errTerminal bool
	lookupEnv                            func(name string) (string, bool)
	// size returns the columns and rows of the terminal of out; 80 and 24 if they cannot be had.
	size func() (columns, rows int)
	now  func() time.Time
	// requestID makes the id of a call that may have to be repeated.
	requestID func() requestID
	// exit ends the process at once.
	exit func(code int)
}

// newSystem returns the process's own.
func newSystem() *system {
	return &system{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		inTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		outTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		errTerminal: term.IsTerminal(int(os.Stderr.Fd())),
		lookupEnv:   os.LookupEnv,
		size: func() (int, int) {
			columns, rows, err := term.GetSize(int(os.Stdout.Fd()))
			if err != nil || columns < 1 || rows < 1 {
				return 80, 24
			}
			return columns, rows
		},
		now:       time.Now,
		requestID: func() requestID { return newRequestID(time.Now()) },
		exit:      os.Exit,
	}
}

// color reports whether the output may be coloured: on a terminal, unless NO_COLOR says otherwise (no-color.org).
func (s *system) color() bool {
	noColor, _ := s.lookupEnv("NO_COLOR")
	terminal, _ := s.lookupEnv("TERM")
	return s.outTerminal && noColor == "" && terminal != "dumb"
}

// interruptible returns a context that the first SIGINT or SIGTERM ends. A second signal ends the process at once, with
// the code that a shell gives a process killed by it: whoever presses twice does not want to wait for a drain.
func interruptible(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case sig := <-signals:
			cancel(interruption{sig})
		case <-ctx.Done():
			return
		}
		sig := <-signals
		number, _ := sig.(syscall.Signal)
		os.Exit(codeSignal + int(number))
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// interruption is the cause of a context that a signal ended.
type interruption struct{ signal os.Signal }

func (i interruption) Error() string { return "stopped by signal: " + i.signal.String() }

// requestID is a UUID of version 7. Its time tells the server when it is too old to be remembered, so that a repeat that
// comes too late is refused instead of done twice.
type requestID [16]byte

func newRequestID(now time.Time) requestID {
	var id requestID
	rand.Read(id[:]) // it ends the process rather than return an error
	ms := uint64(now.UnixMilli())
	binary.BigEndian.PutUint64(id[:8], ms<<16|uint64(id[6])<<8|uint64(id[7]))
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// plus returns the id of part n of what id stands for: as unique as id, and the same each time.
func (id requestID) plus(n uint64) requestID {
	low := binary.BigEndian.Uint64(id[8:])
	const variant = uint64(3) << 62
	binary.BigEndian.PutUint64(id[8:], low&variant|(low+n)&^variant)
	return id
}

// String returns the id in the usual form of 36 characters.
func (id requestID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// parseRequestID reads what String wrote.
func parseRequestID(text string) (requestID, error) {
	var id requestID
	plain := strings.ReplaceAll(text, "-", "")
	if n, err := hex.Decode(id[:], []byte(plain)); len(text) != 36 || err != nil || n != len(id) {
		return requestID{}, usagef("--request-id: want the 36 characters of a UUID, as an interrupted put prints it")
	}
	return id, nil
}
