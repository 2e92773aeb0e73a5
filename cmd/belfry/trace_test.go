package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/local"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// TestTraceAcrossDelayAndLeaderChange follows a job from its put to its ack, at three nodes of
// which another one leads when the job falls due.
func TestTraceAcrossDelayAndLeaderChange(t *testing.T) {
	t.Parallel()
	host := testHost()
	err := host.WithTrio(t.Context(), func(int, int) {}, func(three *local.Trio) (err error) {
		j := &journey{t: t, url: three.Servers[0].URL(), spans: tracetest.NewInMemoryExporter()}
		provider := trace.NewTracerProvider(trace.WithSyncer(j.spans))
		j.tracer = func(ctx context.Context) (context.Context, func()) {
			ctx, span := provider.Tracer("test").Start(ctx, "order")
			return ctx, func() { span.End() }
		}
		j.client, err = client.New(three.Urls(), client.WithTracerProvider(provider))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, j.client.Close()) }()
		// On a machine that is so busy that the job falls due before the leader has changed, another job
		// waits for longer.
		for delay := time.Second; !j.travel(delay); delay *= 2 {
			t.Logf("the leader had not changed after %v", delay)
			j.spans.Reset()
		}
		j.check()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A journey is that of one job.
type journey struct {
	t      *testing.T
	url    string // of one of the nodes
	client *client.Client
	spans  *tracetest.InMemoryExporter
	tracer func(context.Context) (_ context.Context, end func())

	queue string
	put   client.PutResult
	moved time.Time // the leader had changed, and the job was delayed still
}

// travel puts a job, has the leader changed, and waits until a worker is done with the job. It
// reports whether the job was delayed all the time.
func (j *journey) travel(delay time.Duration) (waited bool) {
	j.t.Helper()
	j.queue = fmt.Sprintf("orders-%v", delay)
	ctx, end := j.tracer(j.t.Context())
	for repeat := range 2 { // the second time it is the same put, although in another span
		put, err := j.client.Put(ctx, j.queue, []byte("close"), client.ID("order-42"), client.In(delay))
		if err != nil || put.Created != (repeat == 0) {
			j.t.Fatalf("put: %+v, %v", put, err)
		}
		j.put = put
	}
	end()

	working, stop := context.WithCancel(j.t.Context())
	defer stop()
	handled, stopped := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		stopped <- client.Worker{Queues: []string{j.queue}}.Run(working, j.client, func(context.Context, *client.Job) error {
			handled <- struct{}{}
			return nil
		})
	}()
	waited = j.moveLeader()
	select {
	case <-handled:
	case err := <-stopped:
		j.t.Fatalf("the worker ended without the job: %v", err)
	}
	stop()
	if err := <-stopped; err != nil {
		j.t.Errorf("the worker ended with %v", err)
	}
	return waited
}

// moveLeader has the leader of the job's shard hand over, and reports whether the job was delayed
// still under its successor.
func (j *journey) moveLeader() (delayed bool) {
	j.t.Helper()
	ctx := j.t.Context()
	queues := belfryv1connect.NewQueueServiceClient(http.DefaultClient, j.url)
	look := func() (*belfryv1.GetResponse, error) {
		return queues.Get(ctx, &belfryv1.GetRequest{Queue: j.queue, Id: "order-42"})
	}
	job, err := look()
	if err != nil {
		return false // it is done already
	}
	before := job.GetWitness()
	admin := belfryv1connect.NewAdminServiceClient(http.DefaultClient, j.url)
	await(j.t, "the leader to hand over", func() bool {
		change, err := admin.TransferLeader(ctx, &belfryv1.TransferLeaderRequest{Shard: before.GetShard()})
		return err == nil && change.GetPrevious() != change.GetLeader()
	})
	await(j.t, "an answer of the next leader", func() bool {
		job, err = look()
		return err == nil && job.GetWitness().GetTerm() > before.GetTerm() || connect.CodeOf(err) == connect.CodeNotFound
	})
	j.moved = time.Now()
	return err == nil && job.GetJob().GetState() == belfryv1.JobState_JOB_STATE_DELAYED
}

// check looks at the spans.
func (j *journey) check() {
	j.t.Helper()
	byName := make(map[string]tracetest.SpanStub)
	for _, s := range j.spans.GetSpans() {
		if about(s)["belfry.put.created"] != false {
			byName[s.Name] = s
		}
	}
	order, send, process, ack := byName["order"], byName["send "+j.queue], byName["process "+j.queue],
		byName["ack "+j.queue]
	if all := len(j.spans.GetSpans()); len(byName) != 4 || all != 5 || !ack.SpanContext.IsValid() {
		j.t.Fatalf("there are %d spans, want order, send, process, ack, and a send that was repeated: %v", all, byName)
	}
	if send.SpanContext.TraceID() != order.SpanContext.TraceID() || send.Parent.SpanID() != order.SpanContext.SpanID() {
		j.t.Errorf("the send is no child of its caller's span: %v, %v", send.Parent, order.SpanContext)
	}
	if process.Parent.IsValid() || process.SpanContext.TraceID() == send.SpanContext.TraceID() {
		j.t.Errorf("the process is no trace of its own: %v, parent %v", process.SpanContext, process.Parent)
	}
	if len(process.Links) != 1 || !process.Links[0].SpanContext.Equal(send.SpanContext.WithRemote(true)) {
		j.t.Errorf("the process links %v, want %v", process.Links, send.SpanContext)
	}
	if ack.SpanContext.TraceID() != process.SpanContext.TraceID() || ack.Parent.SpanID() != process.SpanContext.SpanID() {
		j.t.Errorf("the ack is no child of the process: %v, %v", ack.Parent, process.SpanContext)
	}
	for _, want := range []struct {
		span  tracetest.SpanStub
		about map[string]any
	}{
		{send, map[string]any{
			"messaging.operation.name": "send", "messaging.operation.type": "send", "belfry.put.created": true,
		}},
		{process, map[string]any{
			"messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.message.body.size": int64(5), "belfry.job.attempt": int64(1),
		}},
		{ack, map[string]any{"messaging.operation.name": "ack", "messaging.operation.type": "settle"}},
	} {
		want.about["messaging.system"], want.about["messaging.destination.name"],
			want.about["messaging.message.id"] = "belfry", j.queue, "order-42"
		if diff := cmp.Diff(want.about, about(want.span)); diff != "" {
			j.t.Errorf("%s (-want +got):\n%s", want.span.Name, diff)
		}
	}
	times := []time.Time{order.StartTime, send.StartTime, send.EndTime, j.moved, process.StartTime, process.EndTime,
		ack.StartTime, ack.EndTime}
	for i := range times[1:] {
		if times[i+1].Before(times[i]) {
			j.t.Errorf("the times are not in order: %v", times)
		}
	}
	const bound = 250 * time.Millisecond // between the clock that names the due time and ours
	if process.StartTime.Before(j.put.DueAt.Add(-bound)) {
		j.t.Errorf("the work began at %v, and the job was due at %v", process.StartTime, j.put.DueAt)
	}
}

// about gives the attributes of a span.
func about(s tracetest.SpanStub) map[string]any {
	all := make(map[string]any)
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}
