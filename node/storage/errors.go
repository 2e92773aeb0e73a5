package storage

import "errors"

// Errors that callers branch on.
var (
	// ErrNoGroup is returned by Open with MustExist when the directory holds no group.
	ErrNoGroup = errors.New("storage: no group in this directory")

	// ErrSnapshotOlder is returned by SnapshotStore.Create for an index below the newest durable
	// snapshot, and by a sink that a newer snapshot has overtaken. Neither a delayed install nor a
	// slow snapshot of this node may take a replica back in time.
	ErrSnapshotOlder = errors.New("storage: a newer snapshot is already durable")

	// ErrGap is wrapped by StoreLogs when entries do not follow the last one.
	ErrGap = errors.New("storage: log entries are not consecutive")
)
