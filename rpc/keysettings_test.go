package rpc

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// faultOf returns the fault of an error that came over the wire.
func faultOf(t *testing.T, err error) *fault.Error {
	t.Helper()
	f, ok := fault.FromConnect(err)
	if !ok {
		t.Errorf("%v carries no reason", err)
		return &fault.Error{}
	}
	return f
}

func keyRate(count uint32, per time.Duration, burst uint32) *belfryv1.KeyRate {
	return &belfryv1.KeyRate{Count: count, Per: durationpb.New(per), Burst: burst}
}

// keysOf leaves only the settings of keys.
func keysOf(s *belfryv1.QueueSettings) *belfryv1.QueueSettings {
	return &belfryv1.QueueSettings{
		KeyConcurrency: s.KeyConcurrency, KeyRate: s.KeyRate, KeyOrdered: s.KeyOrdered, KeyFair: s.KeyFair,
		HoldOnDead: s.HoldOnDead, NoKeys: s.NoKeys,
	}
}

// TestUpdateQueueChangesKeys: each setting of keys changes what it names and keeps the rest, in the
// answer, in the record and in the shards.
func TestUpdateQueueChangesKeys(t *testing.T) {
	s := serve(t)
	s.node.Format = fsm.LatestFormat
	_, a := s.bothClients()
	created, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{
		Queue: "a", Settings: &belfryv1.QueueSettings{KeyConcurrency: proto.Uint32(1_000_000)},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &belfryv1.QueueSettings{
		KeyConcurrency: proto.Uint32(1_000_000), KeyRate: &belfryv1.KeyRate{}, KeyOrdered: proto.Bool(false),
		KeyFair: proto.Bool(false), HoldOnDead: proto.Bool(false), NoKeys: proto.Bool(false),
	}
	if diff := cmp.Diff(want, keysOf(created.Settings), protocmp.Transform()); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	for _, set := range []*belfryv1.QueueSettings{
		{KeyConcurrency: proto.Uint32(1)},
		{KeyRate: keyRate(10, time.Minute, 20)},
		{KeyOrdered: proto.Bool(true)},
		{KeyFair: proto.Bool(true)},
		{HoldOnDead: proto.Bool(true)},
		{NoKeys: proto.Bool(true)},
		{KeyRate: keyRate(1_000_000, time.Second, 1_000_000)},
		{KeyRate: keyRate(1, 24*time.Hour, 1)},
		{KeyRate: &belfryv1.KeyRate{}},
		{KeyConcurrency: proto.Uint32(0), KeyOrdered: proto.Bool(false), KeyFair: proto.Bool(false)},
		{HoldOnDead: proto.Bool(false), NoKeys: proto.Bool(false)},
	} {
		updated, err := a.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{Queue: "a", Settings: set})
		if err != nil {
			t.Fatalf("%v: %v", set, err)
		}
		if set.KeyRate != nil {
			want.KeyRate = nil
		}
		proto.Merge(want, set)
		read, err := a.GetQueue(t.Context(), &belfryv1.GetQueueRequest{Queue: "a"})
		if err != nil {
			t.Fatal(err)
		}
		listed, err := a.ListQueues(t.Context(), &belfryv1.ListQueuesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for name, got := range map[string]*belfryv1.QueueSettings{
			"updated": updated.Settings, "read": read.Queue.Settings, "listed": listed.Queues[0].Settings,
		} {
			if diff := cmp.Diff(want, keysOf(got), protocmp.Transform()); diff != "" {
				t.Errorf("%v: %s (-want +got):\n%s", set, name, diff)
			}
		}
	}
}

// TestBadKeySettings: each error names the field and the limit, and nothing changes.
func TestBadKeySettings(t *testing.T) {
	s := serve(t)
	s.node.Format = fsm.LatestFormat
	_, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{
		Queue: "a", Settings: &belfryv1.QueueSettings{KeyConcurrency: proto.Uint32(5)},
	}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		set         *belfryv1.QueueSettings
		field, says string
	}{
		{&belfryv1.QueueSettings{KeyConcurrency: proto.Uint32(1_000_001)}, "settings.keyConcurrency", "0 to 1000000"},
		{&belfryv1.QueueSettings{KeyRate: keyRate(1_000_001, time.Second, 0)}, "settings.keyRate.count", "0 to 1000000"},
		{&belfryv1.QueueSettings{KeyRate: keyRate(0, time.Second, 0)}, "settings.keyRate.count", "1 to 1000000"},
		{&belfryv1.QueueSettings{KeyRate: &belfryv1.KeyRate{Burst: 1}}, "settings.keyRate.count", "1 to 1000000"},
		{&belfryv1.QueueSettings{KeyRate: &belfryv1.KeyRate{Count: 1}}, "settings.keyRate.per", "1s to 24h"},
		{&belfryv1.QueueSettings{KeyRate: keyRate(1, time.Second-1, 0)}, "settings.keyRate.per", "1s to 24h"},
		{&belfryv1.QueueSettings{KeyRate: keyRate(1, 24*time.Hour+1, 0)}, "settings.keyRate.per", "1s to 24h"},
		{&belfryv1.QueueSettings{KeyRate: keyRate(1, time.Second, 1_000_001)}, "settings.keyRate.burst", "0 to 1000000"},
		{&belfryv1.QueueSettings{KeyRate: keyRate(1, 24*time.Hour, 2)}, "settings.keyRate.burst", "0 to 1;"},
		{&belfryv1.QueueSettings{KeyRate: keyRate(10, time.Minute, 14_401)}, "settings.keyRate.burst",
			"at 10 per 1m, 0 to 14400; an empty bucket must be full again within 24h"},
		{&belfryv1.QueueSettings{KeyOrdered: proto.Bool(true)}, "settings.keyOrdered", "keyConcurrency of 5"},
		{&belfryv1.QueueSettings{KeyOrdered: proto.Bool(true), KeyConcurrency: proto.Uint32(2)}, "settings.keyOrdered",
			"keyConcurrency of 2"},
	} {
		_, update := a.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{Queue: "a", Settings: tt.set})
		if tt.set.KeyOrdered != nil && tt.set.KeyConcurrency == nil {
			tt.set.KeyConcurrency = proto.Uint32(5)
		}
		_, create := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "b", Settings: tt.set})
		for _, err := range []error{update, create} {
			if f := faultOf(t, err); f.Reason != belfryv1.Reason_REASON_INVALID || f.Field != tt.field ||
				!strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v: %v at %s, want %s: %s", tt.set, err, f.Field, tt.field, tt.says)
			}
		}
	}
	if config, _ := s.catalog.Queue("a"); config.Version != 1 {
		t.Errorf("the record is %+v", config)
	}
	if config, ok := s.catalog.Queue("b"); ok {
		t.Errorf("a refused queue is recorded: %+v", config)
	}
}

// TestKeyOrderChangesOnlyWhileEmpty: all partitions count, in every state; other settings still change.
func TestKeyOrderChangesOnlyWhileEmpty(t *testing.T) {
	s := serve(t)
	s.node.Format = fsm.LatestFormat
	q, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	for range 12 {
		if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "wide"}); err != nil {
			t.Fatal(err)
		}
	}
	ordered := &belfryv1.UpdateQueueRequest{
		Queue: "wide", Settings: &belfryv1.QueueSettings{KeyOrdered: proto.Bool(true)}, RequestId: "r",
	}
	_, err := a.UpdateQueue(t.Context(), ordered)
	if f := faultOf(t, err); f.Reason != belfryv1.Reason_REASON_INVALID || f.Field != "settings.keyOrdered" ||
		!strings.Contains(err.Error(), "holds 12") {
		t.Errorf("with jobs: %v", err)
	}
	if _, err := a.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{Queue: "wide", Settings: &belfryv1.QueueSettings{
		KeyOrdered: proto.Bool(false), NoKeys: proto.Bool(true), KeyFair: proto.Bool(true),
	}}); err != nil {
		t.Errorf("what is not the order: %v", err)
	}
	if _, err := a.PurgeQueue(t.Context(), &belfryv1.PurgeQueueRequest{Queue: "wide"}); err != nil {
		t.Fatal(err)
	}
	updated, err := a.UpdateQueue(t.Context(), ordered)
	if err != nil || !updated.Settings.GetKeyOrdered() {
		t.Errorf("when it is empty: %v, %v", updated, err)
	}
	if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "wide"}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{
		Queue: "wide", Settings: &belfryv1.QueueSettings{KeyOrdered: proto.Bool(true)},
	}); err != nil {
		t.Errorf("no change: %v", err)
	}
}

// TestKeySettingsNeedTheirFormat: before all nodes know keys, the catalog takes no settings of them.
func TestKeySettingsNeedTheirFormat(t *testing.T) {
	s := serve(t)
	s.node.Format = fsm.KeysFormat - 1
	_, a := s.bothClients()
	settings := &belfryv1.QueueSettings{HoldOnDead: proto.Bool(true)}
	_, create := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "a", Settings: settings})
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{
		Queue: "b", Settings: &belfryv1.QueueSettings{HoldOnDead: proto.Bool(false), KeyRate: &belfryv1.KeyRate{}},
	}); err != nil {
		t.Errorf("without any: %v", err)
	}
	_, update := a.UpdateQueue(t.Context(), &belfryv1.UpdateQueueRequest{Queue: "b", Settings: settings})
	for _, err := range []error{create, update} {
		if f := faultOf(t, err); f.Reason != belfryv1.Reason_REASON_UNIMPLEMENTED ||
			!strings.Contains(err.Error(), "the cluster is at format 3") || f.Outcome() != belfryv1.Outcome_OUTCOME_NOT_APPLIED {
			t.Errorf("%v", err)
		}
	}
	if config, ok := s.catalog.Queue("a"); ok {
		t.Errorf("a refused queue is recorded: %+v", config)
	}
	if config, _ := s.catalog.Queue("b"); config.Version != 1 || config.Settings.Keys != (fsm.KeySettings{}) {
		t.Errorf("the record is %+v", config)
	}
}
