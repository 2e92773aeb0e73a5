package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/belfrydb/belfry/client/internal/tracing"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The servers' limit of all headers of a job, and the size of a header traceparent.
const (
	headerBytesMax = 16 << 10
	parentBytes    = len(tracing.HeaderParent) + len("00-") + 32 + len("-") + 16 + len("-00")
)

// headersSize returns how many bytes headers count against their limit.
func headersSize(headers map[string]string) (bytes int) {
	for name, value := range headers {
		bytes += len(name) + len(value)
	}
	return bytes
}

// A collector keeps the spans that ended.
type collector struct {
	*tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{InMemoryExporter: tracetest.NewInMemoryExporter()}
	c.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(c))
	return c
}

// named gives the spans of a name, in the order in which they ended.
func (c *collector) named(name string) tracetest.SpanStubs {
	return slices.DeleteFunc(c.GetSpans(), func(s tracetest.SpanStub) bool { return s.Name != name })
}

// one gives the only span of a name.
func (c *collector) one(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	all := c.named(name)
	if len(all) != 1 {
		t.Fatalf("there are %d spans %q, want 1; all: %q", len(all), name, c.names())
	}
	return all[0]
}

// names gives the names of all spans, in the order in which they ended.
func (c *collector) names() (names []string) {
	for _, s := range c.GetSpans() {
		names = append(names, s.Name)
	}
	return names
}

// about gives the attributes of a span.
func about(s *tracetest.SpanStub) map[string]any {
	all := make(map[string]any)
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

// wantAbout compares the attributes of a span.
func wantAbout(t *testing.T, s *tracetest.SpanStub, kind trace.SpanKind, want map[string]any) {
	t.Helper()
	want["messaging.system"] = "belfry"
	if diff := cmp.Diff(want, about(s)); diff != "" || s.SpanKind != kind {
		t.Errorf("span %q is a %v (-want +got):\n%s", s.Name, s.SpanKind, diff)
	}
}

// links reports whether a span has this link and no other.
func links(s *tracetest.SpanStub, to trace.SpanContext) bool {
	return len(s.Links) == 1 && s.Links[0].SpanContext.TraceID() == to.TraceID() &&
		s.Links[0].SpanContext.SpanID() == to.SpanID()
}

// inTrace runs a test in a bubble with a fake and a client whose spans are collected.
func inTrace(t *testing.T, opts []Option, test func(b *bench, spans *collector)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		spans := newCollector(t)
		b := &bench{t: t, fake: NewFake(), errs: make(chan error, 1000), done: make(chan error, 1)}
		b.client = start(t, newPipeNet(), append(opts, WithTracerProvider(spans.provider)), b.fake)
		test(b, spans)
	})
}

// work runs a worker until its handlers have run so many times, and stops it.
func (b *bench) work(times int, h Handler) {
	b.t.Helper()
	handled := make(chan struct{}, times)
	b.run(Worker{}, func(ctx context.Context, job *Job) error {
		defer func() { handled <- struct{}{} }()
		return h(ctx, job)
	})
	for range times {
		<-handled
	}
	synctest.Wait()
	b.finish(time.Second)
}

// headers gives what the job of an id was put with.
func (b *bench) headers(id string) map[string]string {
	b.fake.mu.Lock()
	defer b.fake.mu.Unlock()
	for _, job := range b.fake.jobs {
		if job.id == id {
			return job.put.GetHeaders()
		}
	}
	b.t.Errorf("there is no job %s", id)
	return nil
}

func TestTraceOfAJob(t *testing.T) {
	inTrace(t, nil, func(b *bench, spans *collector) {
		ctx, asked := spans.provider.Tracer("test").Start(b.t.Context(), "order")
		if _, err := b.client.Put(ctx, "q", []byte("body"), ID("a"), In(time.Hour), Header("k", "v")); err != nil {
			b.t.Fatal(err)
		}
		asked.End()
		var inHandler trace.SpanContext
		b.work(1, func(ctx context.Context, job *Job) error {
			inHandler = trace.SpanContextFromContext(ctx)
			if job.Headers["k"] != "v" {
				b.t.Errorf("the headers of the job are %v", job.Headers)
			}
			return nil
		})
		if diff := cmp.Diff([]string{"send q", "order", "process q", "ack q"}, spans.names()); diff != "" {
			b.t.Fatalf("the spans (-want +got):\n%s", diff)
		}
		send, process, ack := spans.one(b.t, "send q"), spans.one(b.t, "process q"), spans.one(b.t, "ack q")
		wantAbout(b.t, &send, trace.SpanKindProducer, map[string]any{
			"messaging.operation.name": "send", "messaging.operation.type": "send", "messaging.destination.name": "q",
			"messaging.message.id": "a", "belfry.put.created": true,
		})
		wantAbout(b.t, &process, trace.SpanKindConsumer, map[string]any{
			"messaging.operation.name": "process", "messaging.operation.type": "process", "messaging.destination.name": "q",
			"messaging.message.id": "a", "messaging.message.body.size": int64(4), "belfry.job.attempt": int64(1),
		})
		wantAbout(b.t, &ack, trace.SpanKindClient, map[string]any{
			"messaging.operation.name": "ack", "messaging.operation.type": "settle", "messaging.destination.name": "q",
			"messaging.message.id": "a",
		})
		if send.Parent.SpanID() != asked.SpanContext().SpanID() || len(send.Links) > 0 {
			b.t.Errorf("the send's parent is %v, its links %v", send.Parent, send.Links)
		}
		if process.Parent.IsValid() || !links(&process, send.SpanContext) ||
			process.SpanContext.TraceID() == send.SpanContext.TraceID() {
			b.t.Errorf("the process has parent %v, links %v, want a root that links %v", process.Parent, process.Links,
				send.SpanContext)
		}
		if ack.Parent.SpanID() != process.SpanContext.SpanID() || !links(&ack, send.SpanContext) {
			b.t.Errorf("the ack has parent %v, links %v", ack.Parent, ack.Links)
		}
		if inHandler.SpanID() != process.SpanContext.SpanID() {
			b.t.Errorf("the handler ran in span %v", inHandler)
		}
		if waited := process.StartTime.Sub(send.EndTime); waited < time.Hour || ack.StartTime.Before(process.EndTime) {
			b.t.Errorf("the work began %v after the put ended, the ack at %v, before %v", waited, ack.StartTime, process.EndTime)
		}
	})
}

func TestTraceOfResults(t *testing.T) {
	for name, try := range map[string]struct {
		result         func() error
		settled        string
		status, reason string
	}{
		"nil":         {func() error { return nil }, "ack q", "", ""},
		"error":       {func() error { return errors.New("smtp 421") }, "nack q", "smtp 421", "_OTHER"},
		"retry after": {func() error { return RetryAfter(time.Hour, errors.New("421")) }, "nack q", "421", "_OTHER"},
		"dead": {func() error {
			return Dead(fmt.Errorf("put: %w", &Error{Reason: ErrQueueFull}))
		}, "nack q", "put: QUEUE_FULL", "QUEUE_FULL"},
		"no server": {func() error { return closedError() }, "nack q", closedError().Error(), "canceled"},
		"snooze":    {func() error { return Snooze(time.Hour) }, "release q", "", ""},
		"panic":     {func() error { panic("boom") }, "nack q", "the handler panicked: boom", "_OTHER"},
	} {
		t.Run(name, func(t *testing.T) {
			inTrace(t, nil, func(b *bench, spans *collector) {
				b.put("a")
				b.run(Worker{}, func(ctx context.Context, _ *Job) error {
					b.stop()
					return try.result()
				})
				if err := <-b.done; err != nil {
					b.t.Error(err)
				}
				process, settled := spans.one(b.t, "process q"), spans.one(b.t, try.settled)
				if status := process.Status; !strings.HasPrefix(status.Description, try.status) ||
					(try.status == "") != (status.Code.String() == "Unset") ||
					len(status.Description) > errorBytesMax {
					b.t.Errorf("the status is %v %q, want %q", status.Code, status.Description, try.status)
				}
				if reason, _ := about(&process)["error.type"].(string); reason != try.reason {
					b.t.Errorf("the type of the error is %q, want %q", reason, try.reason)
				}
				if settled.Parent.SpanID() != process.SpanContext.SpanID() || settled.Status.Code.String() != "Unset" {
					b.t.Errorf("%s has parent %v and status %v", settled.Name, settled.Parent, settled.Status)
				}
			})
		})
	}
}

// TestAttemptsLinkThePut: each of them, and only a first one that comes soon is its child.
func TestAttemptsLinkThePut(t *testing.T) {
	for name, try := range map[string]struct {
		within, delay time.Duration
		child         bool
	}{
		"by default":  {0, 0, false},
		"soon enough": {time.Minute, 59 * time.Second, true},
		"not so soon": {time.Minute, 61 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			inTrace(t, []Option{ParentIfWithin(try.within)}, func(b *bench, spans *collector) {
				if _, err := b.client.Put(b.t.Context(), "q", nil, In(try.delay)); err != nil {
					b.t.Fatal(err)
				}
				b.work(2, func(_ context.Context, job *Job) error {
					if job.Attempt == 1 {
						return errors.New("once more")
					}
					return nil
				})
				send, attempts := spans.one(b.t, "send q"), spans.named("process q")
				if len(attempts) != 2 {
					b.t.Fatalf("there are %d attempts: %q", len(attempts), spans.names())
				}
				for i := range attempts {
					child := attempts[i].Parent.SpanID() == send.SpanContext.SpanID() &&
						attempts[i].SpanContext.TraceID() == send.SpanContext.TraceID()
					if root := !attempts[i].Parent.IsValid(); child == root || child != (try.child && i == 0) ||
						!links(&attempts[i], send.SpanContext) {
						b.t.Errorf("attempt %d has parent %v, links %v; the send is %v", i+1, attempts[i].Parent, attempts[i].Links,
							send.SpanContext)
					}
				}
			})
		})
	}
}

const (
	parentOfUser = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traceOfUser  = "0af7651916cd43dd8448eb211c80319c"
)

// A headersCase is a put with headers, in a trace that has the state a=1.
type headersCase struct {
	given          map[string]string
	parent, state  bool   // are added
	kind           string // of the send
	linked, joined string // the traces that the send and the process link, "" for none, "send" for the send's
}

func headersCases() map[string]headersCase {
	room := func(left int) map[string]string {
		return map[string]string{"k": strings.Repeat("v", headerBytesMax-parentBytes-len("k")-left)}
	}
	return map[string]headersCase{
		"none":   {nil, true, true, "producer", "", "send"},
		"others": {map[string]string{"k": "v"}, true, true, "producer", "", "send"},
		"the caller's": {map[string]string{tracing.HeaderParent: parentOfUser}, false, false, "client", traceOfUser,
			traceOfUser},
		"a state only": {map[string]string{tracing.HeaderState: "a=1"}, false, false, "client", "", ""},
		"nonsense":     {map[string]string{tracing.HeaderParent: "00-zz-1"}, false, false, "client", "", ""},
		"empty":        {map[string]string{tracing.HeaderParent: ""}, false, false, "client", "", ""},
		"of a later version": {map[string]string{tracing.HeaderParent: "ff" + parentOfUser[2:]}, false, false, "client", "",
			""},
		"long": {map[string]string{tracing.HeaderParent: strings.Repeat("0-", 8000)}, false, false, "client", "", ""},
		"bad state": {map[string]string{
			tracing.HeaderParent: parentOfUser, tracing.HeaderState: "\x00=,,,",
		}, false, false, "client", traceOfUser, traceOfUser},
		"room for both": {room(len(tracing.HeaderState) + len("a=1")), true, true, "producer", "", "send"},
		"room for one":  {room(len(tracing.HeaderState) + len("a=1") - 1), true, false, "producer", "", "send"},
		"just that":     {room(0), true, false, "producer", "", "send"},
		"no room":       {room(-1), false, false, "client", "", ""},
	}
}

// TestHeadersOfTraces: what the caller gave stays, and what does not fit is left out.
func TestHeadersOfTraces(t *testing.T) {
	for name, try := range headersCases() {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, batch %v", name, batch), func(t *testing.T) {
				inTrace(t, nil, func(b *bench, spans *collector) {
					state, _ := trace.ParseTraceState("a=1")
					ctx := trace.ContextWithRemoteSpanContext(b.t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
						TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled, TraceState: state,
					}))
					given := maps.Clone(try.given)
					shared := PutOption{func(r *belfryv1.PutRequest) { r.Headers = given }}
					var err error
					if batch {
						_, err = b.client.PutBatch(ctx, []Put{{Queue: "q", Options: []PutOption{ID("a"), shared}}})
					} else {
						_, err = b.client.Put(ctx, "q", nil, ID("a"), shared)
					}
					if err != nil || !maps.Equal(given, try.given) {
						b.t.Fatalf("%v, and the caller's headers are %v now", err, given)
					}
					send := spans.one(b.t, "send q")
					want := maps.Clone(try.given)
					if want == nil {
						want = make(map[string]string)
					}
					if try.parent {
						want[tracing.HeaderParent] = fmt.Sprintf("00-%s-%s-01", send.SpanContext.TraceID(), send.SpanContext.SpanID())
					}
					if try.state {
						want[tracing.HeaderState] = "a=1"
					}
					if got := b.headers("a"); !maps.Equal(got, want) || headersSize(got) > headerBytesMax {
						b.t.Errorf("the job has headers of %d bytes: %.200v, want %.200v", headersSize(got), got, want)
					}
					if kind := send.SpanKind.String(); kind != try.kind && !batch {
						b.t.Errorf("the send is a %s, want a %s", kind, try.kind)
					}
					b.work(1, func(context.Context, *Job) error { return nil })
					process := spans.one(b.t, "process q")
					for s, linked := range map[*tracetest.SpanStub]string{&send: try.linked, &process: try.joined} {
						if linked == "send" {
							linked = send.SpanContext.TraceID().String()
						}
						var got string
						for _, link := range s.Links {
							got += link.SpanContext.TraceID().String()
						}
						if got != linked {
							b.t.Errorf("%s links %q, want %q", s.Name, got, linked)
						}
					}
				})
			})
		}
	}
}

// TestCoalescedPutsKeepTheirSpans although they leave in one batch.
func TestCoalescedPutsKeepTheirSpans(t *testing.T) {
	inTrace(t, []Option{Coalescing{MaxDelay: time.Millisecond}}, func(b *bench, spans *collector) {
		var all sync.WaitGroup
		const puts = 20
		for i := range puts {
			all.Go(func() {
				if _, err := b.client.Put(b.t.Context(), "q", nil, ID(fmt.Sprintf("job%d", i))); err != nil {
					b.t.Error(err)
				}
			})
		}
		all.Wait()
		if sizes := b.fake.sizes("PutBatch"); len(sizes) > 3 {
			b.t.Errorf("the puts came in batches of %v", sizes)
		}
		sent := spans.named("send q")
		if len(sent) != puts {
			b.t.Fatalf("%d spans of %d puts", len(sent), puts)
		}
		for i := range sent {
			id, _ := about(&sent[i])["messaging.message.id"].(string)
			if got := (&Job{Headers: b.headers(id)}).SpanContext(); got.SpanID() != sent[i].SpanContext.SpanID() ||
				!got.IsRemote() {
				b.t.Errorf("job %s carries %v, its put is %v", id, got, sent[i].SpanContext)
			}
		}
	})
}

func TestTraceOfBatches(t *testing.T) {
	inTrace(t, nil, func(b *bench, spans *collector) {
		puts := []Put{
			{Queue: "q"},
			{Queue: "q", Options: []PutOption{Header(tracing.HeaderParent, parentOfUser)}},
			{Queue: "\xff"},
		}
		if _, err := b.client.PutBatch(b.t.Context(), puts); err == nil {
			b.t.Fatal("a queue whose name is no text was taken")
		}
		send := spans.one(b.t, "send")
		wantAbout(b.t, &send, trace.SpanKindProducer, map[string]any{
			"messaging.operation.name": "send", "messaging.operation.type": "send", "messaging.batch.message_count": int64(3),
			"error.type": "INVALID",
		})
		jobs, err := b.client.Reserve(b.t.Context(), ReserveOptions{Queues: []string{"q"}, Max: 2})
		if err != nil || len(jobs) != 2 || jobs[0].SpanContext().SpanID() != send.SpanContext.SpanID() ||
			jobs[1].SpanContext().TraceID().String() != traceOfUser {
			b.t.Fatalf("%v, %v", jobs, err)
		}
		if _, err := b.client.AckBatch(b.t.Context(), []string{jobs[0].Lease, jobs[1].Lease}); err != nil {
			b.t.Fatal(err)
		}
		ack := spans.one(b.t, "ack")
		wantAbout(b.t, &ack, trace.SpanKindClient, map[string]any{
			"messaging.operation.name": "ack", "messaging.operation.type": "settle", "messaging.batch.message_count": int64(2),
		})
		if _, err := b.client.PutBatch(b.t.Context(), puts[2:]); err == nil || len(spans.named("send ?")) != 1 {
			b.t.Errorf("%v, and the spans are %q", err, spans.names())
		}
		if len(spans.GetSpans()) != 3 {
			b.t.Errorf("there are other spans: %q", spans.names())
		}
	})
}

// TestTraceWithoutAWorker: the caller begins the span of the work.
func TestTraceWithoutAWorker(t *testing.T) {
	inTrace(t, nil, func(b *bench, spans *collector) {
		b.put("a")
		jobs, err := b.client.Reserve(b.t.Context(), ReserveOptions{Queues: []string{"q"}})
		if err != nil || len(jobs) != 1 {
			b.t.Fatalf("%v, %v", jobs, err)
		}
		ctx, asked := spans.provider.Tracer("test").Start(b.t.Context(), "loop")
		ctx, work := jobs[0].StartSpan(ctx)
		asked.End()
		if err := jobs[0].Ack(ctx); err != nil {
			b.t.Fatal(err)
		}
		work.End()
		if err := jobs[0].Nack(b.t.Context(), errors.New("too late")); !errors.Is(err, ErrStaleLease) {
			b.t.Errorf("the nack of an acked job ended with %v", err)
		}
		send, process, ack, nack := spans.one(b.t, "send q"), spans.one(b.t, "process q"), spans.one(b.t, "ack q"),
			spans.one(b.t, "nack q")
		if process.Parent.IsValid() || !links(&process, send.SpanContext) ||
			ack.Parent.SpanID() != process.SpanContext.SpanID() || !links(&nack, send.SpanContext) {
			b.t.Errorf("process: %v, %v, ack: %v, nack: %v", process.Parent, process.Links, ack.Parent, nack.Links)
		}
		if about(&nack)["error.type"] != "STALE_LEASE" || nack.Status.Code.String() != "Error" {
			b.t.Errorf("the nack is %v, %v", nack.Status, about(&nack))
		}
	})
}

// TestWaitingMakesNoSpans, nor does what the client gives back on its own.
func TestWaitingMakesNoSpans(t *testing.T) {
	inTrace(t, nil, func(b *bench, spans *collector) {
		if jobs, err := b.client.Reserve(b.t.Context(), ReserveOptions{
			Queues: []string{"q"}, Wait: time.Minute,
		}); err != nil || len(jobs) > 0 {
			b.t.Fatalf("%v, %v", jobs, err)
		}
		b.run(Worker{}, func(context.Context, *Job) error { return nil })
		time.Sleep(time.Hour)
		b.finish(time.Second)
		if names := spans.names(); len(names) > 0 {
			b.t.Errorf("there are spans: %q", names)
		}
		b.put("a", "b")
		b.run(Worker{Concurrency: 1, Prefetch: 1}, func(context.Context, *Job) error {
			synctest.Wait() // until the worker holds the other job too
			b.stop()
			return nil
		})
		if err := <-b.done; err != nil {
			b.t.Error(err)
		}
		if diff := cmp.Diff([]string{"send q", "send q", "process q", "ack q"}, spans.names()); diff != "" {
			b.t.Errorf("one of two jobs went back (-want +got):\n%s", diff)
		}
		b.want("b", jobState{state: "DELAYED"})
	})
}

// TestNoTracing: without a provider nothing is added, and no span recorded.
func TestNoTracing(t *testing.T) {
	inBench(t, func(b *bench) {
		spans := newCollector(t)
		ctx, caller := spans.provider.Tracer("test").Start(b.t.Context(), "caller")
		if _, err := b.client.Put(ctx, "q", nil, ID("a")); err != nil {
			b.t.Fatal(err)
		}
		if _, err := b.client.PutBatch(ctx, []Put{{Queue: "q", Options: []PutOption{ID("b")}}}); err != nil {
			b.t.Fatal(err)
		}
		if a, b := b.headers("a"), b.headers("b"); len(a)+len(b) > 0 {
			t.Errorf("the jobs have headers %v, %v", a, b)
		}
		jobs, err := b.client.Reserve(ctx, ReserveOptions{Queues: []string{"q"}, Max: 2})
		if err != nil || len(jobs) != 2 || jobs[0].SpanContext().IsValid() {
			b.t.Fatalf("%v, %v", jobs, err)
		}
		for _, job := range append(jobs, &Job{}) {
			_, work := job.StartSpan(ctx)
			work.End() // not the caller's
		}
		if !caller.IsRecording() || len(spans.GetSpans()) > 0 {
			b.t.Errorf("the caller's span has ended, or there are others: %q", spans.names())
		}
	})
}
