package nemesis

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/belfrydb/belfry/fsm"
)

// jobKey names a job in a backup. Partitions of a queue are in several shards, each of which has serials of its own.
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

// queueHeld is what lasts of such a partition.
type queueHeld struct {
	partitions uint32
	settings   fsm.Settings
}

// held is what a backup holds.
type held struct {
	jobs       map[jobKey]fsm.Job
	queues     map[queueKey]queueHeld
	catalog    map[string]fsm.CatalogQueue
	namespaces map[string]fsm.CatalogNamespace
	// partitions are those of the queues of the shard at hand: the record of a job does not say of which one it is.
	partitions map[string]uint32
}

func newHeld() *held {
	return &held{jobs: map[jobKey]fsm.Job{}, queues: map[queueKey]queueHeld{}, catalog: map[string]fsm.CatalogQueue{},
		namespaces: map[string]fsm.CatalogNamespace{}}
}

// heldIn returns what a backup holds.
func heldIn(path string) (*held, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading a backup: %w", err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	in, err := fsm.NewBackupReader(bufio.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("reading a backup: %w", err)
	}
	h := newHeld()
	for {
		record, err := in.Next()
		if errors.Is(err, io.EOF) {
			return h, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading a backup: %w", err)
		}
		record.Data = bytes.Clone(record.Data) // what is read of it stays
		if err := h.add(&record); err != nil {
			return nil, fmt.Errorf("reading a backup: %w", err)
		}
	}
}

// add adds a record.
func (h *held) add(record *fsm.BackupRecord) error {
	switch record.Kind {
	case fsm.BackupCatalog:
		q, err := record.Catalog()
		return addOne(h.catalog, q.Name, q, err)
	case fsm.BackupNamespace:
		n, err := record.Namespace()
		return addOne(h.namespaces, n.Name, n, err)
	case fsm.BackupShard:
		h.partitions = map[string]uint32{}
		return nil
	case fsm.BackupQueue:
		q, err := record.Queue()
		h.partitions[q.Name] = q.Partition
		return addOne(h.queues, queueKey{q.Name, q.Partition}, queueHeld{q.Partitions, q.Settings}, err)
	case fsm.BackupJob:
		job, _, err := record.Job()
		job.Partition = h.partitions[job.Queue]
		return addOne(h.jobs, jobKey{job.Queue, job.Partition, job.Serial}, job, err)
	default:
		return nil
	}
}

// addOne adds what was read, unless it could not be, or is there already.
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

// sameAs compares a backup with one of a server into which it was restored, and that did nothing else.
func (h *held) sameAs(after *held) error {
	return errors.Join(sameJobs(h.jobs, after.jobs), same("partition", h.queues, after.queues),
		same("queue of the catalog", h.catalog, after.catalog),
		same("quota", h.namespaces, after.namespaces))
}

// same says which of some things were not restored, or as others.
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

// sameJobs compares the jobs of a backup with those of a server into which it was restored, and
// that did nothing else: time has passed there, so a job may have fallen due, and a lease may have
// lapsed.
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
		j.Attempt, j.Redrives, j.Fence, j.Until, j.LeaseTTR, j.Died, j.Due, j.LastError = had.Attempt, had.Redrives,
			had.Fence, had.Until, had.LeaseTTR, had.Died, had.Due, had.LastError
		j.State = had.State
	case had.State == fsm.Delayed && j.State == fsm.Ready:
		j.State = had.State
	}
	return j
}
