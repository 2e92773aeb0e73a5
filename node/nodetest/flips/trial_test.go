package flips

import (
	"errors"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node/nodetest"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// reopened opens the files of a member on a copy of its disk, as after a kill, and returns the copy
// and what they hold.
func (w *world) reopened(disk *diskfault.Disk, name string) (copied *diskfault.Disk, held *contents, err error) {
	copied = disk.Clone()
	dir := shardDir(name)
	if w.options.repair != nil {
		w.options.repair(copied, dir)
	}
	group, err := storage.Named(dir, copied)
	if err != nil {
		return nil, nil, err
	}
	s, err := storage.Open(dir, storage.Config{
		Group: group, FS: copied, Mode: storage.MustExist, SegmentBytes: 4 * segmentBytes,
	})
	if err != nil {
		return nil, nil, err
	}
	held, err = read(s)
	return copied, held, errors.Join(err, s.Close())
}

// draw decides on damage to what a member needs. Files that it has given up and not removed yet are
// gone once its group is opened again.
func (w *world) draw(m *nodetest.Member, running bool) *damage {
	w.Helper()
	synctest.Wait() // what is being written or removed
	disk := w.disk(m.Name())
	needed, _, err := w.reopened(disk, m.Name())
	if err != nil {
		w.Fatalf("the files of %s before the damage: %v", m.Name(), err)
	}
	return draw(w.random, disk, targets(needed, dataDir), running)
}

// die stops a member in one of the ways in which a process ends.
func (w *world) die(m *nodetest.Member) (powerCut bool) {
	switch w.random.IntN(3) {
	case 0:
		w.cluster.Stop(m)
		return false
	case 1:
		w.fork(m, diskfault.KeepAll, diskfault.KeepNames)
		return false
	default:
		if w.random.IntN(2) == 0 {
			w.pass(2 * time.Second) // the mark of the log is synced within one
		}
		w.fork(m, diskfault.LoseAll, diskfault.LoseNames)
		return true
	}
}

// fork ends a member's life with what its disk holds now. No member hears what it does afterwards.
func (w *world) fork(m *nodetest.Member, fate diskfault.Fate, names diskfault.Names) {
	w.cluster.Isolate(m)
	next := w.disk(m.Name()).Fork(fate, names)
	w.cluster.Stop(m)
	w.setDisk(m.Name(), next)
}

// victim returns the leader in half of the cases.
func (w *world) victim() *nodetest.Member {
	if w.random.IntN(2) == 0 {
		return w.cluster.Leader(shard)
	}
	return w.any()
}

// atRest damages the disk of a member while it is stopped.
func (w *world) atRest() {
	w.Helper()
	m := w.victim()
	cut := w.die(m)
	disk := w.disk(m.Name())
	sound := disk.Clone()
	d := w.draw(m, false)
	d.inflict(disk)
	expected := w.expect(m, d, sound)
	w.logf("%s at rest (%s, cut %v), %v, expected %v", m.Name(), m.ServerID, cut, d, expected)
	w.put(1 + w.random.IntN(3)) // the others go on
	if expected == lastBatch && cut {
		w.report.note(d, false, lastBatch)
		w.setDisk(m.Name(), sound) // a member that starts with less than was acknowledged may lose it
		w.cluster.Start(m)
		return
	}
	if expected == violated && !w.options.blind {
		w.report.note(d, false, violated)
		w.Fatalf("%s, %v", m.Name(), d)
	}
	result := w.start(m, d, d.matters(nil))
	w.report.note(d, false, result)
	w.logf("%v", result)
	switch result {
	case unread:
		if expected != unread && !w.options.blind {
			w.Errorf("%s started, %v, although its files are damaged", m.Name(), d)
		}
		w.lead(m)
		w.put(1)
	case reported, foundLive:
		w.put(1 + w.random.IntN(3))
		if w.random.IntN(4) == 0 {
			w.replace(m)
			return
		}
		// The operator repairs the file from a copy that was made after the stop.
		w.setDisk(m.Name(), sound)
		w.cluster.Start(m)
	default:
	}
}

// expect says what a start should make of a damaged disk: reported, unread, lastBatch or, with an
// error noted, violated.
func (w *world) expect(m *nodetest.Member, d *damage, sound *diskfault.Disk) outcome {
	_, want, err := w.reopened(sound, m.Name())
	if err != nil {
		w.Errorf("the files of %s before the damage: %v", m.Name(), err)
		return violated
	}
	damaged := w.disk(m.Name())
	_, got, err := w.reopened(damaged, m.Name())
	if err != nil {
		if wrong := blames(d, err); wrong != nil {
			w.Errorf("%v: %v", d, wrong)
			return violated
		}
		return reported
	}
	what := got.differs(want)
	if what == "" {
		return unread
	}
	if w.options.blind {
		return violated
	}
	if lostEnd(want, got, logMark(damaged.Contents(shardDir(m.Name())+"/high-water"))) {
		return lastBatch
	}
	w.Errorf("%v: %s", d, what)
	return violated
}

// start starts a member on a damaged disk, and waits until it is one of the cluster or has given
// up.
func (w *world) start(m *nodetest.Member, d *damage, matters bool) outcome {
	w.Helper()
	w.setStarting(m.Name())
	err := w.cluster.TryStart(m)
	w.setStarting("")
	if err != nil {
		if wrong := blames(d, err); wrong != nil {
			w.Errorf("%s does not start, %v: %v", m.Name(), d, wrong)
			return violated
		}
		return reported
	}
	if err := w.settle(m); err != nil {
		return w.judgeEnd(m, d, err)
	}
	if matters && !w.options.blind {
		w.Errorf("%s started as if nothing were damaged: %v", m.Name(), d)
		return violated
	}
	return unread
}

// judgeEnd looks at the reason for which a member gave up, and stops it.
func (w *world) judgeEnd(m *nodetest.Member, d *damage, err error) outcome {
	w.Helper()
	// Its process would be gone. Here it is cut off, and closed when it does not lead any more: a
	// leader that is closed hands over, for which Raft reads what cannot be read again and again
	// without a pause.
	w.pass(silence)
	w.cluster.StopFailed(m)
	w.mu.Lock()
	delete(w.gaveUp, m.Name())
	w.mu.Unlock()
	if wrong := blames(d, err); wrong != nil {
		w.Errorf("%s gave up, %v: %v", m.Name(), d, wrong)
		return violated
	}
	return foundLive
}

// settle waits until all members that run have applied the same, and returns what m gave up for if
// it did instead.
func (w *world) settle(m *nodetest.Member) (end error) {
	w.Helper()
	w.cluster.Await(fmt.Sprintf("%s has caught up or given up", m.Name()), func() bool {
		if end = w.end(m); end != nil {
			return true
		}
		applied, led := map[uint64]bool{}, false
		for _, other := range w.cluster.Members() {
			if st, ok := status(other); ok {
				applied[st.AppliedIndex], led = true, led || st.Serving
			} else if other.Node != nil {
				return false
			}
		}
		return len(applied) == 1 && led
	})
	return end
}

// replace gives a member an empty disk: it comes back as a stranger, becomes a voter, and the
// server that it was is removed.
func (w *world) replace(m *nodetest.Member) {
	w.Helper()
	old := m.ServerID
	w.logf("%s is replaced", old)
	w.setDisk(m.Name(), diskfault.New())
	w.cluster.Start(m)
	w.cluster.Join(m)
	for range perseverance {
		if err := w.cluster.Leader(shard).Node.RemoveServer(w.Context(), shardName, old, 0); err == nil {
			w.report.Replaced++
			return
		}
		w.pass(200 * time.Millisecond)
	}
	w.Fatalf("%s cannot be removed", old)
}

// inUse damages the disk of a member that runs. In half of the cases it leads, and another one
// needs what its files hold.
func (w *world) inUse() {
	w.Helper()
	m := w.any()
	var lagging *nodetest.Member
	if w.random.IntN(2) == 0 {
		lagging = w.any()
		for lagging == m {
			lagging = w.any()
		}
		w.lead(m)
		w.cluster.Isolate(lagging)
		w.put([]int{5, 200}[w.random.IntN(2)]) // 200 are more than a leader keeps behind its snapshot
		w.snapshot(m)
	}
	disk := w.disk(m.Name())
	d := w.draw(m, true)
	d.inflict(disk)
	wounded := disk.Clone()
	w.logf("%s in use, %v, lagging %v", m.Name(), d, lagging != nil)
	if lagging != nil {
		w.cluster.Heal(lagging)
	}
	var result outcome
	if err := w.settle(m); err != nil {
		result = w.judgeEnd(m, d, err)
	} else {
		w.put(1 + w.random.IntN(5))
		w.die(m)
		disk = w.disk(m.Name())
		needed, _, err := w.reopened(disk, m.Name())
		matters := d.matters(func(e edit) bool {
			return supersedes(disk, wounded, e) || err == nil && needed.Contents(e.file) == nil
		})
		result = w.start(m, d, matters)
		if result == unread && d.matters(nil) {
			result = superseded
		}
	}
	w.report.note(d, true, result)
	w.logf("%v", result)
	if result == reported || result == foundLive {
		w.put(1 + w.random.IntN(3))
		w.replace(m)
	}
}
