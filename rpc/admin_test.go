package rpc

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// bothClients returns a client of each service.
func (s *served) bothClients() (belfryv1connect.QueueServiceClient, belfryv1connect.AdminServiceClient) {
	return belfryv1connect.NewQueueServiceClient(http.DefaultClient, s.url),
		belfryv1connect.NewAdminServiceClient(http.DefaultClient, s.url)
}

func TestCreateQueueWithPartitions(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	created, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{
		Queue: "wide", Partitions: 3, Settings: &belfryv1.QueueSettings{
			MaxJobs: proto.Uint32(9), Ttr: durationpb.New(time.Minute),
		},
	})
	if err != nil || created.GetPartitions() != 3 || created.GetSettings().GetMaxJobs() != 9 ||
		created.GetSettingsVersion() != 1 || len(created.GetWitnesses()) != 3 {
		t.Fatalf("%v, %v", created, err)
	}
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide"}); reasonOf(t,
		err) != belfryv1.Reason_REASON_QUEUE_EXISTS {
		t.Errorf("again: %v", err)
	}
	ids := map[string]bool{}
	for i := range 9 {
		req := &belfryv1.PutRequest{Queue: "wide"}
		if i%3 != 0 {
			req.RequestId = "r" + strconv.Itoa(i)
		}
		put, err := q.Put(t.Context(), req)
		if err != nil {
			if reasonOf(t, err) == belfryv1.Reason_REASON_QUEUE_FULL {
				continue // A third of the limit belongs to each partition.
			}
			t.Fatal(err)
		}
		ids[put.GetId()] = true
	}
	for id := range ids {
		if got, err := q.Get(t.Context(), &belfryv1.GetRequest{
			Queue: "wide", Id: id,
		}); err != nil || got.GetJob().GetId() != id {
			t.Errorf("%s: %v, %v", id, got, err)
		}
	}
	page, err := q.List(t.Context(), &belfryv1.ListRequest{Queue: "wide", State: belfryv1.JobState_JOB_STATE_READY})
	if err != nil || len(page.GetJobs()) != len(ids) || len(page.GetWitnesses()) != 3 {
		t.Errorf("%v, %v", page, err)
	}
	info, err := a.GetQueue(t.Context(), &belfryv1.GetQueueRequest{Queue: "wide"})
	if err != nil || int(info.GetQueue().GetCounts().GetReady()) != len(ids) || info.GetQueue().GetPartitions() != 3 ||
		info.GetQueue().GetOldestReadyAge() == nil {
		t.Errorf("%v, %v", info, err)
	}
	taken := 0
	for {
		res, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: []string{"wide"}, MaxJobs: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(res.GetJobs()) == 0 {
			break
		}
		if got := res.GetJobs()[0].GetTtr().AsDuration(); got != time.Minute {
			t.Errorf("TTR %v", got)
		}
		taken += len(res.GetJobs())
	}
	if taken != len(ids) {
		t.Errorf("%d of %d jobs", taken, len(ids))
	}
}

// TestQueueThatAPutMadeExists: a queue that a put created cannot be created again.
func TestQueueThatAPutMadeExists(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "created"}); err != nil {
		t.Fatal(err)
	}
	_, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "created", Partitions: 2})
	if f, _ := fault.FromConnect(err); f == nil || f.Reason != belfryv1.Reason_REASON_QUEUE_EXISTS || f.Field != "queue" {
		t.Errorf("%v", err)
	}
	if _, ok := s.catalog.Queue("created"); ok {
		t.Error("the catalog has it now")
	}
}

// TestPutReconcilesAShardThatDoesNotKnowTheQueue: the record is there, and a crash kept the shards
// from hearing of it.
func TestPutReconcilesAShardThatDoesNotKnowTheQueue(t *testing.T) {
	s := serve(t)
	q, _ := s.bothClients()
	if _, err := s.catalog.CreateQueue(t.Context(), "wide", 3, fsm.Settings{MaxJobs: 30}); err != nil {
		t.Fatal(err)
	}
	put, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "wide", Id: "x"})
	if err != nil || !put.GetCreated() {
		t.Errorf("%v, %v", put, err)
	}
}

// TestPutFindsThePartitionThatHasRoom: a put that may go to any is refused only when all are full.
func TestPutFindsThePartitionThatHasRoom(t *testing.T) {
	s := serve(t)
	q, _ := s.bothClients()
	if _, err := s.catalog.CreateQueue(t.Context(), "wide", 3, fsm.Settings{MaxJobs: 30}); err != nil {
		t.Fatal(err)
	}
	for i, full := 0, 0; full < 10; i++ { // one partition is full before the others have any
		if id := strconv.Itoa(i); node.PartitionOf(id, 3) == 1 {
			full++
			if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "wide", Id: id}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 10 {
		if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "wide"}); err != nil {
			t.Errorf("put %d: %v", i, err)
		}
	}
	batch := &belfryv1.PutBatchRequest{}
	for range 12 {
		batch.Jobs = append(batch.Jobs, &belfryv1.PutRequest{Queue: "wide"})
	}
	put, err := q.PutBatch(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	full := 0
	for _, r := range put.GetResults() {
		if r.GetError().GetReason() == belfryv1.Reason_REASON_QUEUE_FULL {
			full++
		}
	}
	if full != 2 {
		t.Errorf("%d of 12 puts were refused before room for ten, want two: %v", full, put)
	}
}

// TestDefaultRetryDelays: a queue has the default of the format that it was created in, and says
// that it is the default.
func TestDefaultRetryDelays(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "old"}); err != nil {
		t.Fatal(err)
	}
	s.node.Format = fsm.LatestFormat
	if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "new"}); err != nil {
		t.Fatal(err)
	}
	second := []*durationpb.Duration{durationpb.New(time.Second)}
	growing := wire.Durations(fsm.DefaultRetryDelays(fsm.LatestFormat))
	for _, step := range []struct {
		name, queue string
		set         *belfryv1.QueueSettings
		want        []*durationpb.Duration
		isDefault   bool
	}{
		{"an old queue", "old", &belfryv1.QueueSettings{MaxJobs: proto.Uint32(9)}, nil, true},
		{"a new queue", "new", &belfryv1.QueueSettings{MaxJobs: proto.Uint32(9)}, growing, true},
		{"given", "new", &belfryv1.QueueSettings{RetryDelays: second}, second, false},
		{"what an answer said", "new", &belfryv1.QueueSettings{
			RetryDelays: growing, RetryDelaysDefault: proto.Bool(true),
		}, growing, true},
		{"at once", "new", &belfryv1.QueueSettings{RetryDelays: []*durationpb.Duration{{}}}, []*durationpb.Duration{{}},
			false},
		{"the default again", "new", &belfryv1.QueueSettings{RetryDelaysDefault: proto.Bool(true)}, growing, true},
	} {
		updated, err := a.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{Queue: step.queue, Settings: step.set})
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		read, err := a.GetQueue(t.Context(), &belfryv1.GetQueueRequest{Queue: step.queue})
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		for from, got := range map[string]*belfryv1.QueueSettings{
			"updated": updated.GetSettings(), "read": read.GetQueue().GetSettings(),
		} {
			if diff := cmp.Diff(step.want, got.GetRetryDelays(), protocmp.Transform()); diff != "" ||
				got.GetRetryDelaysDefault() != step.isDefault {
				t.Errorf("%s, %s: the default: %v, (-want +got):\n%s", step.name, from, got.GetRetryDelaysDefault(), diff)
			}
		}
	}
	_, err := a.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{
		Queue: "new", Settings: &belfryv1.QueueSettings{RetryDelays: second, RetryDelaysDefault: proto.Bool(true)},
	})
	if f, ok := fault.FromConnect(err); !ok || f.Field != "settings.retryDelaysDefault" {
		t.Errorf("the default and other delays: %v", err)
	}
	created, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "created", Partitions: 2})
	if diff := cmp.Diff(growing, created.GetSettings().GetRetryDelays(), protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("created: %v, (-want +got):\n%s", err, diff)
	}
}

// settingStep is a change of a queue's settings and its effect on what they were.
type settingStep struct {
	name   string
	set    *belfryv1.QueueSettings
	effect func(*belfryv1.QueueSettings)
}

// settingSteps change each setting, one after the other.
func settingSteps(until *timestamppb.Timestamp) []settingStep {
	return []settingStep{
		{"TTR", &belfryv1.QueueSettings{Ttr: durationpb.New(time.Second)}, func(w *belfryv1.QueueSettings) {
			w.Ttr = durationpb.New(time.Second)
		}},
		{"no limit of attempts", &belfryv1.QueueSettings{MaxAttempts: proto.Uint32(0)}, func(w *belfryv1.QueueSettings) {
			w.MaxAttempts = proto.Uint32(0)
		}},
		{"retry delays", &belfryv1.QueueSettings{RetryDelays: []*durationpb.Duration{durationpb.New(0),
			durationpb.New(2 * time.Minute)}}, func(w *belfryv1.QueueSettings) {
			w.RetryDelays, w.RetryDelaysDefault = []*durationpb.Duration{durationpb.New(0), durationpb.New(2 * time.Minute)},
				proto.Bool(false)
		}},
		{"no other retry delays", &belfryv1.QueueSettings{RetryDelaysDefault: proto.Bool(false)},
			func(*belfryv1.QueueSettings) {}},
		{"the default retry delays", &belfryv1.QueueSettings{RetryDelaysDefault: proto.Bool(true)},
			func(w *belfryv1.QueueSettings) {
				w.RetryDelays, w.RetryDelaysDefault = nil, proto.Bool(true) // of a queue of the first format
			}},
		{"no dedup window", &belfryv1.QueueSettings{DedupWindow: durationpb.New(0)}, func(w *belfryv1.QueueSettings) {
			w.DedupWindow = durationpb.New(0)
		}},
		{"dedup for ever", &belfryv1.QueueSettings{DedupForever: proto.Bool(true)}, func(w *belfryv1.QueueSettings) {
			w.DedupForever = proto.Bool(true)
		}},
		{"limits", &belfryv1.QueueSettings{
			MaxInFlight: proto.Uint32(1), MaxJobs: proto.Uint32(2), MaxBytes: proto.Uint64(3), PutsPerSecond: proto.Uint32(4),
		}, func(w *belfryv1.QueueSettings) {
			w.MaxInFlight, w.MaxJobs, w.MaxBytes, w.PutsPerSecond = proto.Uint32(1), proto.Uint32(2), proto.Uint64(3),
				proto.Uint32(4)
		}},
		{"one limit off", &belfryv1.QueueSettings{MaxJobs: proto.Uint32(0)}, func(w *belfryv1.QueueSettings) {
			w.MaxJobs = proto.Uint32(0)
		}},
		{"spread", &belfryv1.QueueSettings{Overdue: &belfryv1.OverduePolicy{
			Mode: belfryv1.OverdueMode_OVERDUE_MODE_SPREAD, Period: durationpb.New(time.Hour),
		}}, func(w *belfryv1.QueueSettings) {
			w.Overdue.Mode, w.Overdue.Period = belfryv1.OverdueMode_OVERDUE_MODE_SPREAD, durationpb.New(time.Hour)
		}},
		{"drop", &belfryv1.QueueSettings{Overdue: &belfryv1.OverduePolicy{
			Mode: belfryv1.OverdueMode_OVERDUE_MODE_DROP, OverdueAfter: durationpb.New(time.Hour),
		}}, func(w *belfryv1.QueueSettings) {
			w.Overdue = &belfryv1.OverduePolicy{
				Mode: belfryv1.OverdueMode_OVERDUE_MODE_DROP, OverdueAfter: durationpb.New(time.Hour),
			}
		}},
		{"expire to dead", &belfryv1.QueueSettings{ExpireTo: belfryv1.ExpireTo_EXPIRE_TO_DEAD.Enum()},
			func(w *belfryv1.QueueSettings) {
				w.ExpireTo = belfryv1.ExpireTo_EXPIRE_TO_DEAD.Enum()
			}},
		{"pause for an hour", &belfryv1.QueueSettings{PausedUntil: until}, func(w *belfryv1.QueueSettings) {
			w.Paused, w.PausedUntil = proto.Bool(true), until
		}},
		{"resume", &belfryv1.QueueSettings{Paused: proto.Bool(false)}, func(w *belfryv1.QueueSettings) {
			w.Paused, w.PausedUntil = proto.Bool(false), nil
		}},
		{"pause", &belfryv1.QueueSettings{Paused: proto.Bool(true)}, func(w *belfryv1.QueueSettings) {
			w.Paused = proto.Bool(true)
		}},
	}
}

func TestUpdateQueueChangesWhatIsSet(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "a"}); err != nil {
		t.Fatal(err)
	}
	until := timestamppb.New(time.Now().Add(time.Hour).Truncate(time.Millisecond))
	want := &belfryv1.QueueSettings{
		Ttr: durationpb.New(30 * time.Second), MaxAttempts: proto.Uint32(16), DedupWindow: durationpb.New(10 * time.Minute),
		DedupForever: proto.Bool(false), MaxInFlight: proto.Uint32(0), MaxJobs: proto.Uint32(0), MaxBytes: proto.Uint64(0),
		PutsPerSecond: proto.Uint32(0), ExpireTo: belfryv1.ExpireTo_EXPIRE_TO_GONE.Enum(), Paused: proto.Bool(false),
		RetryDelaysDefault: proto.Bool(true), KeyConcurrency: proto.Uint32(0), KeyOrdered: proto.Bool(false),
		KeyFair: proto.Bool(false), HoldOnDead: proto.Bool(false), NoKeys: proto.Bool(false),
		Overdue: &belfryv1.OverduePolicy{
			Mode: belfryv1.OverdueMode_OVERDUE_MODE_FIRE, OverdueAfter: durationpb.New(time.Minute),
		},
	}
	version := uint64(0)
	for _, step := range settingSteps(until) {
		got, err := a.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{Queue: "a", Settings: step.set})
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		step.effect(want)
		if diff := cmp.Diff(want, got.GetSettings(), protocmp.Transform(), protocmp.IgnoreEmptyMessages()); diff != "" {
			t.Errorf("%s:\n%s", step.name, diff)
		}
		if got.GetSettingsVersion() <= version || len(got.GetPendingShards()) != 0 {
			t.Errorf("%s: %v", step.name, got)
		}
		version = got.GetSettingsVersion()
		read, err := a.GetQueue(t.Context(), &belfryv1.GetQueueRequest{Queue: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, read.GetQueue().GetSettings(), protocmp.Transform(),
			protocmp.IgnoreEmptyMessages()); diff != "" || read.GetQueue().GetSettingsVersion() != version {
			t.Errorf("%s, read back:\n%s", step.name, diff)
		}
	}
	if res, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: []string{"a"}}); err != nil ||
		len(res.GetJobs()) != 0 {
		t.Errorf("a paused queue gave %v, %v", res, err)
	}
}

// TestUpdateQueueListsPendingShards: a shard that cannot be reached is listed, and does not fail
// the others.
func TestUpdateQueueListsPendingShards(t *testing.T) {
	s := serve(t)
	_, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	s.node.Fail = func(shard uint32) error {
		if shard == 1 {
			return nodeNoLeader()
		}
		return nil
	}
	got, err := a.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{
		Queue: "wide", Settings: &belfryv1.QueueSettings{Paused: proto.Bool(true)},
	})
	if err != nil || len(got.GetWitnesses()) != 2 || len(got.GetPendingShards()) != 1 || got.GetPendingShards()[0] != 1 {
		t.Errorf("%v, %v", got, err)
	}
	// The record is changed although no shard can be told: to say that nothing was applied would be
	// wrong.
	s.node.Fail = func(uint32) error { return nodeNoLeader() }
	got, err = a.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{
		Queue: "wide", Settings: &belfryv1.QueueSettings{Paused: proto.Bool(false)},
	})
	if held, _ := s.catalog.Queue("wide"); err != nil || len(got.GetPendingShards()) != 3 ||
		len(got.GetWitnesses()) != 0 || held.Settings.Paused || got.GetSettingsVersion() != held.Version {
		t.Errorf("%v, %v; recorded %+v", got, err, held)
	}
}

func TestPurgeAndDelete(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	fill := func() {
		t.Helper()
		for i := range 6 {
			req := &belfryv1.PutRequest{Queue: "a"}
			if i < 2 {
				req.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Hour)}
			}
			if _, err := q.Put(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: []string{"a"}}); err != nil {
			t.Fatal(err)
		}
	}
	purge := func(req *belfryv1.PurgeQueueRequest) uint32 {
		t.Helper()
		req.Queue = "a"
		res, err := a.PurgeQueue(t.Context(), req)
		if err != nil || len(res.GetWitnesses()) == 0 {
			t.Fatalf("%v, %v", res, err)
		}
		return res.GetPurged()
	}
	fill()
	if n := purge(&belfryv1.PurgeQueueRequest{Max: 1}); n != 1 {
		t.Errorf("max 1: %d", n)
	}
	if n := purge(&belfryv1.PurgeQueueRequest{States: []belfryv1.JobState{belfryv1.JobState_JOB_STATE_DELAYED}}); n != 1 {
		t.Errorf("delayed: %d", n)
	}
	if n := purge(&belfryv1.PurgeQueueRequest{}); n != 3 {
		t.Errorf("all that is not reserved: %d", n)
	}
	if n := purge(&belfryv1.PurgeQueueRequest{States: []belfryv1.JobState{belfryv1.JobState_JOB_STATE_RESERVED}}); n != 1 {
		t.Errorf("reserved: %d", n)
	}
	if _, err := a.PurgeQueue(t.Context(), &belfryv1.PurgeQueueRequest{Queue: "nix"}); reasonOf(t,
		err) != belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		t.Errorf("%v", err)
	}
	fill()
	res, err := a.DeleteQueue(t.Context(), &belfryv1.DeleteQueueRequest{Queue: "a", RequestId: "d-1"})
	if err != nil || res.GetPurged() != 6 {
		t.Errorf("%v, %v", res, err)
	}
	if _, err := a.GetQueue(t.Context(), &belfryv1.GetQueueRequest{Queue: "a"}); reasonOf(t,
		err) != belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		t.Errorf("%v", err)
	}
	if again, err := a.DeleteQueue(t.Context(), &belfryv1.DeleteQueueRequest{
		Queue: "a", RequestId: "d-1",
	}); err != nil || again.GetPurged() != 6 {
		t.Errorf("repeated: %v, %v", again, err)
	}
	if _, err := a.DeleteQueue(t.Context(), &belfryv1.DeleteQueueRequest{Queue: "a"}); reasonOf(t,
		err) != belfryv1.Reason_REASON_QUEUE_NOT_FOUND {
		t.Errorf("%v", err)
	}
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.DeleteQueue(t.Context(), &belfryv1.DeleteQueueRequest{Queue: "wide"}); err != nil {
		t.Error(err)
	}
	if _, ok := s.catalog.Queue("wide"); ok {
		t.Error("the record is still there")
	}
}

// TestPurgeInSteps: a command of the machine is bounded, the call is not.
func TestPurgeInSteps(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	jobs := make([]*belfryv1.PutRequest, 1000)
	for i := range jobs {
		jobs[i] = &belfryv1.PutRequest{Queue: "a"}
	}
	for range 9 {
		if _, err := q.PutBatch(t.Context(), &belfryv1.PutBatchRequest{Jobs: jobs}); err != nil {
			t.Fatal(err)
		}
	}
	if res, err := a.PurgeQueue(t.Context(), &belfryv1.PurgeQueueRequest{
		Queue: "a", Max: 4100, RequestId: "p",
	}); err != nil || res.GetPurged() != 4100 {
		t.Errorf("%v, %v", res, err)
	}
	if res, err := a.PurgeQueue(t.Context(), &belfryv1.PurgeQueueRequest{Queue: "a"}); err != nil ||
		res.GetPurged() != 4900 {
		t.Errorf("%v, %v", res, err)
	}
}

func TestGetQueueFigures(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	for _, req := range []*belfryv1.PutRequest{
		{Queue: "a", Id: "1", Body: &belfryv1.PutRequest_Text{Text: "12345"}, Headers: map[string]string{"k": "v"}},
		{Queue: "a", Id: "2", Priority: proto.Int64(1)},
		{Queue: "a", Id: "3", When: &belfryv1.PutRequest_DueAt{DueAt: timestamppb.New(due)}},
	} {
		if _, err := q.Put(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	res, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: []string{"a"}})
	if err != nil || len(res.GetJobs()) != 1 {
		t.Fatalf("%v, %v", res, err)
	}
	got, err := a.GetQueue(t.Context(), &belfryv1.GetQueueRequest{Queue: "a"})
	if err != nil {
		t.Fatal(err)
	}
	info := got.GetQueue()
	wantCounts := &belfryv1.JobCounts{Delayed: 1, Ready: 1, Reserved: 1}
	if diff := cmp.Diff(wantCounts, info.GetCounts(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	wantTotals := &belfryv1.QueueTotals{Puts: 3, Reserves: 1}
	if diff := cmp.Diff(wantTotals, info.GetTotals(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if info.GetBytes() != 10 || !info.GetNextDueAt().AsTime().Equal(due) || info.GetOldestReadyAge().AsDuration() <= 0 ||
		info.GetAsOf() == nil {
		t.Errorf("%v", info)
	}
	if info.GetLateness().GetJobs() != 1 || info.GetRates().GetPutsPerSecond() != 3.0/60 ||
		info.GetRates().GetReservesPerSecond() != 1.0/60 {
		t.Errorf("%v", info)
	}
	if _, err := q.Ack(t.Context(), &belfryv1.AckRequest{Lease: res.GetJobs()[0].GetLease()}); err != nil {
		t.Fatal(err)
	}
	if got, err = a.GetQueue(t.Context(), &belfryv1.GetQueueRequest{Queue: "a"}); err != nil ||
		got.GetQueue().GetRates().GetAcksPerSecond() != 1.0/60 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestCatalogErrorsReachTheCaller(t *testing.T) {
	s := serve(t, func(c *Config) { c.Catalog = brokenCatalog{backendtest.NewCatalog()} })
	_, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "a"}); reasonOf(t,
		err) != belfryv1.Reason_REASON_UNKNOWN_OUTCOME {
		t.Errorf("%v", err)
	}
}

// brokenCatalog does not know what became of its records.
type brokenCatalog struct{ *backendtest.Catalog }

func (brokenCatalog) CreateQueue(context.Context, string, uint32, fsm.Settings) (backend.QueueConfig, error) {
	return backend.QueueConfig{}, nodeUnknown()
}
