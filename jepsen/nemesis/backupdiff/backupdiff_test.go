package backupdiff

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/backup"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
)

// TestSameJobs: the restored jobs are those of the backup; only what time changes may differ.
func TestSameJobs(t *testing.T) {
	key := jobKey{"q", 0, 7}
	job := func(state fsm.State, change func(*fsm.Job)) map[jobKey]fsm.Job {
		j := fsm.Job{
			Queue: "q", Serial: 7, ID: "seven", State: state, Due: 100, FirstDue: 90, Body: []byte("body"),
			Headers:     []fsm.Header{{Name: "a", Value: "b"}},
			RetryDelays: []time.Duration{1}, Fence: 6, Attempt: 1,
		}
		change(&j)
		return map[jobKey]fsm.Job{key: j}
	}
	same := func(*fsm.Job) {}
	for _, c := range []struct {
		what string
		had  fsm.State
		now  map[jobKey]fsm.Job
		want bool
	}{
		{"the same", fsm.Delayed, job(fsm.Delayed, same), true},
		{"fallen due", fsm.Delayed, job(fsm.Ready, same), true},
		{"a lease that lapsed", fsm.Reserved, job(fsm.Ready, func(j *fsm.Job) { j.Due, j.Attempt = 200, 2 }), true},
		{"another id", fsm.Delayed, job(fsm.Delayed, func(j *fsm.Job) { j.ID = "eight" }), false},
		{"another body", fsm.Reserved, job(fsm.Ready, func(j *fsm.Job) { j.Body = []byte("bodi") }), false},
		{"another header", fsm.Dead, job(fsm.Dead, func(j *fsm.Job) { j.Headers = nil }), false},
		{"another due time", fsm.Delayed, job(fsm.Delayed, func(j *fsm.Job) { j.Due = 101 }), false},
		{"another due time when it fell due", fsm.Delayed, job(fsm.Ready, func(j *fsm.Job) { j.Due = 101 }), false},
		{"ready and delayed again", fsm.Ready, job(fsm.Delayed, same), false},
		{"risen", fsm.Dead, job(fsm.Ready, same), false},
		{"an attempt more without a lease", fsm.Ready, job(fsm.Ready, func(j *fsm.Job) { j.Attempt++ }), false},
		{"a lease that lives, with another fence", fsm.Reserved, job(fsm.Reserved, func(j *fsm.Job) { j.Fence++ }), false},
		{"gone", fsm.Delayed, nil, false},
	} {
		if err := sameJobs(job(c.had, same), c.now); (err == nil) != c.want {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	more := maps.Clone(job(fsm.Delayed, same))
	more[jobKey{"q", 0, 8}] = fsm.Job{}
	if err := sameJobs(job(fsm.Delayed, same), more); err == nil {
		t.Error("a job from nowhere was restored")
	}
}

// contentsOf returns a backup of two shards that both have job 1 of a queue, with more records of
// the catalog.
func contentsOf(t *testing.T, settings fsm.Settings, more ...fsm.BackupRecord) *Contents {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "backup"))
	if err != nil {
		t.Fatal(err)
	}
	out := backup.NewWriter(file, &backup.Header{Format: fsm.LatestFormat, Shards: 2, Parts: 2})
	for _, r := range append([]fsm.BackupRecord{backup.CatalogRecord(&backup.CatalogQueue{Name: "q", Partitions: 2,
		Settings: settings})}, more...) {
		if err := out.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	for shard := range uint32(2) {
		m := machine.New(fsm.Config{})
		commands := []fsm.Command{
			&fsm.Open{Queue: "q", Partition: shard, Partitions: 2}, &fsm.Configure{Queue: "q", Version: 1, Settings: settings},
			&fsm.Put{Queue: "q", Partition: shard, Partitions: 2, Body: []byte{byte(shard)}},
			&fsm.PauseKey{Queue: "q", Key: fmt.Sprint("k", shard)},
		}
		if _, err := m.Apply(1, codec.AppendEntryIn(nil, fsm.LatestFormat, 1e18,
			[][]byte{codec.AppendRequestIn(nil, fsm.LatestFormat, &fsm.Request{Commands: commands})})); err != nil {
			t.Fatal(err)
		}
		s := m.Snapshot()
		if err := s.Export(shard, func(*fsm.QueueRecord) bool { return true }, out.Append); err != nil {
			t.Fatal(err)
		}
		m.Release(s)
	}
	if err := errors.Join(out.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	h, err := Read(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestRead: jobs of two partitions with the same serial are kept apart, and a comparison finds what
// was not restored or differs.
func TestRead(t *testing.T) {
	quota := func(jobs uint64) fsm.BackupRecord {
		return backup.NamespaceRecord(&backup.CatalogNamespace{Name: "shop", MaxJobs: jobs})
	}
	had := contentsOf(t, fsm.Settings{MaxJobs: 7}, quota(5))
	resumed := contentsOf(t, fsm.Settings{MaxJobs: 7}, quota(5))
	delete(resumed.paused, [2]string{"q", "k1"})
	if len(had.jobs) != 2 || len(had.queues) != 2 || len(had.catalog) != 1 || len(had.namespaces) != 1 ||
		len(had.paused) != 2 {
		t.Fatalf("a backup of two partitions with a job each holds %+v", had)
	}
	for what, c := range map[string]struct {
		after *Contents
		want  string
	}{
		"the same": {contentsOf(t, fsm.Settings{MaxJobs: 7}, quota(5)), ""},
		"other settings": {contentsOf(t, fsm.Settings{MaxJobs: 8}, quota(5)),
			"the queue of the catalog q of a backup was restored as another"},
		"another quota": {contentsOf(t, fsm.Settings{MaxJobs: 7}, quota(6)),
			"the quota shop of a backup was restored as another"},
		"no quota":         {contentsOf(t, fsm.Settings{MaxJobs: 7}), "the quota shop of a backup was not restored"},
		"a key resumed":    {resumed, "the paused key [q k1] of a backup was not restored"},
		"nothing restored": {newContents(), "the partition {name:q partition:"},
	} {
		err := had.Restored(c.after)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	none := contentsOf(t, fsm.Settings{MaxJobs: 7})
	if err := none.Restored(had); err == nil || !strings.Contains(err.Error(),
		"the quota shop was restored and is not in the backup") {
		t.Errorf("a quota from nowhere: %v", err)
	}
}
