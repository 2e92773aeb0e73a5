package storage_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
)

const writerDirEnv = "BELFRY_TEST_WRITER_DIR"

// writeUntilKilled appends to the group in dir, and says after each append how far the log is
// durable.
func writeUntilKilled(dir string) error {
	s, err := storage.Open(dir, testConfig(disk.OSFS{}, storage.Engine(os.Getenv(writerEngineEnv))))
	if err != nil {
		return err
	}
	last, err := s.Log.LastIndex()
	if err != nil {
		return err
	}
	for i := last + 1; ; i += 3 {
		if err := s.Log.StoreLogs(entries(i, i+2, 0)); err != nil {
			return err
		}
		if i%50 < 3 {
			if err := takeSnapshot(s.Snapshots, i, 0, snapshotData(i)); err != nil {
				return err
			}
			if i > 100 {
				if err := s.Log.DeleteRange(1, i-100); err != nil {
					return err
				}
			}
		}
		fmt.Println(i + 2)
	}
}

const writerEngineEnv = "BELFRY_TEST_WRITER_ENGINE"

// A killed process has lost nothing it was told is durable, on real files, time after time.
func TestKilledWriter(t *testing.T) {
	for _, engine := range []storage.Engine{storage.EngineWAL, storage.EngineBolt} {
		t.Run(string(engine), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "shard-1")
			for round := range 8 {
				acknowledged := killAfter(t, dir, engine, 20+round*23)
				s, err := storage.Open(dir, testConfig(disk.OSFS{}, engine))
				must(t, err)
				first, _ := s.Log.FirstIndex()
				last, _ := s.Log.LastIndex()
				if last < acknowledged {
					t.Fatalf("round %d: the log ends at %d, %d was acknowledged", round, last, acknowledged)
				}
				must(t, checkEntries(s, first, last))
				if index, data, err := readSnapshot(s.Snapshots); err != nil || string(data) != string(snapshotData(index)) {
					t.Fatalf("round %d: snapshot %d: %v", round, index, err)
				}
				closeStores(t, s)
			}
		})
	}
}

// killAfter runs a writer, kills it after so many acknowledgements, and returns the last one that
// arrived.
func killAfter(t *testing.T, dir string, engine storage.Engine, acknowledgements int) uint64 {
	t.Helper()
	writer := exec.CommandContext(t.Context(), os.Args[0])
	writer.Env = append(os.Environ(), writerDirEnv+"="+dir, writerEngineEnv+"="+string(engine))
	stdout, err := writer.StdoutPipe()
	must(t, err)
	must(t, writer.Start())
	var last uint64
	lines := bufio.NewScanner(stdout)
	for seen := 0; lines.Scan(); seen++ {
		if last, err = strconv.ParseUint(strings.TrimSpace(lines.Text()), 10, 64); err != nil {
			t.Fatalf("writer: %s", lines.Text())
		}
		if seen == acknowledgements {
			must(t, writer.Process.Kill())
		}
	}
	_ = writer.Wait() // killed
	return last
}
