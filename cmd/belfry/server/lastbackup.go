package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// lastBackupFile is in the data directory of a node that sent a complete backup. It has the time of
// the last one, as in RFC 3339. A time kept only in memory would be lost at a restart, and an alert
// on an old backup with it.
const lastBackupFile = "last-backup"

// lastBackup is the time in lastBackupFile. It implements admin.BackupTimes.
type lastBackup struct {
	name string
	mu   sync.Mutex
	at   time.Time
}

// readLastBackup returns the lastBackup of a data directory. An unreadable file does not prevent a
// start.
func readLastBackup(cfg Config) *lastBackup {
	b := &lastBackup{name: filepath.Join(cfg.Dir, lastBackupFile)}
	var err error
	if b.at, err = readTime(b.name); err != nil {
		cfg.Logger.Warn("when this node last sent a backup is not known until it sends the next", "error", err)
	}
	return b
}

// Last implements admin.BackupTimes.
func (b *lastBackup) Last() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at
}

// readTime returns the time in a file; zero if there is no file.
func readTime(name string) (time.Time, error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(data)))
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: have %.40q, want a time such as 2026-01-31T03:00:00Z", name, data)
	}
	return at, nil
}

// Keep implements admin.BackupTimes.
func (b *lastBackup) Keep(at time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = at
	return disk.ReplaceFile(disk.OSFS{}, b.name, []byte(at.UTC().Format(time.RFC3339)+"\n"))
}
