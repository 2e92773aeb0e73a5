package rpc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// putKeyed puts READY jobs of a key into the shard that the key belongs to.
func (s *served) putKeyed(queue string, partitions int, key string, jobs int) {
	s.t.Helper()
	partition := node.PartitionOf(key, partitions)
	shard := node.ShardOf(queue, partition, s.node.ShardCount())
	commands := make([]fsm.Command, jobs)
	for i := range commands {
		commands[i] = &fsm.Put{
			Queue: queue, Partition: partition, Partitions: uint32(partitions), Key: key, ID: fmt.Sprint(key, "-", i),
		}
	}
	if _, err := s.node.Do(s.t.Context(), shard, &fsm.Request{Commands: commands}); err != nil {
		s.t.Fatal(err)
	}
}

// reserveAll reserves all jobs of q that are handed out, and returns their ids in order.
func (s *served) reserveAll() (ids []string) {
	s.t.Helper()
	q, _ := s.bothClients()
	for {
		res, err := q.Reserve(s.t.Context(), &belfryv1.ReserveRequest{Queues: []string{"q"}, MaxJobs: 100})
		if err != nil {
			s.t.Fatal(err)
		}
		if len(res.Jobs) == 0 {
			slices.Sort(ids)
			return ids
		}
		for _, j := range res.Jobs {
			ids = append(ids, j.Id)
		}
	}
}

// serveSixKeys serves a queue of three partitions that has keys a to f, with 1 to 6 READY jobs.
func serveSixKeys(t *testing.T) *served {
	t.Helper()
	s := serve(t)
	s.node.Format = fsm.LatestFormat
	_, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{
		Queue: "q", Partitions: 3, Settings: &belfryv1.QueueSettings{KeyConcurrency: proto.Uint32(1)},
	}); err != nil {
		t.Fatal(err)
	}
	for i, key := range strings.Split("abcdef", "") {
		s.putKeyed("q", 3, key, i+1)
	}
	return s
}

// TestListKeys reads all pages in both orders, with filters.
func TestListKeys(t *testing.T) {
	s := serveSixKeys(t)
	_, a := s.bothClients()
	if _, err := a.PauseKey(t.Context(), &belfryv1.PauseKeyRequest{Queue: "q", Key: "zz-idle"}); err != nil {
		t.Fatal(err)
	}
	if got := s.reserveAll(); len(got) != 6 {
		t.Fatalf("reserved %v", got)
	}
	for _, tt := range []struct {
		req  *belfryv1.ListKeysRequest
		want string
	}{
		{&belfryv1.ListKeysRequest{}, "f e d c b a zz-idle"},
		{&belfryv1.ListKeysRequest{Order: belfryv1.KeyOrder_KEY_ORDER_BACKLOG}, "f e d c b a zz-idle"},
		{&belfryv1.ListKeysRequest{Order: belfryv1.KeyOrder_KEY_ORDER_NAME}, "a b c d e f zz-idle"},
		{&belfryv1.ListKeysRequest{Prefix: "z"}, "zz-idle"},
		{&belfryv1.ListKeysRequest{State: belfryv1.JobState_JOB_STATE_READY}, "f e d c b"},
		{&belfryv1.ListKeysRequest{State: belfryv1.JobState_JOB_STATE_RESERVED}, "f e d c b a"},
		{&belfryv1.ListKeysRequest{State: belfryv1.JobState_JOB_STATE_DEAD}, ""},
	} {
		for _, size := range []int32{0, 1, 2, 1000} {
			req := proto.Clone(tt.req).(*belfryv1.ListKeysRequest)
			req.Queue, req.PageSize = "q", size
			var got []string
			for {
				page, err := a.ListKeys(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if page.StoppedEarly || page.Searched != 7 || len(page.Witnesses) != 3 || page.AsOf == nil ||
					size > 0 && len(page.Keys) > int(size) {
					t.Errorf("%v: %v", req, page)
				}
				for _, k := range page.Keys {
					got = append(got, k.Key)
				}
				if req.PageToken = page.NextPageToken; req.PageToken == "" {
					break
				}
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%v: %q, want %q", req, got, tt.want)
			}
		}
	}
	page, err := a.ListKeys(t.Context(), &belfryv1.ListKeysRequest{Queue: "q", Order: belfryv1.KeyOrder_KEY_ORDER_NAME})
	if err != nil {
		t.Fatal(err)
	}
	due := page.Keys[1].GetNextDueAt()
	want := []*belfryv1.Key{
		{Key: "a", Counts: &belfryv1.JobCounts{Reserved: 1}, Blocked: belfryv1.KeyBlock_KEY_BLOCK_NOT_BLOCKED},
		{Key: "b", Counts: &belfryv1.JobCounts{Ready: 1, Reserved: 1}, Blocked: belfryv1.KeyBlock_KEY_BLOCK_LIMIT,
			NextDueAt: due},
	}
	idle := &belfryv1.Key{Key: "zz-idle", Counts: &belfryv1.JobCounts{}, Paused: true,
		Blocked: belfryv1.KeyBlock_KEY_BLOCK_NOT_BLOCKED}
	if diff := cmp.Diff(append(want, idle), append(slices.Clone(page.Keys[:2]), page.Keys[6]),
		protocmp.Transform()); diff != "" || due == nil {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// TestPauseKey: a paused key hands nothing out, the others do; a repeat changes nothing.
func TestPauseKey(t *testing.T) {
	s := serveSixKeys(t)
	_, a := s.bothClients()
	for range 2 {
		paused, err := a.PauseKey(t.Context(), &belfryv1.PauseKeyRequest{Queue: "q", Key: "b", RequestId: "r"})
		if err != nil || paused.GetWitness().GetIndex() == 0 {
			t.Fatalf("%v, %v", paused, err)
		}
	}
	if got := s.reserveAll(); !slices.Equal(got, []string{"a-0", "c-0", "d-0", "e-0", "f-0"}) {
		t.Errorf("while b is paused: %v", got)
	}
	for range 2 {
		if _, err := a.ResumeKey(t.Context(), &belfryv1.ResumeKeyRequest{Queue: "q", Key: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.reserveAll(); !slices.Equal(got, []string{"b-0"}) {
		t.Errorf("after b was resumed: %v", got)
	}
}

// TestPauseKeyQuota: when as many keys of a shard are paused as may be, the error says so, and one that
// is resumed makes room.
func TestPauseKeyQuota(t *testing.T) {
	s := serve(t)
	s.node.Format = fsm.LatestFormat
	_, a := s.bothClients()
	s.putKeyed("q", 1, "k", 1)
	commands := make([]fsm.Command, fsm.PausedKeysMax)
	for i := range commands {
		commands[i] = &fsm.PauseKey{Queue: "q", Key: fmt.Sprint("p", i)}
	}
	if _, err := s.node.Do(t.Context(), node.ShardOf("q", 0, s.node.ShardCount()),
		&fsm.Request{Commands: commands}); err != nil {
		t.Fatal(err)
	}
	_, err := a.PauseKey(t.Context(), &belfryv1.PauseKeyRequest{Queue: "q", Key: "k"})
	if f := faultOf(t, err); f.Reason != belfryv1.Reason_REASON_QUOTA ||
		f.Message != "10000 keys of the shard are paused, as many as may be: resume some" {
		t.Errorf("one too many: %v", err)
	}
	if _, err := a.ResumeKey(t.Context(), &belfryv1.ResumeKeyRequest{Queue: "q", Key: "p0"}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.PauseKey(t.Context(), &belfryv1.PauseKeyRequest{Queue: "q", Key: "k"}); err != nil {
		t.Errorf("after one was resumed: %v", err)
	}
}

// TestPurgeKey removes the jobs of a key in the states named, and no others.
func TestPurgeKey(t *testing.T) {
	s := serveSixKeys(t)
	_, a := s.bothClients()
	s.reserveAll()
	purge := func(req *belfryv1.PurgeKeyRequest, want uint32) {
		t.Helper()
		req.Queue, req.Key = "q", "f"
		got, err := a.PurgeKey(t.Context(), req)
		if err != nil || got.Purged != want || got.Witness == nil {
			t.Errorf("%v: %v, %v, want %d", req, got, err, want)
		}
	}
	for range 2 {
		purge(&belfryv1.PurgeKeyRequest{Max: 2, RequestId: "r"}, 2)
	}
	dead := []belfryv1.JobState{belfryv1.JobState_JOB_STATE_DEAD}
	purge(&belfryv1.PurgeKeyRequest{States: dead}, 0)
	purge(&belfryv1.PurgeKeyRequest{}, 3)
	purge(&belfryv1.PurgeKeyRequest{States: []belfryv1.JobState{belfryv1.JobState_JOB_STATE_RESERVED}}, 1)
	page, err := a.ListKeys(t.Context(), &belfryv1.ListKeysRequest{Queue: "q"})
	if err != nil || len(page.Keys) != 5 || page.Keys[0].Key != "e" {
		t.Errorf("left are %v, %v", page, err)
	}
}

// TestBadKeyCalls: each error names the field, the limit or what to do.
func TestBadKeyCalls(t *testing.T) {
	s := serveSixKeys(t)
	q, a := s.bothClients()
	long := strings.Repeat("k", 129)
	list := func(req *belfryv1.ListKeysRequest) error { _, err := a.ListKeys(t.Context(), req); return err }
	pause := func(req *belfryv1.PauseKeyRequest) error { _, err := a.PauseKey(t.Context(), req); return err }
	resume := func(req *belfryv1.ResumeKeyRequest) error { _, err := a.ResumeKey(t.Context(), req); return err }
	purge := func(req *belfryv1.PurgeKeyRequest) error { _, err := a.PurgeKey(t.Context(), req); return err }
	jobs := func(req *belfryv1.ListRequest) error { _, err := q.List(t.Context(), req); return err }
	page, err := a.ListKeys(t.Context(), &belfryv1.ListKeysRequest{Queue: "q", PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	invalid, large := belfryv1.Reason_REASON_INVALID, belfryv1.Reason_REASON_TOO_LARGE
	none := belfryv1.Reason_REASON_QUEUE_NOT_FOUND
	for _, tt := range []struct {
		err    error
		reason belfryv1.Reason
		says   string
	}{
		{list(&belfryv1.ListKeysRequest{Queue: "q", Prefix: long}), large, "prefix: 129 bytes; the limit is 128"},
		{list(&belfryv1.ListKeysRequest{Queue: "q", State: belfryv1.JobState_JOB_STATE_ACKED}), invalid, "state: want one"},
		{list(&belfryv1.ListKeysRequest{Queue: "q", Order: 3}), invalid, "order: want one of BACKLOG, NAME"},
		{list(&belfryv1.ListKeysRequest{Queue: "q", PageToken: "x"}), invalid, "pageToken: not a token of this list"},
		{list(&belfryv1.ListKeysRequest{Queue: "q", PageToken: page.NextPageToken, Prefix: "a"}), invalid, "pageToken"},
		{list(&belfryv1.ListKeysRequest{Queue: "none"}), none, "no such queue"},
		{list(&belfryv1.ListKeysRequest{}), invalid, "queue: "},
		{pause(&belfryv1.PauseKeyRequest{Queue: "q"}), invalid, "key: a key is required: 1 to 128 bytes"},
		{pause(&belfryv1.PauseKeyRequest{Queue: "q", Key: long}), large, "key: 129 bytes; the limit is 128"},
		{pause(&belfryv1.PauseKeyRequest{Queue: "none", Key: "k"}), none, "no such queue"},
		{resume(&belfryv1.ResumeKeyRequest{Queue: "q"}), invalid, "key: "},
		{resume(&belfryv1.ResumeKeyRequest{Queue: "none", Key: "k"}), none, "no such queue"},
		{purge(&belfryv1.PurgeKeyRequest{Queue: "q"}), invalid, "key: "},
		{purge(&belfryv1.PurgeKeyRequest{Queue: "q", Key: "k", States: []belfryv1.JobState{0}}), invalid, "states[0]"},
		{purge(&belfryv1.PurgeKeyRequest{Queue: "none", Key: "k"}), none, "no such queue"},
		{jobs(&belfryv1.ListRequest{Queue: "q", Key: long}), large, "key: 129 bytes"},
	} {
		if f := faultOf(t, tt.err); f.Reason != tt.reason || !strings.Contains(f.Message, tt.says) {
			t.Errorf("%v, want %v: %s", tt.err, tt.reason, tt.says)
		}
	}
}

// TestListOfOneKey: a list can be of the jobs of one key.
func TestListOfOneKey(t *testing.T) {
	s := serveSixKeys(t)
	q, _ := s.bothClients()
	page, err := q.List(t.Context(), &belfryv1.ListRequest{
		Queue: "q", Key: "c", State: belfryv1.JobState_JOB_STATE_READY,
	})
	if err != nil || len(page.Jobs) != 3 || page.NextPageToken != "" {
		t.Fatalf("%v, %v", page, err)
	}
	for _, j := range page.Jobs {
		if !strings.HasPrefix(j.Id, "c-") {
			t.Errorf("%v is not of the key", j)
		}
	}
}

// TestListKeysStopsInTime: a call that has looked for as long as it may says so, and has what it saw.
func TestListKeysStopsInTime(t *testing.T) {
	clock := time.Now()
	s := serve(t, func(c *Config) {
		c.Now = func() time.Time { clock = clock.Add(time.Second); return clock }
	})
	s.node.Format = fsm.LatestFormat
	_, a := s.bothClients()
	for i := range fsm.KeysScanMax + 1 {
		s.putKeyed("q", 1, fmt.Sprint("k", i), 1)
	}
	page, err := a.ListKeys(t.Context(), &belfryv1.ListKeysRequest{Queue: "q", PageSize: 10})
	if err != nil || !page.StoppedEarly || page.Searched != fsm.KeysScanMax || len(page.Keys) != 10 {
		t.Errorf("stopped %v after %d with %d keys, %v", page.GetStoppedEarly(), page.GetSearched(), len(page.GetKeys()), err)
	}
}

// TestListKeysStale: replicas are asked once each, because any of them may answer the next question.
func TestListKeysStale(t *testing.T) {
	s := serve(t)
	s.node.Format = fsm.LatestFormat
	_, a := s.bothClients()
	for i := range fsm.KeysScanMax + 1 {
		s.putKeyed("q", 1, fmt.Sprint("k", i), 1)
	}
	for stale, searched := range map[bool]uint64{false: fsm.KeysScanMax + 1, true: fsm.KeysScanMax} {
		page, err := a.ListKeys(t.Context(), &belfryv1.ListKeysRequest{Queue: "q", PageSize: 10, Stale: stale})
		if err != nil || page.Stale != stale || page.StoppedEarly != stale || page.Searched != searched ||
			len(page.Keys) != 10 {
			t.Errorf("stale %v: %v, stopped %v after %d with %d keys, %v", stale, page.GetStale(), page.GetStoppedEarly(),
				page.GetSearched(), len(page.GetKeys()), err)
		}
	}
}
