package fallback

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"
	g "maragu.dev/gomponents"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
)

// epoch is the time in a bubble of synctest at its beginning.
func epoch() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

// server answers calls as a node without leaders does. Its replicas are as of epoch less an hour, and
// those of the queue "old" a minute older.
type server struct {
	asked []bool // of each read, whether it was for replicas
	hangs bool   // a leader takes calls and does not answer them
	fails connect.Code
}

func (s *server) answer(ctx context.Context, call connect.AnyRequest) (connect.AnyResponse, error) {
	stale, reads := call.Any().(interface{ GetStale() bool })
	if reads {
		s.asked = append(s.asked, stale.GetStale())
	}
	switch {
	case s.fails != 0:
		return nil, connect.NewError(s.fails, errors.New("it fails"))
	case (!reads || !stale.GetStale()) && s.hangs:
		<-ctx.Done()
		return nil, connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
	case !reads || !stale.GetStale():
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("no leader"))
	}
	at := timestamppb.New(epoch().Add(-time.Hour))
	older := timestamppb.New(epoch().Add(-time.Hour - time.Minute))
	switch req := call.Any().(type) {
	case *belfryv1.GetQueueRequest:
		if req.Queue == "old" {
			at = older
		}
		return connect.NewResponse(&belfryv1.GetQueueResponse{Stale: true, Queue: &belfryv1.Queue{AsOf: at}}), nil
	case *belfryv1.ListQueuesRequest:
		return connect.NewResponse(&belfryv1.ListQueuesResponse{Stale: true,
			Queues: []*belfryv1.Queue{{AsOf: at}, {AsOf: older}}}), nil
	default:
		return connect.NewResponse(&belfryv1.ListResponse{Stale: true, AsOf: at}), nil
	}
}

// call makes a call of a page to a server.
func call[Q any](ctx context.Context, s *server, req *Q) error {
	_, err := Interceptor().WrapUnary(s.answer)(ctx, connect.NewRequest(req))
	return err
}

func TestAPageWaitsForLeadersOnce(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, ctx := &server{hangs: hangs}, Visit(t.Context())
			list := &belfryv1.ListRequest{Queue: "orders"}
			err := errors.Join(call(ctx, s, list), call(ctx, s, &belfryv1.GetQueueRequest{Queue: "old"}),
				call(ctx, s, &belfryv1.GetQueueRequest{Queue: "young"}))
			if err != nil || !list.Stale || len(s.asked) != 4 || s.asked[0] || !s.asked[1] || !s.asked[2] || !s.asked[3] {
				t.Fatalf("leader hangs: %v: %v, asked %v", hangs, err, s.asked)
			}
			want := time.Duration(0)
			if hangs {
				want = LeaderWait
			}
			if took := time.Since(epoch()); took != want {
				t.Errorf("leader hangs: %v: it took %v", hangs, took)
			}
			if age := AgeOf(ctx); !age.Stale || !age.AsOf.Equal(epoch().Add(-time.Hour-time.Minute)) {
				t.Errorf("the age is %+v, want that of the oldest answer", age)
			}
			if err := call(Visit(t.Context()), s, &belfryv1.ListRequest{}); err != nil || s.asked[4] || !s.asked[5] {
				t.Errorf("the next page: %v, asked %v; want the leader first again", err, s.asked[4:])
			}
		})
	}
}

// TestAnActThatNoLeaderAnswers: the page that is shown with the refusal does not wait again.
func TestAnActThatNoLeaderAnswers(t *testing.T) {
	s, ctx := &server{}, Visit(t.Context())
	if err := call(ctx, s, &belfryv1.CancelRequest{}); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("the act: %v", err)
	}
	if err := call(ctx, s, &belfryv1.ListRequest{}); err != nil || len(s.asked) != 1 || !s.asked[0] {
		t.Errorf("%v, asked %v", err, s.asked)
	}
}

func TestOtherErrorsArePassedOn(t *testing.T) {
	s, ctx := &server{fails: connect.CodeNotFound}, Visit(t.Context())
	if err := call(ctx, s, &belfryv1.ListRequest{}); connect.CodeOf(err) != connect.CodeNotFound || len(s.asked) != 1 ||
		AgeOf(ctx).Stale {
		t.Errorf("%v, asked %v", err, s.asked)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	s.fails = connect.CodeUnavailable
	if err := call(gone, s, &belfryv1.ListRequest{}); err == nil || len(s.asked) != 2 {
		t.Errorf("for nobody: %v, asked %v", err, s.asked)
	}
}

// TestReplicasThatHang bounds a page of which nothing is known.
func TestReplicasThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(ctx context.Context, _ connect.AnyRequest) (connect.AnyResponse, error) {
			<-ctx.Done()
			return nil, connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
		}
		_, err := Interceptor().WrapUnary(silent)(Visit(t.Context()), connect.NewRequest(&belfryv1.ListRequest{}))
		if took := time.Since(epoch()); err == nil || took != LeaderWait+ReplicaWait {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// TestSharedReads: a page that shows what was read for another one has its age, and waits no more.
func TestSharedReads(t *testing.T) {
	s, first := &server{}, Visit(t.Context())
	read := func(ctx context.Context) (int, error) { return 7, call(ctx, s, &belfryv1.ListQueuesRequest{}) }
	got, err := Read(first, read)
	if err != nil || got.Value != 7 || !got.Age().Stale || !got.Age().AsOf.Equal(epoch().Add(-time.Hour-time.Minute)) {
		t.Fatalf("%+v, %v", got, err)
	}
	if AgeOf(first).Stale {
		t.Error("the read is taken for one of the visit")
	}
	second := Visit(t.Context())
	if Join(second, Age{Kept: time.Second}); AgeOf(second) != (Age{Kept: time.Second}) {
		t.Errorf("the age of what was kept is %+v", AgeOf(second))
	}
	second = Visit(t.Context())
	Join(second, Age{})
	if AgeOf(second).Stale {
		t.Error("what leaders gave is taken for old")
	}
	Join(second, got.Age())
	s.asked = nil
	_, err = Read(second, read)
	if err != nil || len(s.asked) != 1 || !s.asked[0] || AgeOf(second).AsOf != got.Age().AsOf {
		t.Errorf("%v, asked %v, age %+v", err, s.asked, AgeOf(second))
	}
}

// TestReplicasByChoice: what a page always reads from replicas is no reason for a mark.
func TestReplicasByChoice(t *testing.T) {
	s, ctx := &server{}, Visit(t.Context())
	if err := call(ctx, s, &belfryv1.GetQueueRequest{Stale: true}); err != nil || AgeOf(ctx).Stale {
		t.Errorf("%v, %+v", err, AgeOf(ctx))
	}
}

func TestMarks(t *testing.T) {
	clock := format.Clock{Now: epoch(), Zone: time.UTC}
	heard := func(ago time.Duration) *belfryv1.GetClusterResponse {
		return &belfryv1.GetClusterResponse{Catalog: &belfryv1.Catalog{HeardAt: timestamppb.New(epoch().Add(-ago))}}
	}
	for _, tt := range []struct {
		mark g.Node
		want string
	}{
		{Mark(Age{}, clock), ""},
		{g.Text(KeptText(Age{Kept: keptMin - 1})), ""},
		{g.Text(KeptText(Age{Kept: 12345 * time.Millisecond})), ", figures up to 12 s old"},
		{Mark(Age{Stale: true}, clock), "The figures are those of its replicas.<"},
		{Mark(Age{Stale: true, AsOf: epoch().Add(-90 * time.Second)}, clock), "and up to 1 m 30 s old.<"},
		{MarkCatalog(nil, clock), ""},
		{MarkCatalog(&belfryv1.GetClusterResponse{}, clock), ""},
		{MarkCatalog(heard(catalogOld-1), clock), ""},
		{MarkCatalog(heard(3*time.Minute), clock), "leader of the catalog for 3 m"},
		{MarkCatalog(&belfryv1.GetClusterResponse{Catalog: &belfryv1.Catalog{}}, clock), "since its start"},
	} {
		var text strings.Builder
		if tt.mark != nil {
			if err := tt.mark.Render(&text); err != nil {
				t.Fatal(err)
			}
		}
		if got := text.String(); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
