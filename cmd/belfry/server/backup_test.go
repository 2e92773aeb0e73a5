package server_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/cmd/belfry/server"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/backup"
	"github.com/belfrydb/belfry/fsm/digest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
)

func admin(s *server.Server) belfryv1connect.AdminServiceClient {
	return belfryv1connect.NewAdminServiceClient(http.DefaultClient, s.URL())
}

// alone starts a server of so many shards that has no other.
func alone(t *testing.T, shards int) *server.Server {
	t.Helper()
	cfg := config(t, t.TempDir())
	cfg.Alone, cfg.Shards = true, shards
	return start(t, cfg)
}

// fill puts jobs in all states into several queues, and ends some. It returns a lease that is held.
func fill(t *testing.T, s *server.Server, partitions uint32) (lease string) {
	t.Helper()
	ctx, q, a := t.Context(), queues(s), admin(s)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.CreateQueue(ctx, &belfryv1.CreateQueueRequest{
		Queue: "parts", Partitions: partitions, Settings: &belfryv1.QueueSettings{Ttr: durationpb.New(time.Hour)},
	})
	must(err)
	for i := range 60 {
		_, err = q.Put(ctx, &belfryv1.PutRequest{
			Queue: "parts", Id: "id" + strconv.Itoa(i),
			When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Duration(i) * time.Hour)},
			Body: &belfryv1.PutRequest_Data{Data: bytes.Repeat([]byte{byte(i)}, 100*i)},
		})
		must(err)
	}
	for _, name := range []string{"one", "ns/two", "three", "four"} {
		for i := range 12 {
			id := ""
			if i%2 == 0 {
				id = "order-" + strconv.Itoa(i)
			}
			_, err = q.Put(ctx, &belfryv1.PutRequest{
				Queue: name, Id: id, Body: &belfryv1.PutRequest_Text{Text: name}, Headers: map[string]string{"a": "b"},
			})
			must(err)
		}
		reserved, err := q.Reserve(ctx, &belfryv1.ReserveRequest{
			Queues: []string{name}, MaxJobs: 8, Ttr: durationpb.New(time.Hour),
		})
		must(err)
		if len(reserved.Jobs) != 8 {
			t.Fatalf("%d jobs reserved", len(reserved.Jobs))
		}
		for i, j := range reserved.Jobs {
			switch i % 4 {
			case 0:
				_, err = q.Ack(ctx, &belfryv1.AckRequest{Lease: j.Lease})
			case 1:
				dead := true
				_, err = q.Nack(ctx, &belfryv1.NackRequest{Lease: j.Lease, Error: "no", Dead: dead})
			case 2:
				_, err = q.Nack(ctx, &belfryv1.NackRequest{Lease: j.Lease, Error: "later", Delay: durationpb.New(time.Hour)})
			default:
				lease = j.Lease
			}
			must(err)
		}
	}
	return lease
}

// backupOf returns a backup of the server's cluster.
func backupOf(t *testing.T, s *server.Server) []byte {
	t.Helper()
	stream, err := admin(s).Backup(t.Context(), &belfryv1.BackupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var raw []byte
	for stream.Receive() {
		if n := len(stream.Msg().Data); n > 512<<10 {
			t.Errorf("a message of %d bytes", n)
		}
		raw = append(raw, stream.Msg().Data...)
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		t.Fatal(err)
	}
	return raw
}

// restore sends a backup in messages of the given size.
func restore(t *testing.T, s *server.Server, raw []byte, size int) (*belfryv1.RestoreResponse, error) {
	t.Helper()
	stream, err := admin(s).Restore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(raw, size) {
		if err := stream.Send(&belfryv1.RestoreRequest{Data: part}); err != nil {
			break // the answer says why
		}
	}
	return stream.CloseAndReceive()
}

// content is what a backup holds of queues: the sum of the hashes of its records, without what
// belongs to one cluster only.
type content struct {
	sum    uint64
	totals backup.Totals
	states map[fsm.State]int
}

func read(t *testing.T, raw []byte) content {
	t.Helper()
	in, err := backup.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := content{states: map[fsm.State]int{}}
	for {
		r, err := in.Next()
		if errors.Is(err, io.EOF) {
			c.totals = in.Totals()
			return c
		}
		var q fsm.QueueRecord
		var j fsm.Job
		var id [16]byte
		var s fsm.Tombstone
		if err == nil {
			switch r.Kind {
			case fsm.BackupQueue:
				q, err = backup.ParseQueue(&r)
				q.CreateSeq, q.Version = 0, 0
				c.sum += digest.Queue(&q)
			case fsm.BackupJob:
				j, id, err = backup.ParseJob(&r)
				c.sum += digest.Job(&j, id)
				c.states[j.State]++
			case fsm.BackupTombstone:
				s, err = backup.ParseTombstone(&r)
				c.sum += digest.Tombstone(&s)
				c.states[s.State]++
			default:
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestBackupIntoOtherNumbersOfShards brings jobs in all states from 2 shards into 6, from there
// into 2, and each time they are the same.
func TestBackupIntoOtherNumbersOfShards(t *testing.T) {
	t.Parallel()
	first := alone(t, 2)
	lease := fill(t, first, 2)
	raw := backupOf(t, first)
	want := read(t, raw)
	for _, state := range []fsm.State{fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead, fsm.Acked} {
		if want.states[state] == 0 {
			t.Errorf("the backup holds nothing in state %d", state)
		}
	}
	for _, shards := range []int{6, 2, 3} {
		next := alone(t, shards)
		answer, err := restore(t, next, raw, 300)
		if err != nil {
			t.Fatalf("%d shards: %v", shards, err)
		}
		if answer.Jobs != want.totals.Jobs || answer.Queues != want.totals.Queues ||
			answer.Remembered != want.totals.Tombstones {
			t.Errorf("%d shards: restored %v, want %+v", shards, answer, want.totals)
		}
		raw = backupOf(t, next)
		if got := read(t, raw); got.sum != want.sum || got.totals.Jobs != want.totals.Jobs {
			t.Errorf("%d shards: the records have the sum %016x, not %016x: %+v, want %+v", shards, got.sum, want.sum, got, want)
		}
		q := queues(next)
		put, err := q.Put(t.Context(), &belfryv1.PutRequest{
			Queue: "parts", Id: "id3", When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(3 * time.Hour)},
			Body: &belfryv1.PutRequest_Data{Data: bytes.Repeat([]byte{3}, 300)},
		})
		if err != nil || put.Created {
			t.Errorf("%d shards: a put again: %v, %v; want the first answer", shards, put, err)
		}
		put, err = q.Put(t.Context(), &belfryv1.PutRequest{Queue: "one"})
		if err != nil {
			t.Fatal(err)
		}
		if _, serial, ok := fsm.ParseID(put.Id); !ok || serial <= want.totals.Serial {
			t.Errorf("%d shards: the first id is %s, the backup reaches serial %d", shards, put.Id, want.totals.Serial)
		}
		if shards == 3 {
			if _, err := q.Ack(t.Context(), &belfryv1.AckRequest{Lease: lease}); err != nil {
				t.Errorf("a lease from before the backup: %v", err)
			}
		}
	}
}

// TestRestoreRefuses says why a backup cannot be restored, and leaves the cluster as it was.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	source := alone(t, 3)
	fill(t, source, 3)
	raw := backupOf(t, source)
	occupied := alone(t, 3)
	if _, err := queues(occupied).Put(t.Context(), &belfryv1.PutRequest{Queue: "mine"}); err != nil {
		t.Fatal(err)
	}
	refused := func(s *server.Server, raw []byte, reason belfryv1.Reason, words string) {
		t.Helper()
		_, err := restore(t, s, raw, 100_000)
		f, ok := fault.FromConnect(err)
		if !ok || f.Reason != reason || !strings.Contains(f.Message, words) {
			t.Errorf("restoring: %v, want %v and %q", err, reason, words)
		}
		if _, err := queues(s).Put(t.Context(), &belfryv1.PutRequest{Queue: "mine"}); err != nil {
			t.Errorf("a put after the refusal: %v", err)
		}
	}
	refused(occupied, raw, belfryv1.Reason_REASON_QUEUE_EXISTS, "without queues; this one has mine")
	refused(alone(t, 2), raw, belfryv1.Reason_REASON_INVALID,
		`parts has 3. Nothing was restored; found a cluster with --shards 3 or more`)
	refused(alone(t, 1), raw[8:], belfryv1.Reason_REASON_INVALID, "at byte 0")
	refused(alone(t, 1), nil, belfryv1.Reason_REASON_INVALID, "no backup")
}

// TestInterruptedRestore: a restore that ended in the middle leaves a cluster that does nothing,
// until it is repeated.
func TestInterruptedRestore(t *testing.T) {
	t.Parallel()
	source := alone(t, 2)
	fill(t, source, 2)
	raw := backupOf(t, source)
	next := alone(t, 3)
	waiting := make(chan error, 1)
	go func() {
		_, err := queues(next).Reserve(t.Context(), &belfryv1.ReserveRequest{
			Queues: []string{"one"}, Wait: durationpb.New(time.Minute),
		})
		waiting <- err
	}()
	waitForWaiters(t, next, 1) // one that comes later is refused
	for _, cut := range []int{len(raw) / 3, len(raw) / 2, len(raw) - 1} {
		_, err := restore(t, next, raw[:cut], 1000)
		if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_INVALID ||
			!strings.Contains(f.Message, "incomplete") {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	_, err := queues(next).Put(t.Context(), &belfryv1.PutRequest{Queue: "other"})
	if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_OVERLOADED ||
		!strings.Contains(f.Message, "restore") {
		t.Errorf("a put meanwhile: %v", err)
	}
	other := backupOf(t, source)
	_, err = restore(t, next, other, 1000)
	if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_QUEUE_EXISTS {
		t.Errorf("another backup meanwhile: %v", err)
	}
	if _, err := restore(t, next, raw, 1<<20-100); err != nil {
		t.Fatalf("the repeat: %v", err)
	}
	if want, got := read(t, raw), read(t, backupOf(t, next)); want.sum == 0 || got.totals.Jobs != want.totals.Jobs {
		t.Errorf("%+v, want %+v", got, want)
	}
	if err := <-waiting; err != nil {
		t.Errorf("the poll that waited over the restore: %v", err)
	}
	_, err = restore(t, next, raw, 100_000)
	if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_QUEUE_EXISTS {
		t.Errorf("the same again: %v", err)
	}
}
