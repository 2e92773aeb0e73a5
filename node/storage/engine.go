package storage

import (
	"log/slog"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// Engine names the library that keeps a group's log.
type Engine string

// The engines. A group keeps the one it was created with.
const (
	EngineWAL  Engine = "wal"  // hashicorp/raft-wal: one sync an append; the default
	EngineBolt Engine = "bolt" // hashicorp/raft-boltdb/v2: two syncs an append; needs the real file system
)

// engine is what the log needs from a library. Writes come one at a time; reads come from any
// goroutine.
type engine interface {
	// span returns the first and last index, 0 and 0 when empty.
	span() (first, last uint64, err error)
	// storeLogs makes consecutive entries durable.
	storeLogs(logs []*raft.Log) error
	// getLog reads one entry: raft.ErrLogNotFound if it is not there, errEntrySum (wrapped) if
	// damaged.
	getLog(index uint64, l *raft.Log) error
	// deleteRange removes a prefix, a suffix or everything, atomically.
	deleteRange(first, last uint64) error
	// fileOf names the file that holds index, for messages.
	fileOf(index uint64) string
	close() error
}

type engineConfig struct {
	fsys         disk.FS
	dir          string
	codec        entryCodec
	segmentBytes int
	mark         mark
	guard        *disk.Guard
	logger       *slog.Logger
	gone         *removals
}
