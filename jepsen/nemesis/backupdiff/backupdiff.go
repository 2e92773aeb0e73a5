// Package backupdiff reads backups of a Belfry cluster, and compares a backup with one of the
// cluster into which it was restored. It is the one part of the faults that reads with package fsm,
// which wrote the backup.
package backupdiff

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/backup"
)

// jobKey names a job in a backup. Partitions of a queue are in several shards, each of which has
// serials of its own.
type jobKey struct {
	queue     string
	partition uint32
	serial    uint64
}

// queueKey names a partition of a queue in a backup.
type queueKey struct {
	name      string
	partition uint32
}

// queueHeld is what a backup keeps of a partition.
type queueHeld struct {
	partitions uint32
	settings   fsm.Settings
}

// Contents is what a backup holds. It must not be changed by two goroutines at a time.
type Contents struct {
	jobs       map[jobKey]fsm.Job
	queues     map[queueKey]queueHeld
	catalog    map[string]backup.CatalogQueue
	namespaces map[string]backup.CatalogNamespace
	// paused has the paused keys, each with its queue.
	paused map[[2]string]bool
	// schedules has what users say of schedules, each with its queue.
	schedules map[[2]string]fsm.Schedule
	// partitions has the partition of each queue of the shard that is being read: a job's record does
	// not name it.
	partitions map[string]uint32
}

func newContents() *Contents {
	return &Contents{jobs: map[jobKey]fsm.Job{}, queues: map[queueKey]queueHeld{},
		catalog:    map[string]backup.CatalogQueue{},
		namespaces: map[string]backup.CatalogNamespace{}, paused: map[[2]string]bool{},
		schedules: map[[2]string]fsm.Schedule{}}
}

// Read reads the backup in a file. It returns an error if the file cannot be read, is no whole
// backup, or has something twice.
func Read(path string) (*Contents, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading a backup: %w", err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	in, err := backup.NewReader(bufio.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("reading a backup: %w", err)
	}
	c := newContents()
	for {
		record, err := in.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading a backup: %w", err)
		}
		record.Data = bytes.Clone(record.Data) // the reader uses its buffer again
		if err := c.add(&record); err != nil {
			return nil, fmt.Errorf("reading a backup: %w", err)
		}
	}
}

// Jobs returns how many jobs the backup holds.
func (c *Contents) Jobs() int { return len(c.jobs) }

// Partitions returns how many partitions of queues the backup holds.
func (c *Contents) Partitions() int { return len(c.queues) }

// Namespaces returns how many namespaces the backup has a quota of.
func (c *Contents) Namespaces() int { return len(c.namespaces) }

// add adds a record.
func (c *Contents) add(record *fsm.BackupRecord) error {
	switch record.Kind {
	case fsm.BackupCatalog:
		q, err := backup.ParseCatalog(record)
		return addOne(c.catalog, q.Name, q, err)
	case fsm.BackupNamespace:
		n, err := backup.ParseNamespace(record)
		return addOne(c.namespaces, n.Name, n, err)
	case fsm.BackupShard:
		c.partitions = map[string]uint32{}
		return nil
	case fsm.BackupQueue:
		q, err := backup.ParseQueue(record)
		c.partitions[q.Name] = q.Partition
		return addOne(c.queues, queueKey{q.Name, q.Partition}, queueHeld{q.Partitions, q.Settings}, err)
	case fsm.BackupKey:
		queue, key, err := backup.ParseKey(record)
		return addOne(c.paused, [2]string{queue, key}, true, err)
	case fsm.BackupSchedule:
		s, err := backup.ParseSchedule(record)
		said := fsm.Schedule{Version: s.Version, Spec: s.Spec, Policy: s.Policy, Job: s.Job, Paused: s.Paused}
		return addOne(c.schedules, [2]string{s.Queue, s.Name}, said, err)
	case fsm.BackupJob:
		job, _, err := backup.ParseJob(record)
		job.Partition = c.partitions[job.Queue]
		return addOne(c.jobs, jobKey{job.Queue, job.Partition, job.Serial}, job, err)
	default:
		return nil
	}
}

// addOne adds one record. It returns err, or an error if the key is there already.
func addOne[K comparable, V any](all map[K]V, key K, value V, err error) error {
	if err != nil {
		return err
	}
	if _, twice := all[key]; twice {
		return fmt.Errorf("%+v is in it twice", key)
	}
	all[key] = value
	return nil
}

// Restored compares a backup with after, which is a backup of a server that did nothing but restore
// it. The error names what is missing, what is new, and what differs by more than the time that has
// passed.
func (c *Contents) Restored(after *Contents) error {
	return errors.Join(sameJobs(c.jobs, after.jobs), same("partition", c.queues, after.queues),
		same("queue of the catalog", c.catalog, after.catalog),
		same("quota", c.namespaces, after.namespaces), same("paused key", c.paused, after.paused),
		same("schedule", c.schedules, after.schedules))
}

// same names the first thing that was not restored, or differs.
func same[K comparable, V any](what string, before, after map[K]V) error {
	for key, want := range before {
		if is, restored := after[key]; !restored {
			return fmt.Errorf("the %s %+v of a backup was not restored", what, key)
		} else if !reflect.DeepEqual(want, is) {
			return fmt.Errorf("the %s %+v of a backup was restored as another:\n%+v\n%+v", what, key, want, is)
		}
	}
	for key := range after {
		if _, had := before[key]; !had {
			return fmt.Errorf("the %s %+v was restored and is not in the backup", what, key)
		}
	}
	return nil
}

// sameJobs compares the jobs of a backup with those that were restored. Time has passed since: a
// job may have fallen due, and a lease may have lapsed.
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

// lasting returns a job without what time may have changed since the backup had it.
func lasting(j, had fsm.Job) fsm.Job {
	switch {
	case had.State == fsm.Reserved && j.State != fsm.Reserved: // its lease has lapsed
		j.Attempt, j.Redrives, j.Fence, j.Until, j.LeaseTTR, j.Died, j.Due, j.LastError = had.Attempt, had.Redrives,
			had.Fence, had.Until, had.LeaseTTR, had.Died, had.Due, had.LastError
		j.State = had.State
	case had.State == fsm.Delayed && j.State == fsm.Ready:
		j.State = had.State
	}
	return j
}
