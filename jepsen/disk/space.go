package disk

import (
	"sync"
	"syscall"
)

// space is the room on the disk. Taken is the sum of the lengths of files, holes included.
type space struct {
	mu      sync.Mutex
	limited bool // by SetFree; otherwise by the disk under it only
	limit   int64
	taken   int64
}

// take reserves bytes, if there are any to reserve.
func (s *space) take(bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limited && s.taken+bytes > s.limit {
		return syscall.ENOSPC
	}
	s.taken += bytes
	return nil
}

func (s *space) give(bytes int64) {
	if bytes <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= bytes
}

// count sets what is taken, after a crash has changed the files.
func (s *space) count(taken int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = taken
}

// free returns what is left, if that is limited.
func (s *space) free() (bytes uint64, limited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(max(0, s.limit-s.taken)), s.limited
}

func (s *space) setFree(bytes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limited, s.limit = true, s.taken+int64(min(bytes, 1<<62))
}

// SetFree sets how many bytes may still be taken by files that grow. Statfs says it, and when they
// are used up growing fails with ENOSPC; writes into what a file has already do not. Removing and
// cutting files gives room back. It holds until it is set again.
func (d *Disk) SetFree(bytes uint64) { d.space.setFree(bytes) }
