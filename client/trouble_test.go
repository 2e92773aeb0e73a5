package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// lines is a writer for a logger of several goroutines.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestWorkerOfAServerThatIsDown says so with address and reason, once at first and once a minute,
// and Run returns the reason.
func TestWorkerOfAServerThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		c, err := New("http://down:7400", WithDialer(newPipeNet().dial), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, stop := context.WithTimeout(t.Context(), 150*time.Second)
		defer stop()
		err = Worker{Queues: []string{"q"}}.Run(ctx, c, func(context.Context, *Job) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "never got an answer from http://down:7400") ||
			!errors.As(err, new(*Error)) {
			t.Errorf("Run returned %v", err)
		}
		got := strings.Count(log.String(), "gets no jobs from the server")
		if got < 2 || got > 3 || strings.Count(log.String(), "\n") != got ||
			!strings.Contains(log.String(), "http://down:7400") {
			t.Errorf("in 150 s the log got:\n%s", log.String())
		}
	})
}

// TestPanicsAreReported to OnError and to the log, and retried.
func TestPanicsAreReported(t *testing.T) {
	inBench(t, func(b *bench) {
		b.put("a")
		b.run(Worker{Concurrency: 1}, func(_ context.Context, job *Job) error {
			if job.Attempt == 1 {
				panic("broken")
			}
			b.stop()
			return nil
		})
		synctest.Wait()
		b.finish(time.Minute)
		select {
		case err := <-b.errs:
			if !strings.HasPrefix(err.Error(), "the handler panicked: broken\n") {
				t.Errorf("OnError heard %v", err)
			}
		default:
			t.Error("OnError did not hear of the panic")
		}
	})
}

// TestWorkerOfAQueueThatDoesNotExist logs its name, once, also while another queue always has jobs.
func TestWorkerOfAQueueThatDoesNotExist(t *testing.T) {
	inBench(t, func(b *bench) {
		var log lines
		b.client.logger = slog.New(slog.NewTextHandler(&log, nil))
		b.fake.failBefore(func(_ context.Context, _ string, req proto.Message) error {
			if get, ok := req.(*belfryv1.GetQueueRequest); ok && get.GetQueue() == "ordrs" {
				return refusal(connect.CodeNotFound, "QUEUE_NOT_FOUND", "not_applied", 0)
			}
			return nil
		})
		b.put("job")
		var worked atomic.Int64
		b.run(Worker{Queues: []string{"q", "ordrs"}}, func(context.Context, *Job) error {
			time.Sleep(time.Second)
			b.put(fmt.Sprint("job", worked.Add(1)))
			return nil
		})
		time.Sleep(3 * pollWait)
		b.finish(time.Minute)
		if text := log.String(); strings.Count(text, "\n") != 1 ||
			!strings.Contains(text, `does not exist yet" queue=ordrs`) {
			b.t.Errorf("the log has:\n%s", text)
		}
	})
}

// TestWorkerThatMayNotLook asks about no other queue once it is refused.
func TestWorkerThatMayNotLook(t *testing.T) {
	inBench(t, func(b *bench) {
		var asked atomic.Int64
		b.fake.failBefore(func(_ context.Context, _ string, req proto.Message) error {
			if _, ok := req.(*belfryv1.GetQueueRequest); ok {
				asked.Add(1)
				return refusal(connect.CodePermissionDenied, "FORBIDDEN", "not_applied", 0)
			}
			return nil
		})
		b.run(Worker{Queues: []string{"q", "r", "s"}}, func(context.Context, *Job) error { return nil })
		time.Sleep(3 * pollWait)
		b.finish(time.Minute)
		if n := asked.Load(); n != 1 {
			b.t.Errorf("it asked %d times", n)
		}
	})
}

// TestInWithAt is refused with both names, whichever comes first; one of them may be given twice.
func TestInWithAt(t *testing.T) {
	inBench(t, func(b *bench) {
		in, at := In(time.Minute), At(time.Now())
		for _, opts := range [][]PutOption{{in, at}, {at, in}} {
			_, err := b.client.Put(b.t.Context(), "q", nil, opts...)
			if !errors.Is(err, Reason("INVALID")) || !strings.Contains(err.Error(), "In and At are both given") {
				b.t.Errorf("got %v", err)
			}
		}
		if _, err := b.client.Put(b.t.Context(), "q", nil, In(0), in); err != nil {
			b.t.Error(err)
		}
	})
}

// TestQueueHasWhatAClientHas: values go in and out by every way.
func TestQueueHasWhatAClientHas(t *testing.T) {
	inBench(t, func(b *bench) {
		t := b.t
		q := NewQueue[string](b.client, "q")
		if _, err := q.PutBatch(t.Context(), []PutOf[string]{
			{Value: "one"},
			{Value: "two", Options: []PutOption{ID("two"), In(time.Hour)}},
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Reserve(t.Context(), ReserveOptions{Queues: []string{"r"}}); !errors.Is(err, Reason("INVALID")) {
			t.Errorf("Reserve of another queue: %v", err)
		}
		jobs, err := q.Reserve(t.Context(), ReserveOptions{Max: 10})
		if err != nil || len(jobs) != 1 || jobs[0].Value != "one" {
			t.Fatalf("reserved %v, %v", jobs, err)
		}
		if err := jobs[0].Ack(t.Context()); err != nil {
			t.Error(err)
		}
		if state, err := q.Cancel(t.Context(), "two"); err != nil || state != "DELAYED" {
			t.Errorf("cancel: %s, %v", state, err)
		}
	})
}
