package nemesis

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/lab"
)

// backupMax bounds each command of a backup: only what hangs takes that long.
const backupMax = 2 * time.Minute

// backup makes a backup through one node while clients work, reads it, and restores it into a new server. The cluster is whole, so no failure is excused.
func backup(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyoneOfWhole(ctx)
	if err != nil {
		return "", nil, err
	}
	url, err := s.Lab.URL(lab.Harness, n.Name)
	if err != nil {
		return "", nil, err
	}
	dir := filepath.Join(s.Dir, "backups", fmt.Sprintf("%s-%d", n.Name, s.Now()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("making a directory for a backup: %w", err)
	}
	heal := background(ctx, func(context.Context) error { return s.backUpAndRestore(ctx, url, dir) })
	return "a backup through " + n.Name + " restored elsewhere", func(ctx context.Context) error {
		return errors.Join(heal(ctx), os.RemoveAll(dir))
	}, nil
}

// contents says what is in a backup, or what was restored.
type contents struct {
	Jobs      json.Number `json:"jobs"`
	Queues    json.Number `json:"queues"`
	ClusterID string      `json:"clusterId"`
}

// backUpAndRestore makes a backup, reads it again, and restores it.
func (s *Scene) backUpAndRestore(ctx context.Context, url, dir string) error {
	file := filepath.Join(dir, "belfry.backup")
	var made, read, restored contents
	if err := s.belfry(ctx, &made, "backup", file, "--server", url); err != nil {
		return err
	}
	if err := s.belfry(ctx, &read, "restore", file, "--check"); err != nil {
		return err
	}
	fresh, stop, err := s.freshServer(dir)
	if err != nil {
		return err
	}
	again := filepath.Join(dir, "restored.backup")
	err = s.belfry(ctx, &restored, "restore", file, "--server", fresh)
	if err == nil {
		err = s.belfry(ctx, &contents{}, "backup", again, "--server", fresh)
	}
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	if made != read || made != restored {
		return fmt.Errorf("a backup was made of %+v, has %+v, and restored %+v", made, read, restored)
	}
	before, err := jobsIn(file)
	if err != nil {
		return err
	}
	after, err := jobsIn(again)
	if err != nil {
		return err
	}
	if err := sameJobs(before, after); err != nil {
		return err
	}
	count, err := made.Jobs.Int64()
	if err != nil {
		return fmt.Errorf("reading how many jobs a backup has: %w", err)
	}
	s.Count("backups that were restored", 1)
	s.Count("jobs in backups that were restored", count)
	return nil
}

// jobKey names a job in a backup. Partitions of a queue are in several shards, each of which has serials of its own.
type jobKey struct {
	queue     string
	partition uint32
	serial    uint64
}

// jobsIn returns the jobs of a backup.
func jobsIn(path string) (map[jobKey]fsm.Job, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading a backup: %w", err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	in, err := fsm.NewBackupReader(bufio.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("reading a backup: %w", err)
	}
	jobs := map[jobKey]fsm.Job{}
	for {
		record, err := in.Next()
		if errors.Is(err, io.EOF) {
			return jobs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading a backup: %w", err)
		}
		if record.Kind != fsm.BackupJob {
			continue
		}
		record.Data = bytes.Clone(record.Data) // what is read of it stays
		job, _, err := record.Job()
		if err != nil {
			return nil, fmt.Errorf("reading a backup: %w", err)
		}
		key := jobKey{job.Queue, job.Partition, job.Serial}
		if _, twice := jobs[key]; twice {
			return nil, fmt.Errorf("the job %+v is in a backup twice", key)
		}
		jobs[key] = job
	}
}

// sameJobs compares the jobs of a backup with those of a server into which it was restored, and that did nothing else: time has passed there, so a job may have
// fallen due, and a lease may have lapsed.
func sameJobs(before, after map[jobKey]fsm.Job) error {
	for key, had := range before {
		has, restored := after[key]
		if !restored {
			return fmt.Errorf("the job %+v of a backup was not restored", key)
		}
		if want, is := lasting(had, had), lasting(has, had); !reflect.DeepEqual(want, is) {
			return fmt.Errorf("a job of a backup was restored as another:\n%+v\n%+v", want, is)
		}
	}
	for key := range after {
		if _, had := before[key]; !had {
			return fmt.Errorf("the job %+v was restored and is not in the backup", key)
		}
	}
	return nil
}

// lasting returns a job without what time may have changed since it was had.
func lasting(j, had fsm.Job) fsm.Job {
	switch {
	case had.State == fsm.Reserved && j.State != fsm.Reserved: // its lease has lapsed
		j.Attempt, j.Redrives, j.Fence, j.Until, j.LeaseTTR, j.Died, j.Due, j.LastError = had.Attempt, had.Redrives, had.Fence, had.Until, had.LeaseTTR, had.Died, had.Due, had.LastError
		j.State = had.State
	case had.State == fsm.Delayed && j.State == fsm.Ready:
		j.State = had.State
	}
	return j
}

// belfry runs a command of the lab's program and reads its answer.
func (s *Scene) belfry(ctx context.Context, answer any, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, backupMax)
	defer cancel()
	c := exec.CommandContext(ctx, s.Lab.Program(), append(args, "-o", "json")...)
	if secrets := s.Lab.Secrets(); secrets != nil && strings.HasPrefix(args[len(args)-1], "https://") {
		more, err := secrets.Environment()
		if err != nil {
			return err
		}
		c.Env = append(c.Environ(), more...)
	}
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("belfry %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("reading what belfry %s says: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// freshServer starts a server that has nothing to do with the lab, and returns where it serves and what ends it.
func (s *Scene) freshServer(dir string) (url string, stop func() error, err error) {
	//nolint:noctx // it lives until it is stopped
	c := exec.Command(s.Lab.Program(), "serve", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--shards", "3", "--print-addresses")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.StdoutPipe()
	if err != nil {
		return "", nil, fmt.Errorf("starting a server for a backup: %w", err)
	}
	if err := c.Start(); err != nil {
		return "", nil, fmt.Errorf("starting a server for a backup: %w", err)
	}
	kill := time.AfterFunc(backupMax, func() { _ = c.Process.Kill() }) // or it has ended
	stop = func() error {
		kill.Stop()
		_ = c.Process.Signal(syscall.SIGTERM) // or it has ended, which Wait says
		kill.Reset(backupMax)
		defer kill.Stop()
		if err := c.Wait(); err != nil {
			return fmt.Errorf("the server into which a backup was restored: %w: %s", err, bytes.TrimSpace(said.Bytes()))
		}
		return nil
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var at struct {
		Listen string `json:"listen"`
	}
	if err == nil {
		err = json.Unmarshal(line, &at)
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("the server into which a backup is to be restored: %w", err), stop())
	}
	return "http://" + at.Listen, stop, nil
}
