package storage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// BenchmarkAppend stores synced batches and reports, beside the batches and bytes a second, how
// many times as long a batch takes as the same bytes appended to a plain file and synced; the two
// alternate in one run.
func BenchmarkAppend(b *testing.B) {
	for _, load := range []struct {
		name           string
		entries, bytes int
	}{
		{"1x1KiB", 1, 1 << 10}, {"64x1KiB", 64, 1 << 10}, {"1x64KiB", 1, 64 << 10}, {"1x512KiB", 1, 512 << 10},
	} {
		for _, engine := range []storage.Engine{storage.EngineWAL, storage.EngineBolt} {
			b.Run(fmt.Sprintf("%s/%s", load.name, engine), func(b *testing.B) {
				benchmarkAppend(b, engine, load.entries, load.bytes, 0)
			})
		}
	}
}

// BenchmarkSegmentSize shows what rotations cost.
func BenchmarkSegmentSize(b *testing.B) {
	for _, mib := range []int{4, 8, 16, 64} {
		b.Run(fmt.Sprintf("64x1KiB/%dMiB", mib), func(b *testing.B) {
			benchmarkAppend(b, storage.EngineWAL, 64, 1<<10, mib<<20)
		})
	}
}

func benchmarkAppend(b *testing.B, engine storage.Engine, count, size, segmentBytes int) {
	dir := b.TempDir()
	cfg := testConfig(disk.OSFS{}, engine)
	cfg.SegmentBytes = segmentBytes
	s, err := storage.Open(filepath.Join(dir, "group"), cfg)
	if err != nil {
		b.Fatal(err)
	}
	plain, err := disk.OSFS{}.OpenFile(filepath.Join(dir, "plain"), os.O_CREATE|os.O_RDWR)
	if err != nil {
		b.Fatal(err)
	}
	batch := make([]*raft.Log, count)
	for i := range batch {
		batch[i] = &raft.Log{Type: raft.LogCommand, Data: make([]byte, size)}
	}
	raw := make([]byte, count*size)
	var index uint64
	var off int64
	var ours, theirs time.Duration
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		for _, l := range batch {
			index++
			l.Index, l.Term = index, 1
		}
		start := time.Now()
		if err := s.Log.StoreLogs(batch); err != nil {
			b.Fatal(err)
		}
		stored := time.Now()
		if _, err := plain.WriteAt(raw, off); err != nil {
			b.Fatal(err)
		}
		if err := plain.SyncData(); err != nil {
			b.Fatal(err)
		}
		ours += stored.Sub(start)
		theirs += time.Since(stored)
		off += int64(len(raw))
	}
	seconds := ours.Seconds()
	b.ReportMetric(float64(b.N)/seconds, "batches/s")
	b.ReportMetric(float64(b.N*len(raw))/seconds/(1<<20), "MiB/s")
	b.ReportMetric(float64(ours)/float64(theirs), "x-plain")
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	if err := plain.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRead reads entries back with their sums verified.
func BenchmarkRead(b *testing.B) {
	for _, engine := range []storage.Engine{storage.EngineWAL, storage.EngineBolt} {
		b.Run("1KiB/"+string(engine), func(b *testing.B) {
			s, err := storage.Open(filepath.Join(b.TempDir(), "group"), storage.Config{Group: groupName, Engine: engine})
			if err != nil {
				b.Fatal(err)
			}
			const held = 10_000
			for i := uint64(1); i <= held; i += 100 {
				var logs []*raft.Log
				for j := i; j < i+100; j++ {
					logs = append(logs, &raft.Log{Index: j, Term: 1, Data: make([]byte, 1<<10)})
				}
				if err := s.Log.StoreLogs(logs); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.SetBytes(1 << 10)
			var l raft.Log
			for i := uint64(0); b.Loop(); i++ {
				if err := s.Log.GetLog(i%held+1, &l); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkOpen verifies and opens a group with a log of 64 MiB in entries of 16 KiB.
func BenchmarkOpen(b *testing.B) {
	for _, engine := range []storage.Engine{storage.EngineWAL, storage.EngineBolt} {
		b.Run(string(engine), func(b *testing.B) {
			dir := filepath.Join(b.TempDir(), "group")
			cfg := storage.Config{Group: groupName, Engine: engine}
			open := func() *storage.Stores {
				s, err := storage.Open(dir, cfg)
				if err != nil {
					b.Fatal(err)
				}
				return s
			}
			s := open()
			const held, size = 4096, 16 << 10
			for i := uint64(1); i <= held; i += 64 {
				var logs []*raft.Log
				for j := i; j < i+64; j++ {
					logs = append(logs, &raft.Log{Index: j, Data: make([]byte, size)})
				}
				if err := s.Log.StoreLogs(logs); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(held * size)
			for b.Loop() {
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				s = open()
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
