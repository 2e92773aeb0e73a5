package fsm

import (
	"errors"
	"fmt"
)

// Format is the version of a log entry and of a snapshot. A program reads all formats from
// FirstFormat to LatestFormat. It writes the one that it is told to write, because a replica of an
// older program may have to read it. What a format adds is refused until that format is written.
type Format byte

// FirstFormat is the format that every program reads.
const FirstFormat Format = 1

// LatestFormat is the highest format that this program reads. Formats:
//
//	1  the first
//	2  queues made in it have the default retry delays, tombstones say how a job ended, the cluster
//	   has a minimum of voters
//	3  requests name their client; a job knows who holds it and its last failed attempts; lists can
//	   be searched; queues have rates of each minute; the catalog has tasks. Commands, jobs and
//	   queues may have tagged fields, which codec/DESIGN.md lists
//	4  jobs may have a key, which queues can limit; puts may replace a job; queues have schedules
//	5  priorities have 32 bits; jobs may be FIFO; commands and queries about one job by its serial
//
// Tests build a program with one more from this line, whose formats differ in their number only.
const LatestFormat Format = 5

// Readable returns nil if this program reads the format, else an error that names both and wraps
// ErrVersion.
func (f Format) Readable() error {
	if f < FirstFormat || f > LatestFormat {
		return fmt.Errorf("%w: format %d, this program reads up to %d", ErrVersion, f, LatestFormat)
	}
	return nil
}

// FormatOf returns the format that a log entry names, 0 if there is nothing of one. It checks
// nothing.
func FormatOf(entry []byte) Format {
	if len(entry) == 0 {
		return 0
	}
	return Format(entry[0])
}

// ErrDamaged is wrapped by every error about bytes that are not what an encoder of this package
// wrote.
var ErrDamaged = errors.New("damaged")

// ErrVersion is wrapped by every error about bytes that a later version of this package wrote.
var ErrVersion = errors.New("written by a later version")
