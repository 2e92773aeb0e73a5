package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/client/admin"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// CreateQueue implements the service; the fake keeps no queues, it only shows what arrived.
func (f *Fake) CreateQueue(ctx context.Context,
	req *belfryv1.CreateQueueRequest) (*belfryv1.CreateQueueResponse, error) {
	return handle(ctx, f, "CreateQueue", req.GetRequestId(), 1, req, func() (*belfryv1.CreateQueueResponse, error) {
		return &belfryv1.CreateQueueResponse{
			Queue: req.GetQueue(), Partitions: req.GetPartitions(), Settings: req.GetSettings(),
		}, nil
	})
}

// ListQueues implements the service: three pages of two.
func (f *Fake) ListQueues(ctx context.Context, req *belfryv1.ListQueuesRequest) (*belfryv1.ListQueuesResponse, error) {
	return handle(ctx, f, "ListQueues", "", 2, req, func() (*belfryv1.ListQueuesResponse, error) {
		page := len(req.GetPageToken())
		res := &belfryv1.ListQueuesResponse{}
		for i := range 2 {
			res.Queues = append(res.Queues, &belfryv1.Queue{Name: fmt.Sprint(req.GetPrefix(), 2*page+i)})
		}
		if page < 2 {
			res.NextPageToken = req.GetPageToken() + "x"
		}
		return res, nil
	})
}

// GetQueue implements the service.
func (f *Fake) GetQueue(ctx context.Context, req *belfryv1.GetQueueRequest) (*belfryv1.GetQueueResponse, error) {
	return handle(ctx, f, "GetQueue", "", 1, req, func() (*belfryv1.GetQueueResponse, error) {
		return &belfryv1.GetQueueResponse{Queue: &belfryv1.Queue{Name: req.GetQueue()}}, nil
	})
}

// UpdateQueue implements the service.
func (f *Fake) UpdateQueue(ctx context.Context,
	req *belfryv1.UpdateQueueRequest) (*belfryv1.UpdateQueueResponse, error) {
	return handle(ctx, f, "UpdateQueue", req.GetRequestId(), 1, req, func() (*belfryv1.UpdateQueueResponse, error) {
		return &belfryv1.UpdateQueueResponse{Settings: req.GetSettings(), SettingsVersion: 7}, nil
	})
}

// PurgeQueue implements the service.
func (f *Fake) PurgeQueue(ctx context.Context, req *belfryv1.PurgeQueueRequest) (*belfryv1.PurgeQueueResponse, error) {
	return handle(ctx, f, "PurgeQueue", req.GetRequestId(), 1, req, func() (*belfryv1.PurgeQueueResponse, error) {
		return &belfryv1.PurgeQueueResponse{Purged: 17}, nil
	})
}

// ReleaseLeases implements the service: two pages.
func (f *Fake) ReleaseLeases(ctx context.Context,
	req *belfryv1.ReleaseLeasesRequest) (*belfryv1.ReleaseLeasesResponse, error) {
	return handle(ctx, f, "ReleaseLeases", req.GetRequestId(), 1, req,
		func() (*belfryv1.ReleaseLeasesResponse, error) {
			if req.GetPageToken() == "" {
				return &belfryv1.ReleaseLeasesResponse{Released: 2, NextPageToken: "x"}, nil
			}
			return &belfryv1.ReleaseLeasesResponse{Released: 1}, nil
		})
}

// DeleteQueue implements the service.
func (f *Fake) DeleteQueue(ctx context.Context,
	req *belfryv1.DeleteQueueRequest) (*belfryv1.DeleteQueueResponse, error) {
	return handle(ctx, f, "DeleteQueue", req.GetRequestId(), 1, req, func() (*belfryv1.DeleteQueueResponse, error) {
		return &belfryv1.DeleteQueueResponse{Purged: 18}, nil
	})
}

// GetCluster implements the service.
func (f *Fake) GetCluster(ctx context.Context, req *belfryv1.GetClusterRequest) (*belfryv1.GetClusterResponse, error) {
	return handle(ctx, f, "GetCluster", "", 1, req, func() (*belfryv1.GetClusterResponse, error) {
		return &belfryv1.GetClusterResponse{ClusterId: "c", AnsweredBy: "n1"}, nil
	})
}

// seen gives the requests a fake sees, without their request ids.
func seen(f *Fake) *[]proto.Message {
	var all []proto.Message
	f.failBefore(func(_ context.Context, _ string, req proto.Message) error {
		req = proto.Clone(req)
		if id := req.ProtoReflect().Descriptor().Fields().ByName("request_id"); id != nil {
			req.ProtoReflect().Clear(id)
		}
		all = append(all, req)
		return nil
	})
	return &all
}

func TestAdmin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		requests := seen(fake)
		c := start(t, newPipeNet(), nil, fake).Admin()
		ctx := t.Context()
		settings := &admin.QueueSettings{TTR: new(time.Minute)}
		wire := &belfryv1.QueueSettings{Ttr: durationpb.New(time.Minute)}
		if created, err := c.CreateQueue(ctx, "q", 4, settings); err != nil || created.Partitions != 4 ||
			*created.Settings.TTR != time.Minute {
			t.Errorf("create: %+v, %v", created, err)
		}
		var names []string
		for queue, err := range c.Queues(ctx, "n") {
			if err != nil {
				t.Fatal(err)
			}
			if names = append(names, queue.Name); len(names) == 5 {
				break
			}
		}
		if diff := cmp.Diff([]string{"n0", "n1", "n2", "n3", "n4"}, names); diff != "" {
			t.Errorf("queues (-want +got):\n%s", diff)
		}
		if queue, err := c.Queue(ctx, "q"); err != nil || queue.Name != "q" {
			t.Errorf("queue: %v, %v", queue, err)
		}
		if updated, err := c.UpdateQueue(ctx, "q", settings); err != nil || updated.Version != 7 {
			t.Errorf("update: %v, %v", updated, err)
		}
		if n, err := c.PurgeQueue(ctx, "q", "DEAD", "RESERVED"); err != nil || n != 17 {
			t.Errorf("purge: %d, %v", n, err)
		}
		if _, err := c.PurgeQueue(ctx, "q", "DAED"); err == nil {
			t.Error("purge of a state that does not exist")
		}
		if n, err := c.ReleaseLeases(ctx, admin.LeaseHolder{Queue: "q", Client: "w@10.0.0.7"}); err != nil || n != 3 {
			t.Errorf("release: %d, %v", n, err)
		}
		if n, err := c.DeleteQueue(ctx, "q"); err != nil || n != 18 {
			t.Errorf("delete: %d, %v", n, err)
		}
		if cluster, err := c.Cluster(ctx); err != nil || cluster.AnsweredBy != "n1" {
			t.Errorf("cluster: %v, %v", cluster, err)
		}
		want := []proto.Message{
			&belfryv1.CreateQueueRequest{Queue: "q", Partitions: 4, Settings: wire},
			&belfryv1.ListQueuesRequest{Prefix: "n"},
			&belfryv1.ListQueuesRequest{Prefix: "n", PageToken: "x"},
			&belfryv1.ListQueuesRequest{Prefix: "n", PageToken: "xx"},
			&belfryv1.GetQueueRequest{Queue: "q"},
			&belfryv1.UpdateQueueRequest{Queue: "q", Settings: wire},
			&belfryv1.PurgeQueueRequest{
				Queue: "q", States: []belfryv1.JobState{belfryv1.JobState_JOB_STATE_DEAD, belfryv1.JobState_JOB_STATE_RESERVED},
			},
			&belfryv1.ReleaseLeasesRequest{Queue: "q", Client: "w@10.0.0.7"},
			&belfryv1.ReleaseLeasesRequest{Queue: "q", Client: "w@10.0.0.7", PageToken: "x"},
			&belfryv1.DeleteQueueRequest{Queue: "q"},
			&belfryv1.GetClusterRequest{},
		}
		if diff := cmp.Diff(want, *requests, protocmp.Transform()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// TestAdminRepeats: an administrative call whose answer is lost is sent again under the same request
// id, as any other. Its error is an Error with that id.
func TestAdminRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		lost := 0
		fake.failAfter(func(context.Context, string, proto.Message) error {
			if lost++; lost < 3 {
				return refusal(connect.CodeUnavailable, "UNKNOWN_OUTCOME", "UNKNOWN", 0)
			}
			return nil
		})
		c := start(t, newPipeNet(), nil, fake)
		if n, err := c.Admin().PurgeQueue(t.Context(), "q"); err != nil || n != 17 {
			t.Errorf("purge: %d, %v", n, err)
		}
		ids := fake.ids("PurgeQueue")
		if len(ids) != 3 || ids[0] == "" || ids[1] != ids[0] || ids[2] != ids[0] {
			t.Errorf("ids of requests: %q", ids)
		}
		fake.failBefore(func(context.Context, string, proto.Message) error {
			return refusal(connect.CodeNotFound, "QUEUE_NOT_FOUND", "NOT_APPLIED", 0)
		})
		_, err := c.Admin().PurgeQueue(t.Context(), "q")
		e, ok := errors.AsType[*Error](err)
		if !ok || !errors.Is(err, Reason("QUEUE_NOT_FOUND")) || e.RequestID == "" || e.RequestID == ids[0] {
			t.Errorf("%+v", err)
		}
		if _, err := c.Admin().PurgeQueue(t.Context(), "q", "DAED"); !errors.Is(err, Reason("INVALID")) {
			t.Errorf("a call that is not sent: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Admin().Cluster(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("of a closed client: %v", err)
		}
	})
}

// TestTasksSelectAsListsDo: a task can select every job that a list can, but for those of one key.
func TestTasksSelectAsListsDo(t *testing.T) {
	list, selection := reflect.TypeFor[ListOptions](), reflect.TypeFor[admin.Selection]()
	for i := range list.NumField() {
		field := list.Field(i)
		if field.Name == "PageSize" || field.Name == "Key" {
			continue
		}
		if same, ok := selection.FieldByName(field.Name); !ok || same.Type != field.Type {
			t.Errorf("a task has no %s", field.Name)
		}
	}
}

// TestTextThatIsNotUTF8: the call is refused before it is sent, and the error names the field.
func TestTextThatIsNotUTF8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		requests := seen(fake)
		c := start(t, newPipeNet(), nil, fake)
		const bad = "a\xff"
		_, onePut := c.Put(t.Context(), "q", nil, Key(bad))
		_, puts := c.PutBatch(t.Context(), []Put{{Queue: "q", Options: []PutOption{Header(bad, "v")}}})
		_, reserve := c.Reserve(t.Context(), ReserveOptions{Queues: []string{"q", "\xe2", "\x82\xac"}, Max: 2})
		_, trigger := c.Schedules().Trigger(t.Context(), "q", bad, time.Time{})
		for field, err := range map[string]error{"key": onePut, "headers": puts, "queues[1]": reserve, "name": trigger} {
			e, ok := errors.AsType[*Error](err)
			want := field + ": not valid UTF-8"
			if !ok || !errors.Is(err, Reason("INVALID")) || e.Outcome != OutcomeNotApplied || e.Message != want {
				t.Errorf("%s: %v", field, err)
			}
		}
		if len(*requests) > 0 {
			t.Errorf("sent: %T", (*requests)[0])
		}
	})
}

func TestPutOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := NewFake()
		requests := seen(fake)
		c := start(t, newPipeNet(), []Option{Coalescing{Off: true}}, fake)
		at := time.Now().Add(time.Hour)
		for _, opts := range [][]PutOption{
			{},
			{
				ID("order-42"), In(90 * time.Second), TTR(time.Minute), Priority(-128), MaxAttempts(0), RetryDelays(0, time.Second),
				TTL(time.Hour), Header("a", "1"), Header("b", "2"), Again(),
			},
			{At(at)},
		} {
			if _, err := c.Put(t.Context(), "ns/orders", []byte("x"), opts...); err != nil {
				t.Fatal(err)
			}
		}
		body := &belfryv1.PutRequest_Data{Data: []byte("x")}
		want := []proto.Message{
			&belfryv1.PutRequest{Queue: "ns/orders", Body: body},
			&belfryv1.PutRequest{
				Queue: "ns/orders", Body: body, Id: "order-42",
				When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(90 * time.Second)},
				Ttr:  durationpb.New(time.Minute), Priority: proto.Int64(-128), MaxAttempts: proto.Uint32(0),
				RetryDelays: []*durationpb.Duration{durationpb.New(0), durationpb.New(time.Second)}, Ttl: durationpb.New(time.Hour),
				Headers: map[string]string{"a": "1", "b": "2"}, Again: true,
			},
			&belfryv1.PutRequest{Queue: "ns/orders", Body: body, When: &belfryv1.PutRequest_DueAt{DueAt: timestamppb.New(at)}},
		}
		if diff := cmp.Diff(want, *requests, protocmp.Transform()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}
