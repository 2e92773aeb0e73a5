package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/store"
)

// testHead is the head of the snapshots of the tests.
func testHead() *Head {
	return &Head{
		Format: fsm.FirstFormat, Index: 7, Digest: 0xd1e57,
		Scalars:  fsm.Scalars{Clock: 10, Serial: 11, QueuesCreated: 2, LowWater: 3},
		Restored: fsm.RestoreMark{Next: 5},
	}
}

// testStore returns a store with two queues, each with a job and a tombstone, a finished lease and
// an answer. It also returns the indexes of the jobs.
func testStore() (s *store.Store, jobs []uint32) {
	s = store.New(1)
	for i, name := range []string{"kept", "left"} {
		n := uint64(i + 1)
		q := s.AddQueue(&fsm.QueueRecord{Name: name, Partitions: 1, CreateSeq: n, Format: fsm.FirstFormat})
		held := codec.HeldJob{Flags: codec.HeldHasLease | codec.HeldHasID, Content: [16]byte{byte(n)}}
		held.Job = fsm.Job{
			Serial: n, ID: "job of " + name, Due: 20, Created: 19, Body: []byte("body"), Fence: 8, Until: 30, LastError: "oh",
		}
		job := s.AddHeld(q, &held)
		s.EditSlot(job).SetState(fsm.Reserved)
		jobs = append(jobs, job)
		s.AddTombstone(q, &fsm.Tombstone{ID: "ended of " + name, Serial: 2 + n, State: fsm.Acked, FirstDue: 4, Ended: 9})
	}
	s.Finished.Add(store.FinishedLease{Fence: 6, Serial: 3, Expiry: 40})
	s.Answers.Add("caller", "request", 5, []byte("an answer"))
	return s, jobs
}

// written returns the stream of a snapshot.
func written(t *testing.T, s *Snapshot) []byte {
	t.Helper()
	var b bytes.Buffer
	if n, err := s.WriteTo(&b); err != nil || n != int64(b.Len()) {
		t.Fatalf("%d bytes of %d were written: %v", n, b.Len(), err)
	}
	return b.Bytes()
}

// readAll reads a stream to its end.
func readAll(stream []byte) (kinds []Kind, records [][]byte, err error) {
	in, err := NewReader(bytes.NewReader(stream))
	if err != nil {
		return nil, nil, err
	}
	for len(kinds) == 0 || kinds[len(kinds)-1] != KindTrailer {
		kind, record, err := in.Next()
		if err != nil {
			return kinds, records, err
		}
		kinds, records = append(kinds, kind), append(records, bytes.Clone(record))
	}
	return kinds, records, in.CheckEnd()
}

// TestStreamComesBack: the records come back in an order in which each queue precedes its jobs and
// tombstones, and the trailer counts them.
func TestStreamComesBack(t *testing.T) {
	s, _ := testStore()
	head := testHead()
	stream := written(t, New(head, s.Pin()))
	kinds, records, err := readAll(stream)
	if want := []Kind{
		KindScalars, KindRestore, KindQueue, KindQueue, KindJob, KindJob, KindTombstone, KindTombstone, KindFinished,
		KindAnswer, KindTrailer,
	}; err != nil || !slices.Equal(kinds, want) {
		t.Fatalf("%v, %v, want %v", kinds, err, want)
	}
	scalars := codec.NewReader(records[0])
	for i, want := range []uint64{7, 10, 11, 2, 3} {
		if got := scalars.Uvarint(); got != want {
			t.Errorf("value %d of the head is %d, want %d", i, got, want)
		}
	}
	for i, name := range []string{"kept", "left"} {
		queue, job, tomb := codec.NewReader(records[2+i]), codec.NewReader(records[4+i]), codec.NewReader(records[6+i])
		if q := queue.QueueRecord(); q.Name != name || q.CreateSeq != uint64(i+1) {
			t.Errorf("queue %d is %+v", i, q)
		}
		if of, j := job.Uvarint(), job.Held(); of != uint64(i+1) || j.ID != "job of "+name || j.State != fsm.Reserved ||
			j.Fence != 8 || j.LastError != "oh" || string(j.Body) != "body" || j.Content != [16]byte{byte(i + 1)} {
			t.Errorf("a job of queue %d is %+v", of, j)
		}
		if of, d := tomb.Uvarint(), tomb.Tombstone(); of != uint64(i+1) || d.ID != "ended of "+name || d.Ended != 9 {
			t.Errorf("a tombstone of queue %d is %+v", of, d)
		}
	}
	if string(records[9]) != "an answer" {
		t.Errorf("the answer is %q", records[9])
	}
	n, size := binary.Uvarint(records[10])
	if digest := binary.LittleEndian.Uint64(records[10][size:]); n != 10 || digest != head.Digest {
		t.Errorf("the trailer has %d records and the digest %x", n, digest)
	}
}

// TestReaderCountsBytes and knows the format.
func TestReaderCountsBytes(t *testing.T) {
	s, _ := testStore()
	head := testHead()
	head.Restored = fsm.RestoreMark{}
	stream := written(t, New(head, s.Pin()))
	in, err := NewReader(bytes.NewReader(stream))
	if err != nil || in.Format() != head.Format {
		t.Fatalf("format %d: %v", in.Format(), err)
	}
	for kind := Kind(0); kind != KindTrailer; {
		if kind, _, err = in.Next(); err != nil || kind == KindRestore {
			t.Fatalf("%d, %v", kind, err)
		}
	}
	if err := in.CheckEnd(); err != nil || in.Bytes() != int64(len(stream)) {
		t.Errorf("%d bytes of %d, %v", in.Bytes(), len(stream), err)
	}
}

// TestDamagedStreams: a stream that is cut short, has one wrong bit, or goes on after its end is
// damaged, or of a version that this program does not know.
func TestDamagedStreams(t *testing.T) {
	s, _ := testStore()
	stream := written(t, New(testHead(), s.Pin()))
	check := func(what string, at int, damaged []byte) {
		t.Helper()
		if _, _, err := readAll(damaged); !errors.Is(err, fsm.ErrDamaged) && !errors.Is(err, fsm.ErrVersion) {
			t.Errorf("%s at %d: %v", what, at, err)
		}
	}
	for at := range stream {
		check("cut", at, stream[:at])
		flipped := bytes.Clone(stream)
		flipped[at] ^= 1
		check("a wrong bit", at, flipped)
	}
	check("a byte more", len(stream), append(bytes.Clone(stream), 0))
}

// TestLengthsAreNotBelieved: a reader takes memory for bytes that are there, and none for a record
// above the limit.
func TestLengthsAreNotBelieved(t *testing.T) {
	for _, claimed := range []uint64{100 << 20, recordBytesMax, recordBytesMax + 1, 1 << 63} {
		stream := append([]byte(Magic), byte(fsm.FirstFormat), byte(KindAnswer))
		stream = append(binary.AppendUvarint(stream, claimed), "a few bytes"...)
		in, err := NewReader(bytes.NewReader(stream))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := in.Next(); !errors.Is(err, fsm.ErrDamaged) || cap(in.buf) > 2<<20 {
			t.Errorf("%d bytes are claimed: %v, with memory for %d", claimed, err, cap(in.buf))
		}
		if taken := cap(in.buf) > 0; taken != (claimed <= recordBytesMax) {
			t.Errorf("%d bytes are claimed: memory for %d", claimed, cap(in.buf))
		}
	}
}

// TestLargeRecordsComeWhole: memory that grows in steps loses nothing.
func TestLargeRecordsComeWhole(t *testing.T) {
	record := make([]byte, 5<<20)
	for i := range record {
		record[i] = byte(i >> 12)
	}
	stream := append([]byte(Magic), byte(fsm.FirstFormat), byte(KindAnswer))
	stream = append(binary.AppendUvarint(stream, uint64(len(record))), record...)
	stream = binary.LittleEndian.AppendUint32(stream, crc32.Checksum(stream, castagnoli))
	in, err := NewReader(bytes.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	if _, got, err := in.Next(); err != nil || !bytes.Equal(got, record) {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
	if err := in.CheckEnd(); err != nil {
		t.Error(err)
	}
}

// TestWritingBesideChanges: a snapshot is of the moment of the pin, whatever changes later.
func TestWritingBesideChanges(t *testing.T) {
	s, jobs := testStore()
	snapshot := New(testHead(), s.Pin())
	before := written(t, snapshot)
	s.SetNote(jobs[0], &store.Note{LastError: []byte("another error, which is longer")})
	s.EditSlot(jobs[0]).SetState(fsm.Ready)
	s.EditQueue(s.Slot(jobs[0]).Queue).Name = "renamed"
	s.RemoveJob(jobs[1])
	s.AddHeld(s.Slot(jobs[0]).Queue, &codec.HeldJob{Job: fsm.Job{Serial: 90, Generated: true}})
	s.Finished.Add(store.FinishedLease{Fence: 91, Serial: 90, Expiry: 50})
	s.Answers.Add("caller", "later", 6, []byte("another answer"))
	if !bytes.Equal(before, written(t, snapshot)) {
		t.Error("a change after the pin is in the stream")
	}
	s.Unpin()
	if bytes.Equal(before, written(t, New(testHead(), s.Pin()))) {
		t.Error("the changes are not in the next snapshot")
	}
}

// TestWriteErrors: the first error of the writer ends the stream and is returned.
func TestWriteErrors(t *testing.T) {
	s, _ := testStore()
	snapshot := New(testHead(), s.Pin())
	errFull := errors.New("full")
	for writes := range 2 { // the records, and the checksum
		w := &failing{left: writes + 1, err: errFull}
		if n, err := snapshot.WriteTo(w); !errors.Is(err, errFull) {
			t.Errorf("at write %d: %d bytes, %v", writes, n, err)
		}
	}
}

// A failing writer fails in one write, the last of those that are left.
type failing struct {
	left int
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	if f.left--; f.left == 0 {
		return 0, f.err
	}
	return len(p), nil
}

// TestExport: a backup has the queues that are kept with all that they hold, and no requests and
// finished leases. The first error of emit ends it.
func TestExport(t *testing.T) {
	s, _ := testStore()
	snapshot := New(testHead(), s.Pin())
	keep := func(q *fsm.QueueRecord) bool { return q.Name == "kept" }
	var kinds []fsm.BackupKind
	all := func(r fsm.BackupRecord) error {
		if kinds = append(kinds, r.Kind); bytes.Contains(r.Data, []byte("left")) {
			t.Errorf("a record of kind %d is of the queue that is left out", r.Kind)
		}
		return nil
	}
	want := []fsm.BackupKind{
		fsm.BackupShard, fsm.BackupQueue, fsm.BackupJob, fsm.BackupTombstone, fsm.BackupShardEnd,
	}
	if err := snapshot.Export(3, keep, all); err != nil || !slices.Equal(kinds, want) {
		t.Errorf("%v, %v, want %v", kinds, err, want)
	}
	errStop := errors.New("stop")
	for stop := range want {
		calls := 0
		err := snapshot.Export(3, keep, func(fsm.BackupRecord) error {
			if calls++; calls > stop {
				return errStop
			}
			return nil
		})
		if !errors.Is(err, errStop) || calls != stop+1 {
			t.Errorf("an error at record %d: %d calls, %v", stop, calls, err)
		}
	}
}
