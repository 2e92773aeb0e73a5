package many

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/selection"
)

// queues has the jobs of queues, all in one state, and is read a page at a time.
type queues struct {
	jobs map[string][]*belfryv1.Job
	read int
	err  error // of all calls
	// lost is the page from which on replicas answer, because a leader was lost.
	lost int
}

func (q *queues) List(_ context.Context, req *belfryv1.ListRequest) (*belfryv1.ListResponse, error) {
	if q.err != nil {
		return nil, q.err
	}
	all := q.jobs[req.Queue][len(req.PageToken):]
	res := &belfryv1.ListResponse{Jobs: all[:min(len(all), int(req.PageSize))]}
	res.Stale = q.lost > 0 && len(req.PageToken) >= (q.lost-1)*pageJobs
	if q.read += len(res.Jobs); len(all) > len(res.Jobs) {
		res.NextPageToken = strings.Repeat("x", len(req.PageToken)+len(res.Jobs))
	}
	return res, nil
}

// list returns the queues by name, with as many jobs in a state as they have.
func (q *queues) list(count func(n int) *belfryv1.JobCounts) (all []*belfryv1.Queue) {
	for _, name := range slices.Sorted(maps.Keys(q.jobs)) {
		all = append(all, &belfryv1.Queue{Name: name, Counts: count(len(q.jobs[name]))})
	}
	return all
}

// at is a time.
func at(minute int) *timestamppb.Timestamp {
	return timestamppb.New(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC))
}

// TestReadDead: dead jobs are grouped by queue and cause, the largest group first, and no more are read
// than may be.
func TestReadDead(t *testing.T) {
	q := &queues{jobs: map[string][]*belfryv1.Job{"a": nil, "b": nil, "none": {}}}
	for i := range 2500 {
		q.jobs["a"] = append(q.jobs["a"], &belfryv1.Job{Queue: "a", Id: fmt.Sprint(i), Cause: fmt.Sprint("c", i%2),
			LastError: fmt.Sprint("e", i), DueAt: at(i)})
	}
	q.jobs["a"][4].Attempts = []*belfryv1.Attempt{{EndedAt: at(9000)}, {EndedAt: at(9001)}}
	for i := range 10 {
		q.jobs["b"] = append(q.jobs["b"], &belfryv1.Job{Queue: "b", Id: fmt.Sprint(i), Cause: "c0", DueAt: at(9 - i)})
	}
	list := q.list(func(n int) *belfryv1.JobCounts { return &belfryv1.JobCounts{Dead: uint32(n)} })
	got, err := ReadDead(t.Context(), q, list, 10_000)
	if err != nil || len(got.Groups) != 3 || got.Read != 2510 || got.All != 2510 {
		t.Fatalf("%+v, %v", got, err)
	}
	first, last := got.Groups[0], got.Groups[2]
	if first.Queue != "a" || first.Cause != "c0" || first.Jobs != 1250 || first.Sample != "e0" || first.ID != "0" ||
		!first.Last.Equal(at(9001).AsTime()) || !first.First.Equal(at(0).AsTime()) ||
		last.Queue != "b" || last.Jobs != 10 || !last.First.Equal(at(0).AsTime()) {
		t.Errorf("%+v and %+v", first, last)
	}
	if of := last.Selection(); of.Queue != "b" || of.Cause != "c0" || of.State != belfryv1.JobState_JOB_STATE_DEAD {
		t.Errorf("a group selects %+v", of)
	}
	q.read = 0
	got, err = ReadDead(t.Context(), q, list, 1500)
	if err != nil || got.Read != 1500 || got.All != 2510 || q.read != 2000 {
		t.Errorf("a part: %d of %d, %d by calls, %v", got.Read, got.All, q.read, err)
	}
	q.lost = 1
	if got, err = ReadDead(t.Context(), q, list, 1500); err != nil || got.Read != 1500 {
		t.Errorf("of replicas: %d, %v", got.Read, err)
	}
	q.lost = 2
	if _, err = ReadDead(t.Context(), q, list, 1500); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("of leaders and then of replicas, which could have the same jobs: %v", err)
	}
	q.err = connect.NewError(connect.CodePermissionDenied, errors.New("no"))
	if _, err = ReadDead(t.Context(), q, list, 1500); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("%v", err)
	}
}

// TestReadHeld: held jobs are grouped by who holds them, with the one that is held longest.
func TestReadHeld(t *testing.T) {
	q := &queues{jobs: map[string][]*belfryv1.Job{
		"a": {{Queue: "a", Id: "1", Client: "x@1", ReservedAt: at(5), LeaseSince: at(7)}, {Queue: "a", Id: "2",
			LeaseSince: at(9)}},
		"b": {{Queue: "b", Id: "3", Client: "x@1", ReservedAt: at(6)}, {Queue: "b", Id: "4", Client: "x@1",
			ReservedAt: at(4)},
			{Queue: "b", Id: "5", LeaseSince: at(8)}},
	}}
	got, err := ReadHeld(t.Context(), q, q.list(func(n int) *belfryv1.JobCounts {
		return &belfryv1.JobCounts{Reserved: uint32(n)}
	}), 100)
	if err != nil || len(got.Consumers) != 2 || got.Read != 5 || got.All != 5 {
		t.Fatalf("%+v, %v", got, err)
	}
	known, other := got.Consumers[0], got.Consumers[1]
	if !proto.Equal(known.Latest, at(6)) || other.Latest != nil {
		t.Errorf("last reserved at %v and %v", known.Latest, other.Latest)
	}
	if known.Client != "x@1" || known.Jobs != 3 || known.Oldest.Id != "4" || known.Queues["a"] != 1 ||
		known.Queues["b"] != 2 || other.Client != "" || other.Oldest.Id != "5" {
		t.Errorf("%+v and %+v", known, other)
	}
}

// changes answers by the first letter of an id, and notes what was asked.
type changes struct {
	mu    sync.Mutex
	asked map[string]bool
}

func (c *changes) do(what, id, requestID string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[what+" "+id+" "+requestID] = true
	switch id[0] {
	case 'g':
		return connect.NewError(connect.CodeNotFound, errors.New("gone"))
	case 'h':
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("held"))
	case 'u':
		return connect.NewError(connect.CodeUnavailable, errors.New("no leader"))
	default:
		return nil
	}
}

// idOf writes which job a call is about.
func idOf(req interface {
	GetId() string
	GetKey() string
}) string {
	return selection.Job{ID: req.GetId(), Key: req.GetKey()}.String()
}

func (c *changes) Cancel(_ context.Context, req *belfryv1.CancelRequest) (*belfryv1.CancelResponse, error) {
	return nil, c.do(fmt.Sprint("cancel ", req.Queue, " ", req.Force), idOf(req), req.RequestId)
}

func (c *changes) Reschedule(_ context.Context, req *belfryv1.RescheduleRequest) (*belfryv1.RescheduleResponse, error) {
	return nil, c.do(fmt.Sprint("reschedule ", req.Queue, " ", req.GetDueAt().AsTime().Minute()), idOf(req), req.RequestId)
}

func (c *changes) Redrive(_ context.Context, req *belfryv1.RedriveRequest) (*belfryv1.RedriveResponse, error) {
	return &belfryv1.RedriveResponse{Moved: 1}, c.do("redrive "+req.Queue, strings.Join(req.Ids, "+"), req.RequestId)
}

// TestAct: each job gets its call under an id of its own, those that changed meanwhile do not count,
// and any other error is told.
func TestAct(t *testing.T) {
	c := &changes{asked: map[string]bool{}}
	when := &belfryv1.RescheduleRequest{When: &belfryv1.RescheduleRequest_DueAt{DueAt: at(7)}}
	ids := []selection.Job{{ID: "a"}, {ID: "gone"}, {ID: "held"}, {ID: "b", Key: "k"}}
	for _, order := range []*selection.Order{{Act: selection.Cancel, Force: true, When: when},
		{Act: selection.Reschedule, When: when}} {
		if n, err := Act(t.Context(), c, "q", ids, order, "r"); n != 2 || err != nil {
			t.Errorf("%s: %d, %v", order.Act, n, err)
		}
	}
	if n, err := Act(t.Context(), c, "q", ids, &selection.Order{Act: selection.Redrive}, "r"); n != 1 || err != nil {
		t.Errorf("redrive: %d, %v", n, err)
	}
	for _, want := range []string{"cancel q true a r-0", "cancel q true gone r-1", "cancel q true b;k r-3",
		"reschedule q 7 b;k r-3",
		"reschedule q 7 held r-2", "redrive q a+gone+held+b r"} {
		if !c.asked[want] {
			t.Errorf("%s is not among %v", want, c.asked)
		}
	}
	order := &selection.Order{Act: selection.Cancel}
	if n, err := Act(t.Context(), c, "q", []selection.Job{{ID: "a"}, {ID: "unreached"}, {ID: "b"}}, order, "r"); n != 2 ||
		connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("without a leader: %d, %v", n, err)
	}
}
