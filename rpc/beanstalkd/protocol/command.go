// Package protocol reads and writes the texts of beanstalkd's protocol: command lines, names of
// tubes, ids of jobs, and answers. It does no I/O. Its source is doc/protocol.txt of beanstalkd 1.13;
// where that page is silent, it does what beanstalkd 1.12 was seen to do.
package protocol

import (
	"bytes"
	"math"
	"strings"
)

// Version is the version of beanstalkd whose protocol this is.
const Version = "1.13"

// Op is a command of the protocol.
type Op uint8

// The commands.
const (
	Put Op = iota
	Peek
	PeekReady
	PeekDelayed
	PeekBuried
	ReserveWithTimeout
	ReserveJob
	Reserve
	Delete
	Release
	Bury
	KickJob
	Kick
	Touch
	StatsJob
	StatsTube
	Stats
	Use
	Watch
	Ignore
	ListTubesWatched
	ListTubeUsed
	ListTubes
	Quit
	PauseTube
	// Ops is the number of commands.
	Ops = iota
)

// words has the words of the commands, a word before its own beginnings. A word that ends with a
// space has arguments.
var words = [Ops]string{ //nolint:gochecknoglobals // a table that nothing changes
	Put: "put ", Peek: "peek ", PeekReady: "peek-ready", PeekDelayed: "peek-delayed", PeekBuried: "peek-buried",
	ReserveWithTimeout: "reserve-with-timeout ", ReserveJob: "reserve-job ", Reserve: "reserve",
	Delete: "delete ", Release: "release ", Bury: "bury ", KickJob: "kick-job ", Kick: "kick ", Touch: "touch ",
	StatsJob: "stats-job ", StatsTube: "stats-tube ", Stats: "stats", Use: "use ", Watch: "watch ", Ignore: "ignore ",
	ListTubesWatched: "list-tubes-watched", ListTubeUsed: "list-tube-used", ListTubes: "list-tubes", Quit: "quit",
	PauseTube: "pause-tube ",
}

// String returns the word of the command.
func (o Op) String() string { return strings.TrimSuffix(words[o], " ") }

// LineBytesMax bounds a command line, with the two bytes of its end.
const LineBytesMax = 224

// Command is a command line.
type Command struct {
	Op Op
	// ID is the job of a command that names one.
	ID uint64
	// Priority is that of put, release and bury; lower first.
	Priority uint32
	// Delay is that of put, release and pause-tube, TTR that of put, in seconds.
	Delay, TTR uint32
	// BodyBytes is the size of the body that follows a put, without the two bytes of its end.
	BodyBytes uint32
	// Bound is how many jobs a kick takes at most.
	Bound uint64
	// Timeout is that of reserve-with-timeout in seconds; negative ones count as 0.
	Timeout int64
	// Tube is the name of a tube. It aliases the line.
	Tube []byte
}

// Parse reads a command line without its end. If the line is no command, answer is what beanstalkd
// answers; else it is empty.
func Parse(line []byte) (c Command, answer string) {
	if bytes.IndexByte(line, 0) >= 0 {
		return c, BadFormat
	}
	for op, word := range words {
		if len(line) < len(word) || string(line[:len(word)]) != word {
			continue
		}
		c.Op = Op(op) //nolint:gosec // an index of words
		a := arguments{rest: line[len(word):]}
		if word[len(word)-1] == ' ' {
			a.read(&c)
		}
		if a.bad || len(a.rest) > 0 && c.Op != Quit {
			return c, BadFormat
		}
		return c, ""
	}
	return c, UnknownCommand
}

// arguments are the arguments of a command that are not read yet.
type arguments struct {
	rest []byte
	bad  bool
}

// read reads the arguments of a command.
func (a *arguments) read(c *Command) {
	switch c.Op {
	case Put:
		c.Priority, c.Delay, c.TTR, c.BodyBytes = a.number32(), a.number32(), a.number32(), a.number32()
	case Release:
		c.ID, c.Priority, c.Delay = a.number(), a.number32(), a.number32()
	case Bury:
		c.ID, c.Priority = a.number(), a.number32()
	case Kick:
		c.Bound = a.lenientBound()
	case ReserveWithTimeout:
		c.Timeout = a.lenientTimeout()
	case Use, Watch, Ignore, StatsTube:
		c.Tube, a.rest = a.rest, nil
		a.bad = !ValidTube(c.Tube)
	case PauseTube:
		a.skipSpaces()
		c.Tube = a.rest
		if end := bytes.IndexByte(a.rest, ' '); end >= 0 {
			c.Tube, a.rest = a.rest[:end], a.rest[end:]
		}
		a.bad = !ValidTube(c.Tube)
		c.Delay = a.number32()
	default:
		c.ID = a.number()
	}
}

func (a *arguments) skipSpaces() {
	for len(a.rest) > 0 && a.rest[0] == ' ' {
		a.rest = a.rest[1:]
	}
}

// digits reads a number that may follow spaces. ok is false if there is none, or if it is above
// 2^64-1.
func (a *arguments) digits() (n uint64, ok bool) {
	a.skipSpaces()
	for len(a.rest) > 0 && a.rest[0] >= '0' && a.rest[0] <= '9' {
		d := uint64(a.rest[0] - '0')
		if n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n, ok, a.rest = n*10+d, true, a.rest[1:]
	}
	return n, ok
}

// number reads a number below 2^64.
func (a *arguments) number() uint64 {
	n, ok := a.digits()
	a.bad = a.bad || !ok
	return n
}

// number32 reads a number below 2^32.
func (a *arguments) number32() uint32 {
	n := a.number()
	a.bad = a.bad || n > math.MaxUint32
	return uint32(n) //nolint:gosec // checked in the line before
}

// lenientBound reads the bound of a kick: a number with a sign or without, and whatever follows it.
func (a *arguments) lenientBound() uint64 {
	a.skipSpaces()
	negative := len(a.rest) > 0 && a.rest[0] == '-'
	if negative {
		a.rest = a.rest[1:]
	}
	n := a.number()
	if a.rest = nil; negative { // beanstalkd takes it as one near 2^64
		return math.MaxUint64
	}
	return n
}

// lenientTimeout reads a timeout: a number with a sign or without, 0 if there is none, and whatever
// follows it.
func (a *arguments) lenientTimeout() int64 {
	a.skipSpaces()
	if len(a.rest) > 0 && a.rest[0] == '-' {
		a.rest = nil
		return -1
	}
	n, _ := a.digits()
	a.rest = nil
	return int64(min(n, math.MaxUint32)) //nolint:gosec // at most 2^32-1
}
