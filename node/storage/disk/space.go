package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	reserveName          = "RESERVE"
	reserveDefault       = 64 << 20
	lowWaterDefault      = 256 << 20
	spaceIntervalDefault = time.Second
	// lowWaterFiles is the low-water mark of inodes, unless a quarter of them is less. Files are
	// few and large, but each shard makes one for each segment of its log, one for a snapshot, and
	// some for a moment.
	lowWaterFiles = 1024
	// reserveRetry is the pause after a failed attempt to make the reserve, because of a quota for
	// example.
	reserveRetry = time.Minute
)

// SpaceConfig configures a Space. Zero fields take the defaults named.
type SpaceConfig struct {
	Dir           string        // the data directory
	ReserveBytes  uint64        // held back in a file, default 64 MiB
	LowWaterBytes uint64        // with less free, Low is true, default 256 MiB
	Interval      time.Duration // between probes of Run, default 1 s
	FS            FS            // default OSFS
	// free bytes for this process, default FS if it is a FreeReporter, else statfs
	Free func(dir string) (uint64, error)
	// Inodes returns how many files the file system may have, and how many more can be made; 0 of 0
	// is no limit. Default statfs, where Free has its default.
	Inodes func(dir string) (all, free uint64, err error)
	Logger *slog.Logger // default discards; gets each change
}

// SpaceStats is what the last probe found.
type SpaceStats struct {
	FreeBytes     uint64
	ReserveBytes  uint64 // 0 after the reserve was given up
	LowWaterBytes uint64 // with what SetSnapshotBytes added
	// FreeFiles is how many more files can be made, and LowWaterFiles is the mark. Both are 0 where
	// there is no limit.
	FreeFiles, LowWaterFiles uint64
	// Pressure is true from a little before Low: it is time to move elsewhere what adds to the
	// disk.
	Pressure, Low, Scarce, Exhausted bool
}

// Space watches the free space below a data directory. Writes are refused with a clear answer while
// there is still room for writes that must not fail: votes, terms, truncations, a snapshot.
//
// The low-water mark is LowWaterBytes plus what SetSnapshotBytes adds. With L = LowWaterBytes:
//
//	flag       begins with less free than   ends with at least this free
//	Pressure   mark + L/8                   mark + L/4
//	Low        mark                         mark + L/8
//	Scarce     L/8                          L/4
//	Exhausted  L/16                         L/8
//
// With less than L/4 free the reserve file is removed. It comes back when there is room for it above
// mark + L/8.
//
// A file system with a fixed number of inodes has them as a second resource. Their mark is 1,024 or
// a quarter of them, whichever is less. The scarcer resource counts.
type Space struct {
	cfg                              SpaceConfig
	pressure, low, scarce, exhausted atomic.Bool

	mu           sync.Mutex
	free         uint64
	files        uint64 // number that can still be made, if it is limited
	filesMark    uint64 // low-water mark of files, 0 if their number is not limited
	snapshot     uint64 // added to the low-water mark
	reserve      bool
	reserveAfter time.Time // the reserve is not tried again before
}

// OpenSpace probes once and makes the reserve if there is room. The caller must hold the
// directory's lock.
func OpenSpace(cfg SpaceConfig) (*Space, error) {
	if cfg.Dir == "" {
		return nil, errors.New("storage: SpaceConfig.Dir is empty")
	}
	if cfg.ReserveBytes == 0 {
		cfg.ReserveBytes = reserveDefault
	}
	if cfg.LowWaterBytes == 0 {
		cfg.LowWaterBytes = lowWaterDefault
	}
	if cfg.Interval == 0 {
		cfg.Interval = spaceIntervalDefault
	}
	if cfg.FS == nil {
		cfg.FS = OSFS{}
	}
	if cfg.Free == nil {
		cfg.Free = freeBytes
		if cfg.Inodes == nil {
			cfg.Inodes = inodes
		}
		if reporter, ok := cfg.FS.(FreeReporter); ok {
			cfg.Free = func(string) (uint64, error) { return reporter.FreeBytes(), nil }
			cfg.Inodes = nil
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Space{cfg: cfg}
	var err error
	if s.reserve, err = Exists(cfg.FS, s.reservePath()); err != nil {
		return nil, fmt.Errorf("storage: looking for the reserve: %w", err)
	}
	return s, s.Check()
}

func (s *Space) reservePath() string { return filepath.Join(s.cfg.Dir, reserveName) }

// Low says whether new data must be refused. It costs one atomic load: ask before each proposal.
func (s *Space) Low() bool { return s.low.Load() }

// Scarce says that only entries that free space may still be logged. It costs one atomic load.
func (s *Space) Scarce() bool { return s.scarce.Load() }

// Exhausted says that the rest is only for votes, terms, the entries of a leadership and a
// snapshot. It costs one atomic load.
func (s *Space) Exhausted() bool { return s.exhausted.Load() }

// SetSnapshotBytes sets the size of the largest snapshot. The next one is written beside it, and
// only then can log be cut. So the low-water mark includes room for it from the next probe on.
func (s *Space) SetSnapshotBytes(size uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot = size
}

// Run probes every interval until ctx ends, and returns nil then. A probe that fails is logged, and
// Low stays.
func (s *Space) Run(ctx context.Context) error {
	t := time.NewTicker(s.cfg.Interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			if err := s.Check(); err != nil {
				s.cfg.Logger.Error("probing disk space", "error", err)
			}
		}
	}
}

// Check probes once.
func (s *Space) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	free, err := s.cfg.Free(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("storage: asking the free space of %s: %w", s.cfg.Dir, err)
	}
	s.free = free
	if err := s.countFiles(); err != nil {
		return err
	}
	mark := s.cfg.LowWaterBytes + s.snapshot
	high := mark + s.cfg.LowWaterBytes/8
	s.setFlag(&s.pressure, "pressure", free < high || s.fewerFiles(9, 8), free >= mark+s.cfg.LowWaterBytes/4 &&
		!s.fewerFiles(5, 4))
	s.setFlag(&s.low, "low", free < mark || s.fewerFiles(1, 1), free >= high && !s.fewerFiles(9, 8))
	if s.reserve && free < s.cfg.LowWaterBytes/4 {
		if err := s.release(); err != nil {
			return err
		}
		if free, err = s.cfg.Free(s.cfg.Dir); err != nil {
			return fmt.Errorf("storage: asking the free space of %s: %w", s.cfg.Dir, err)
		}
		s.free = free
	}
	s.setFlag(&s.scarce, "scarce", free < s.cfg.LowWaterBytes/8 || s.fewerFiles(1, 8), free >= s.cfg.LowWaterBytes/4 &&
		!s.fewerFiles(1, 4))
	s.setFlag(&s.exhausted, "exhausted", free < s.cfg.LowWaterBytes/16 || s.fewerFiles(1, 16),
		free >= s.cfg.LowWaterBytes/8 && !s.fewerFiles(1, 8))
	if !s.reserve && free >= high+s.cfg.ReserveBytes && !time.Now().Before(s.reserveAfter) {
		if err := s.hold(); err != nil { // not needed as long as there is room
			s.reserveAfter = time.Now().Add(reserveRetry)
			s.cfg.Logger.Warn("disk space: no reserve", "error", err, "free_bytes", free)
		}
	}
	return nil
}

// countFiles asks how many more files can be made. mu is held.
func (s *Space) countFiles() error {
	if s.cfg.Inodes == nil {
		return nil
	}
	all, free, err := s.cfg.Inodes(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("storage: asking the free inodes of %s: %w", s.cfg.Dir, err)
	}
	s.filesMark, s.files = min(lowWaterFiles, all/4), free
	return nil
}

// fewerFiles reports whether fewer files can be made than part/of of the mark. mu is held.
func (s *Space) fewerFiles(part, of uint64) bool { return s.files < s.filesMark*part/of }

// Shortage tells an operator which resource is scarcest relative to its mark, how much is free, and
// the mark.
func (s SpaceStats) Shortage() string {
	if float64(s.FreeFiles)*float64(s.LowWaterBytes) < float64(s.FreeBytes)*float64(s.LowWaterFiles) {
		return fmt.Sprintf("%d inodes of its disk are free, the mark is %d", s.FreeFiles, s.LowWaterFiles)
	}
	return fmt.Sprintf("%d MiB of its disk are free, the mark is %d MiB", s.FreeBytes>>20, s.LowWaterBytes>>20)
}

// setFlag sets a flag if on, clears it if off, and logs a change. mu is held.
func (s *Space) setFlag(flag *atomic.Bool, name string, on, off bool) {
	was := flag.Load()
	now := on || was && !off
	flag.Store(now)
	if now != was {
		s.cfg.Logger.Warn("disk space", name, now, "free_bytes", s.free, "low_water_bytes", s.cfg.LowWaterBytes+s.snapshot,
			"free_inodes", s.files, "low_water_inodes", s.filesMark)
	}
}

// Full reports whether err says that the disk, or the quota on it, is full.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Release gives the reserve up at once, for a caller whose write failed because the disk is full.
func (s *Space) Release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pressure.Store(true)
	s.low.Store(true)
	s.scarce.Store(true)
	if !s.reserve {
		return nil
	}
	return s.release()
}

// Stats returns what the last probe found.
func (s *Space) Stats() SpaceStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := SpaceStats{
		FreeBytes: s.free, LowWaterBytes: s.cfg.LowWaterBytes + s.snapshot, Pressure: s.pressure.Load(), Low: s.low.Load(),
		Scarce: s.scarce.Load(), Exhausted: s.exhausted.Load(),
	}
	if s.filesMark > 0 {
		stats.FreeFiles, stats.LowWaterFiles = s.files, s.filesMark
	}
	if s.reserve {
		stats.ReserveBytes = s.cfg.ReserveBytes
	}
	return stats
}

func (s *Space) release() error {
	if err := RemoveIfPresent(s.cfg.FS, s.reservePath()); err != nil {
		return fmt.Errorf("storage: giving up the reserve: %w", err)
	}
	s.reserve = false
	s.cfg.Logger.Warn("disk space: reserve given up", "reserve_bytes", s.cfg.ReserveBytes, "free_bytes", s.free)
	return nil
}

func (s *Space) hold() error {
	f, err := s.cfg.FS.OpenFile(s.reservePath(), os.O_CREATE|os.O_RDWR)
	if err != nil {
		return fmt.Errorf("storage: making the reserve: %w", err)
	}
	if err := f.Allocate(int64(s.cfg.ReserveBytes)); err != nil {
		return errors.Join(fmt.Errorf("storage: making the reserve: %w", err), f.Close(), s.cfg.FS.Remove(s.reservePath()))
	}
	s.reserve = true
	return f.Close()
}
