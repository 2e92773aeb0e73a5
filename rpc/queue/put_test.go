package queue

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// TestPutBatchAnswers: each answer to a put has its own id, due time and witness.
func TestPutBatchAnswers(t *testing.T) {
	second := func(s int64) *timestamppb.Timestamp { return &timestamppb.Timestamp{Seconds: s} }
	at := func(s time.Duration) fsm.Time { return fsm.Time(s * time.Second) }
	witness := &node.Witness{Index: 7, Entry: 1}
	put := func(id string, due *timestamppb.Timestamp) *belfryv1.PutBatchResult {
		return &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Put{Put: &belfryv1.PutResponse{
			Id: id, DueAt: due, Created: true, State: belfryv1.JobState_JOB_STATE_READY, Witness: &belfryv1.Witness{
				Index: 7, Entry: 6,
			}, Version: 1,
		}}}
	}
	made := func(serial uint64, due fsm.Time) shardcall.Answer {
		return shardcall.Answer{
			Result: &fsm.Result{Created: true, State: fsm.Ready, Partition: 2, Serial: serial, Due: due}, Request: witness,
			Entry: 5,
		}
	}
	var puts []*fsm.Put
	var answers []shardcall.Answer
	var want []*belfryv1.PutBatchResult
	add := func(p *fsm.Put, a shardcall.Answer, w *belfryv1.PutBatchResult) {
		puts, answers, want = append(puts, p), append(answers, a), append(want, w)
	}
	add(&fsm.Put{}, made(math.MaxUint64, 0), put("2-18446744073709551615", nil))
	add(&fsm.Put{}, made(1, at(5)-1), put("2-1", second(5)))
	f := fault.New(belfryv1.Reason_REASON_JOB_EXISTS)
	add(nil, shardcall.Answer{Fault: f},
		&belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Error{Error: f.Entry()}})
	add(&fsm.Put{ID: "mine"}, made(2, at(5)-1), put("mine", second(5)))
	for i := range 300 {
		serial := math.MaxUint64 - uint64(i)
		add(&fsm.Put{}, made(serial, at(10+time.Duration(i))), put(fsm.FormatID(2, serial), second(10+int64(i))))
	}
	add(&fsm.Put{}, made(3, 0), put("2-3", nil))
	data, err := appendPuts(nil, &putBatch{puts: puts, answers: answers})
	got := &belfryv1.PutBatchResponse{}
	if err != nil || proto.Unmarshal(data, got) != nil {
		t.Fatalf("%x, %v", data, err)
	}
	if diff := cmp.Diff(&belfryv1.PutBatchResponse{Results: want}, got, protocmp.Transform()); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

// servingNode is a node that serves some shards itself.
type servingNode struct {
	*backendtest.Node
	serves []uint32
}

func (n *servingNode) Serves(shard uint32) bool { return slices.Contains(n.serves, shard) }

// TestPutsPreferLocalPartitions: puts that may go to any partition go to the partitions that this
// node serves itself, in rotation.
func TestPutsPreferLocalPartitions(t *testing.T) {
	const shards = 6
	n := &servingNode{Node: backendtest.NewNode(shards)}
	s := newService(t, n)
	for _, serves := range [][]uint32{{2, 5}, {0}, {}, {0, 1, 2, 3, 4, 5}} {
		n.serves = serves
		got := map[uint32]int{}
		for range 100 * localPartitionTries * shards {
			got[s.router.Shard("wide", s.localPartition("wide", shards))]++
		}
		if len(serves) == 0 { // no partition is nearer than another
			serves = []uint32{0, 1, 2, 3, 4, 5}
		}
		if shards := slices.Sorted(maps.Keys(got)); !slices.Equal(shards, serves) {
			t.Errorf("puts went to the shards %v, want %v", shards, serves)
		}
		counts := slices.Sorted(maps.Values(got))
		if least, most := counts[0], counts[len(counts)-1]; most-least > least/10 {
			t.Errorf("of the puts %d went to one of the shards %v and %d to another", least, serves, most)
		}
	}
}

// fickleCatalog shows a queue only after a put into it has been routed.
type fickleCatalog struct {
	*backendtest.Catalog
	hidden string
	looks  int
}

func (c *fickleCatalog) Queue(name string) (backend.QueueConfig, bool) {
	if name == c.hidden && c.looks < 1 { // the first lookup
		c.looks++
		return backend.QueueConfig{}, false
	}
	return c.Catalog.Queue(name)
}

// TestRepeatFindsWhatWasRoutedOtherwise: a node that does not know the partitions of a queue yet
// routes refused puts again. Their ids are those of a node that knows the partitions, so each node
// finds the puts of the other. This holds also if a shard has puts into another queue, and if the
// node learns the partitions during the call.
func TestRepeatFindsWhatWasRoutedOtherwise(t *testing.T) {
	config := backend.QueueConfig{Name: "wide", Partitions: 2, Version: 1}
	for _, order := range [][]string{
		{"late", "knows"},
		{"knows", "late"},
		{"fickle", "knows"},
		{"knows", "fickle"},
		{"fickle", "late"},
	} {
		t.Run(strings.Join(order, " then "), func(t *testing.T) {
			n := backendtest.NewNode(2)
			knows := newService(t, n)
			catalog := knows.router.Catalog.(*backendtest.Catalog)
			catalog.Record(config)
			late, fickle := newService(t, n), newService(t, n)
			late.router.Catalog, fickle.router.Catalog = &backendtest.LateCatalog{
				Catalog: backendtest.NewCatalog().Of(n), Later: config,
			}, &fickleCatalog{catalog, config.Name, 0}
			if _, pending, err := knows.router.Configure(t.Context(), config.Name); err != nil || len(pending) > 0 {
				t.Fatal(pending, err)
			}
			req := &belfryv1.PutBatchRequest{RequestId: "r"}
			for shard := range uint32(2) {
				beside := "plain"
				for knows.router.Shard(beside, 0) != shard {
					beside += "-"
				}
				req.Jobs = append(req.Jobs, &belfryv1.PutRequest{Queue: beside}, &belfryv1.PutRequest{Queue: config.Name},
					&belfryv1.PutRequest{Queue: config.Name})
			}
			services := map[string]*Service{"knows": knows, "late": late, "fickle": fickle}
			var ids [2][]string
			for attempt, name := range order {
				res, err := services[name].PutBatch(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range res.GetResults() {
					if r.GetError() != nil {
						t.Errorf("through the node that is %s: %v", name, r.GetError())
					}
					ids[attempt] = append(ids[attempt], r.GetPut().GetId())
				}
			}
			if !slices.Equal(ids[0], ids[1]) {
				t.Errorf("made %q, and again %q", ids[0], ids[1])
			}
		})
	}
}

// TestPutIsRoutedTwiceMore: neither the node nor the shard knows the partitions of the queue yet.
func TestPutIsRoutedTwiceMore(t *testing.T) {
	n, config := backendtest.NewNode(2), backend.QueueConfig{Name: "wide", Partitions: 2, Version: 1}
	late := newService(t, n)
	late.router.Catalog = &backendtest.LateCatalog{Catalog: backendtest.NewCatalog().Of(n), Later: config}
	if a := late.router.Propose(t.Context(), late.router.Shard(config.Name, 0), "", &fsm.Open{
		Queue: config.Name, Partitions: 2,
	}); a.Fault != nil {
		t.Fatal(a.Fault)
	}
	id := "a"
	for node.PartitionOf(id, 2) != 1 {
		id += "a"
	}
	got, err := late.Put(t.Context(), &belfryv1.PutRequest{Queue: config.Name, Id: id})
	if err != nil || !got.GetCreated() || got.GetWitness().GetShard() != late.router.Shard(config.Name, 1) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestRepeatIsUnknownWhereTheCatalogIsOutOfReach: a node knows another number of partitions than
// the node of the first attempt, and cannot reach the catalog. It does not answer that the request
// id was used for another request, because the caller would then give up.
func TestRepeatIsUnknownWhereTheCatalogIsOutOfReach(t *testing.T) {
	config := backend.QueueConfig{Name: "wide", Partitions: 2, Version: 1}
	n := backendtest.NewNode(2)
	knows, cut := newService(t, n), newService(t, n)
	knows.router.Catalog.(*backendtest.Catalog).Record(config)
	catalog := &backendtest.LateCatalog{Catalog: backendtest.NewCatalog().Of(n), Later: config, Away: node.ErrNoLeader}
	cut.router.Catalog = catalog
	if _, pending, err := knows.router.Configure(t.Context(), config.Name); err != nil || len(pending) > 0 {
		t.Fatal(pending, err)
	}
	req := &belfryv1.PutRequest{Queue: config.Name, RequestId: "r"}
	for node.PartitionOf(req.GetRequestId()+"/0", 2) != 0 { // to the home shard of a queue with one partition
		req.RequestId += "r"
	}
	first, err := knows.Put(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	_, err = cut.Put(t.Context(), req)
	if f, _ := errors.AsType[*fault.Error](err); f == nil || f.Reason != belfryv1.Reason_REASON_UNKNOWN_OUTCOME ||
		f.RetryAfter == 0 || f.Shard == nil {
		t.Errorf("the repeat ended with %+v, want one of unknown outcome", f)
	}
	catalog.Away = nil
	if got, err := cut.Put(t.Context(), req); err != nil || got.GetId() != first.GetId() {
		t.Errorf("the next repeat: %v, %v; the first attempt made %q", got, err, first.GetId())
	}
	other := &belfryv1.PutRequest{Queue: config.Name, RequestId: req.GetRequestId(), Priority: proto.Int64(1)}
	_, err = cut.Put(t.Context(), other)
	if f, _ := errors.AsType[*fault.Error](err); f == nil || f.Reason != belfryv1.Reason_REASON_INVALID {
		t.Errorf("other content under the same id ended with %+v", f)
	}
	deleting := config
	deleting.Version = 0
	cut.router.Catalog = &backendtest.LateCatalog{Catalog: backendtest.NewCatalog().Of(n), Later: deleting}
	_, err = cut.Put(t.Context(), req)
	if f, _ := errors.AsType[*fault.Error](err); f == nil || f.Reason != belfryv1.Reason_REASON_QUEUE_CHANGED {
		t.Errorf("a repeat while the queue is being deleted ended with %+v", f)
	}
}

// waveringCatalog reports at every second lookup that a queue is being deleted.
type waveringCatalog struct {
	*backendtest.Catalog
	looks int
}

func (c *waveringCatalog) Queue(name string) (backend.QueueConfig, bool) {
	c.looks++
	config, ok := c.Catalog.Queue(name)
	if c.looks%2 == 0 {
		config.Version = 0
	}
	return config, ok
}

// TestPutsIntoAQueueHaveOneFate: all puts of a call into one queue are refused or none, even if the
// queue is marked as being deleted while the call is routed. To a shard they are one request.
func TestPutsIntoAQueueHaveOneFate(t *testing.T) {
	s := newService(t, backendtest.NewNode(2))
	config := backend.QueueConfig{Name: "wide", Partitions: 2, Version: 1}
	catalog := s.router.Catalog.(*backendtest.Catalog)
	catalog.Record(config)
	if _, pending, err := s.router.Configure(t.Context(), config.Name); err != nil || len(pending) > 0 {
		t.Fatal(pending, err)
	}
	s.router.Catalog = &waveringCatalog{Catalog: catalog}
	req := &belfryv1.PutBatchRequest{RequestId: "r"}
	for range 8 {
		req.Jobs = append(req.Jobs, &belfryv1.PutRequest{Queue: config.Name})
	}
	res, err := s.PutBatch(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range res.GetResults() {
		if r.GetError() != nil {
			t.Errorf("entry %d: %v", i, r)
		}
	}
}

// TestALateRepairOpensNothing: after a put was refused because its shard was emptied, the record of
// the queue is sent to the shard only if it is still valid.
func TestALateRepairOpensNothing(t *testing.T) {
	n, catalog := backendtest.NewNode(3), backendtest.NewCatalog()
	s := newService(t, n, func(cfg *Config) { cfg.Router.Catalog = catalog })
	config, err := catalog.CreateQueue(t.Context(), "wide", 3, fsm.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	put := &fsm.Put{Queue: "wide", Partitions: 3}
	catalog.MarkDeleting("wide")
	if _, _, err := s.router.Configure(t.Context(),
		config.Name); fault.Of(err).Reason != belfryv1.Reason_REASON_QUEUE_CHANGED || n.Holders("wide") != 0 {
		t.Errorf("%v; %d shards hold it", err, n.Holders("wide"))
	}
	if s.reconcileForPut(t.Context(), put) || n.Holders("wide") != 0 {
		t.Errorf("repaired; %d shards hold it", n.Holders("wide"))
	}
	if err := catalog.DeleteQueue(t.Context(), "wide"); err != nil {
		t.Fatal(err)
	}
	if !s.reconcileForPut(t.Context(), put) || n.Holders("wide") != 0 {
		t.Errorf("a put by a record that is gone is not routed again; %d shards hold it", n.Holders("wide"))
	}
}
