package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/client"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"google.golang.org/protobuf/proto"
)

// fakeJob is a job of the fake server.
type fakeJob struct {
	put     *belfryv1.PutRequest
	id      string
	due     time.Time
	until   time.Time // of the lease; zero if no worker holds it
	fence   uint64
	attempt int
	dead    bool
}

// fakeQueues is a server in memory that does what the story needs, on the clock of a synctest
// bubble. It lets tests play a story in no time, and spoil it.
type fakeQueues struct {
	mu     sync.Mutex
	jobs   []*fakeJob
	serial uint64
	// changed is closed and made anew whenever a waiting reserve shall look again.
	changed chan struct{}

	// fails makes a method fail with an error; handsOut is called with each job that is handed out and
	// may spoil it.
	fails    map[string]error
	handsOut func(*client.Job)
	// forgets makes a second put of an id a new job.
	forgets bool
	// acksStale lets a lapsed lease end a job.
	acksStale bool
}

func newFakeQueues() *fakeQueues {
	return &fakeQueues{changed: make(chan struct{}), fails: make(map[string]error), handsOut: func(*client.Job) {}}
}

// wake has waiting reserves look again. f.mu is held.
func (f *fakeQueues) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeQueues) add(put *belfryv1.PutRequest) client.PutResult {
	if i := slices.IndexFunc(f.jobs, func(j *fakeJob) bool {
		return put.Id != "" && j.id == put.Id
	}); i >= 0 && !f.forgets {
		return client.PutResult{ID: put.Id, DueAt: f.jobs[i].due}
	}
	f.serial++
	job := &fakeJob{put: put, id: put.Id, due: time.Now().Add(put.GetDelay().AsDuration())}
	if job.id == "" {
		job.id = fmt.Sprintf("0-%d", f.serial)
	}
	f.jobs = append(f.jobs, job)
	f.wake()
	return client.PutResult{ID: job.id, DueAt: job.due, Created: true}
}

// request is what the SDK sends for a put.
func request(queue string, options []client.PutOption) *belfryv1.PutRequest {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var sent belfryv1.PutBatchRequest
	c, err := client.New("http://127.0.0.1:1", client.WithHTTPClient(sender(func(r *http.Request) (*http.Response, error) {
		defer cancel() // no answer follows
		body, err := io.ReadAll(r.Body)
		return nil, errors.Join(err, proto.Unmarshal(body, &sent), context.Canceled)
	})))
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.PutBatch(ctx, []client.Put{{Queue: queue, Options: options}}); len(sent.GetJobs()) != 1 {
		panic(fmt.Sprintf("the SDK sent %d puts: %v", len(sent.GetJobs()), err))
	}
	return sent.GetJobs()[0]
}

// sender sends a request.
type sender func(r *http.Request) (*http.Response, error)

func (s sender) Do(r *http.Request) (*http.Response, error) { return s(r) }

func (f *fakeQueues) Put(_ context.Context, queue string, _ []byte,
	options ...client.PutOption) (client.PutResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["Put"]; err != nil {
		return client.PutResult{}, err
	}
	return f.add(request(queue, options)), nil
}

func (f *fakeQueues) PutBatch(_ context.Context, puts []client.Put) (results []client.PutResult, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["PutBatch"]; err != nil {
		return nil, err
	}
	for _, put := range puts {
		results = append(results, f.add(request(put.Queue, put.Options)))
	}
	return results, nil
}

// next returns a job that is due, or when to look again.
func (f *fakeQueues) next(queue string, now time.Time) (job *fakeJob, wait time.Duration) {
	wait = time.Hour
	for _, j := range f.jobs {
		at := j.due
		if j.until.After(at) {
			at = j.until
		}
		switch {
		case j.put.Queue != queue || j.dead:
		case at.After(now):
			wait = min(wait, at.Sub(now))
		default:
			return j, 0
		}
	}
	return nil, wait
}

func (f *fakeQueues) Reserve(ctx context.Context, o client.ReserveOptions) ([]*client.Job, error) {
	end := time.Now().Add(o.Wait)
	for {
		f.mu.Lock()
		if err := f.fails["Reserve "+o.Queues[0]]; err != nil {
			f.mu.Unlock()
			return nil, err
		}
		now := time.Now()
		job, wait := f.next(o.Queues[0], now)
		changed := f.changed
		if job != nil {
			defer f.mu.Unlock()
			return []*client.Job{f.grant(job, now)}, nil
		}
		f.mu.Unlock()
		if !now.Before(end) {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(min(wait, end.Sub(now))):
		case <-changed:
		}
	}
}

// grant hands a job out. f.mu is held.
func (f *fakeQueues) grant(j *fakeJob, now time.Time) *client.Job {
	f.serial++
	ttr := j.put.Ttr.AsDuration()
	if ttr == 0 {
		ttr = 30 * time.Second
	}
	j.fence, j.attempt, j.until = f.serial, j.attempt+1, now.Add(ttr)
	out := &client.Job{
		Queue: j.put.Queue, ID: j.id, Lease: fmt.Sprintf("%s/%d", j.id, j.fence), Fence: j.fence, Attempt: j.attempt,
		DueAt: j.due, LeaseUntil: j.until,
	}
	f.handsOut(out)
	return out
}

// held returns the job of a lease, or why there is none. f.mu is held.
func (f *fakeQueues) held(lease string) (*fakeJob, error) {
	for _, j := range f.jobs {
		current := lease == fmt.Sprintf("%s/%d", j.id, j.fence) && time.Now().Before(j.until)
		if current || f.acksStale && lease != "" && len(lease) > len(j.id) && lease[:len(j.id)] == j.id {
			return j, nil
		}
	}
	return nil, client.ErrStaleLease
}

// remove takes a job out. f.mu is held.
func (f *fakeQueues) remove(j *fakeJob) {
	f.jobs = slices.DeleteFunc(f.jobs, func(other *fakeJob) bool { return other == j })
}

// leased calls change with the job of a lease.
func (f *fakeQueues) leased(method, lease string, change func(j *fakeJob)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails[method]; err != nil {
		return err
	}
	job, err := f.held(lease)
	if err == nil {
		change(job)
	}
	return err
}

func (f *fakeQueues) Ack(_ context.Context, lease string) error {
	return f.leased("Ack", lease, f.remove)
}

func (f *fakeQueues) Nack(_ context.Context, lease string, _ error) (state client.State, due time.Time, err error) {
	err = f.leased("Nack", lease, func(job *fakeJob) {
		job.until = time.Time{}
		if most := job.put.GetMaxAttempts(); most > 0 && job.attempt >= int(most) {
			job.dead, state = true, "DEAD"
			return
		}
		delays := job.put.RetryDelays
		job.due = time.Now().Add(delays[min(job.attempt, len(delays))-1].AsDuration())
		state, due = "DELAYED", job.due
		f.wake()
	})
	return state, due, err
}

func (f *fakeQueues) Extend(_ context.Context, lease string, _ time.Duration) (until time.Time, err error) {
	err = f.leased("Extend", lease, func(job *fakeJob) {
		job.until = time.Now().Add(job.put.Ttr.AsDuration())
		until = job.until
	})
	return until, err
}

// named calls change with a job by its id.
func (f *fakeQueues) named(method, id string, change func(j *fakeJob)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails[method]; err != nil {
		return err
	}
	for _, j := range f.jobs {
		if j.id == id {
			change(j)
			return nil
		}
	}
	return client.ErrJobNotFound
}

func (f *fakeQueues) Cancel(_ context.Context, _, id string, _ ...client.JobOption) (client.State, error) {
	return "DELAYED", f.named("Cancel", id, f.remove)
}

func (f *fakeQueues) Reschedule(_ context.Context, queue, id string, when client.PutOption,
	_ ...client.JobOption) (due time.Time, err error) {
	err = f.named("Reschedule", id, func(job *fakeJob) {
		job.due = time.Now().Add(request(queue, []client.PutOption{when}).GetDelay().AsDuration())
		due = job.due
		f.wake()
	})
	return due, err
}

func (f *fakeQueues) Redrive(_ context.Context, _ string, ids ...string) (moved int, err error) {
	err = f.named("Redrive", ids[0], func(job *fakeJob) {
		if job.dead {
			job.dead, job.attempt, job.due = false, 0, time.Now()
			moved = 1
			f.wake()
		}
	})
	return moved, err
}

// fakeNodes are nodes that stop and start as they are told.
type fakeNodes struct{ fails map[string]error }

func (f fakeNodes) StopLeader(context.Context, string) (string, error) {
	return "n2", f.fails["StopLeader"]
}

func (f fakeNodes) StartAgain(context.Context) (string, error) { return "n2", f.fails["StartAgain"] }
