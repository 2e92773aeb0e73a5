package storage

import "errors"

// Errors that callers branch on.
var (
	// ErrFailed is wrapped by the error of every write after the first failed one. The outcome of
	// the failed write is unknown, and the store takes no further writes. The process must end; the
	// next Open decides.
	ErrFailed = errors.New("storage: an earlier write failed, no further writes are taken")

	// ErrClosed is returned by stores used after Close.
	ErrClosed = errors.New("storage: closed")

	// ErrNoGroup is returned by Open with MustExist when the directory holds no group.
	ErrNoGroup = errors.New("storage: no group in this directory")

	// ErrSnapshotOlder is returned by SnapshotStore.Create for an index below the newest durable
	// snapshot, and by a sink that a newer snapshot has overtaken. Neither a delayed install nor a
	// slow snapshot of this node may take a replica back in time.
	ErrSnapshotOlder = errors.New("storage: a newer snapshot is already durable")

	// ErrGap is wrapped by StoreLogs when entries do not follow the last one.
	ErrGap = errors.New("storage: log entries are not consecutive")
)
