package belfrytest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/client/belfrytest"
)

func TestLifeOfAJob(t *testing.T) {
	c := belfrytest.Start(t).Client(t)
	began := time.Now()
	put, err := c.Put(t.Context(), "orders", []byte("body \xff"), client.In(200*time.Millisecond), client.ID("order-42"),
		client.Header("k", "v"))
	if err != nil || !put.Created || put.State != "DELAYED" {
		t.Fatalf("put: %+v, %v", put, err)
	}
	again, err := c.Put(t.Context(), "orders", []byte("body \xff"), client.In(200*time.Millisecond), client.ID("order-42"),
		client.Header("k", "v"))
	if err != nil || again.Created || !again.DueAt.Equal(put.DueAt) {
		t.Errorf("the same put again: %+v, %v", again, err)
	}
	if _, err := c.Put(t.Context(), "orders", []byte("other"), client.ID("order-42")); !errors.Is(err,
		client.ErrJobExists) {
		t.Errorf("another put under the same id: %v", err)
	}
	jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"orders"}, Wait: 20 * time.Second})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("reserve: %v, %v", jobs, err)
	}
	if early := 200*time.Millisecond - time.Since(began); early > 0 {
		t.Errorf("the job came %v early", early)
	}
	job := jobs[0]
	if job.ID != "order-42" || string(job.Body) != "body \xff" || job.Headers["k"] != "v" || job.Attempt != 1 ||
		job.TTR != 30*time.Second {
		t.Errorf("job %+v", job)
	}
	if state, _, err := c.Nack(t.Context(), job.Lease, client.Dead(errors.New("no such order"))); err != nil ||
		state != "DEAD" {
		t.Errorf("nack: %s, %v", state, err)
	}
	if err := job.Ack(t.Context()); !errors.Is(err, client.ErrStaleLease) {
		t.Errorf("ack after the nack: %v", err)
	}
	var ids []string
	for job, err := range c.List(t.Context(), "orders", client.ListOptions{State: "DEAD"}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, job.ID+": "+job.LastError)
	}
	if len(ids) != 1 || ids[0] != "order-42: no such order" {
		t.Errorf("dead jobs: %v", ids)
	}
	if n, err := c.Redrive(t.Context(), "orders", "order-42"); err != nil || n != 1 {
		t.Errorf("redrive: %d, %v", n, err)
	}
	if state, err := c.Cancel(t.Context(), "orders", "order-42"); err != nil || state != "READY" {
		t.Errorf("cancel: %s, %v", state, err)
	}
	if _, err := c.Get(t.Context(), "orders", "order-42"); !errors.Is(err, client.ErrJobNotFound) {
		t.Errorf("get: %v", err)
	}
}

func TestAdmin(t *testing.T) {
	at := belfrytest.Start(t).Client(t).Admin()
	settings := &admin.QueueSettings{TTR: new(time.Minute)}
	if _, err := at.CreateQueue(t.Context(), "orders", 3, settings); err != nil {
		t.Fatal(err)
	}
	if _, err := at.CreateQueue(t.Context(), "orders", 3, settings); !errors.Is(err, client.Reason("QUEUE_EXISTS")) {
		t.Errorf("create again: %v", err)
	}
	queue, err := at.Queue(t.Context(), "orders")
	if err != nil || queue.Partitions != 3 || *queue.Settings.TTR != time.Minute {
		t.Errorf("queue: %v, %v", queue, err)
	}
	if _, err := at.Queue(t.Context(), "other"); !errors.Is(err, client.Reason("QUEUE_NOT_FOUND")) {
		t.Errorf("a queue that does not exist: %v", err)
	}
}

// Opened again, a server has the jobs it had.
func TestDataOutlivesTheServer(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 {
		s, err := belfrytest.Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		c := s.Client(t)
		put, err := c.Put(t.Context(), "orders", nil, client.ID("order-42"), client.In(time.Hour))
		if err != nil || put.Created != (i == 0) {
			t.Errorf("run %d: %+v, %v", i, put, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		res, err := http.Get(s.URL + "/livez") //nolint:noctx // it must fail to connect
		if err == nil {
			_ = res.Body.Close()
			t.Error("the server answers after Close")
		}
	}
}

func TestWorkerAtARealServer(t *testing.T) {
	t.Parallel() // it waits for most of its time
	c := belfrytest.Start(t).Client(t)
	const n = 300
	puts := make([]client.Put, n)
	for i := range puts {
		puts[i] = client.Put{Queue: "q", Options: []client.PutOption{client.TTR(20 * time.Second)}}
	}
	if _, err := c.PutBatch(t.Context(), puts); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	handled := make(chan *client.Job, 2*n)
	w := client.Worker{
		Queues: []string{"q"}, Concurrency: 8, Prefetch: 4,
		OnError: func(job *client.Job, err error) { t.Errorf("job %s: %v", job.ID, err) },
	}
	slow := make(chan struct{})
	// longer than a lease, which has time to be extended on a busy machine
	time.AfterFunc(25*time.Second, func() { close(slow) })
	err := w.Run(ctx, c, func(ctx context.Context, job *client.Job) error {
		if job.Attempt != 1 {
			t.Errorf("job %s came again: attempt %d", job.ID, job.Attempt)
		}
		select {
		case <-slow:
		case <-ctx.Done():
			t.Errorf("job %s: %v", job.ID, context.Cause(ctx))
		}
		if handled <- job; len(handled) == n {
			stop()
		}
		return nil
	})
	if err != nil || len(handled) != n {
		t.Errorf("handled %d of %d jobs, %v", len(handled), n, err)
	}
	queue, err := c.Admin().Queue(t.Context(), "q")
	if err != nil || queue.Totals.Acks != n || queue.Totals.Lapses != 0 {
		t.Errorf("queue: %v, %v", queue.Totals, err)
	}
}

// TestFind: what became of a job is answered while its id is remembered; Get says only that the job
// is gone.
func TestFind(t *testing.T) {
	s := belfrytest.Start(t)
	c := s.Client(t)
	if _, err := c.Put(t.Context(), "orders", []byte("x"), client.ID("order-42")); err != nil {
		t.Fatal(err)
	}
	if job, err := c.Find(t.Context(), "orders", "order-42"); err != nil || string(job.Body) != "x" ||
		!job.EndedAt.IsZero() {
		t.Errorf("before: %+v, %v", job, err)
	}
	jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"orders"}})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%v, %v", jobs, err)
	}
	if err := jobs[0].Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	job, err := c.Find(t.Context(), "orders", "order-42")
	if err != nil || job.State != "ACKED" || job.EndedAt.IsZero() || job.Body != nil {
		t.Errorf("after: %+v, %v", job, err)
	}
	if _, err := c.Get(t.Context(), "orders", "order-42"); !errors.Is(err, client.ErrJobNotFound) ||
		!strings.Contains(err.Error(), "ACKED since") {
		t.Errorf("Get: %v", err)
	}
	if _, err := c.Find(t.Context(), "orders", "never"); !errors.Is(err, client.ErrJobNotFound) {
		t.Errorf("of a job that never was: %v", err)
	}
}

// TestKeys: a key and what a put does to an existing job go through the SDK to a real server, alone
// and in batches.
func TestKeys(t *testing.T) {
	s := belfrytest.Start(t)
	c := s.Client(t)
	if _, err := c.Admin().CreateQueue(t.Context(), "wide", 4, nil); err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"narrow", "wide"} {
		for i := range 8 {
			key := fmt.Sprint("customer-", i)
			testKey(t, c, queue, key)
		}
	}
	var wrong *client.Error
	for field, options := range map[string][]client.PutOption{
		"onExisting": {client.ID("a"), client.OnExisting(9)}, "maxWait": {client.ID("a"), client.MaxWait(time.Second)},
		"ifVersion": {client.ID("a"), client.IfVersion(1)}, "key": {client.Key(strings.Repeat("k", 129))},
	} {
		_, err := c.Put(t.Context(), "narrow", nil, options...)
		if !errors.As(err, &wrong) || wrong.Reason != "INVALID" && wrong.Reason != "TOO_LARGE" ||
			!strings.HasPrefix(wrong.Message, field+": ") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := c.Put(t.Context(), "narrow", nil, client.Key("\xff")); !errors.As(err, &wrong) ||
		!strings.Contains(wrong.Message, "key") {
		t.Errorf("a key that is no text: %v", err)
	}
}

// testKey puts a job with a key, replaces it, and finds it.
func testKey(t *testing.T, c *client.Client, queue, key string) {
	t.Helper()
	ctx, id := t.Context(), "job-"+key
	options := func(more ...client.PutOption) []client.PutOption {
		return append(more, client.ID(id), client.Key(key), client.In(time.Hour))
	}
	res, err := c.Put(ctx, queue, []byte("1"), options()...)
	if err != nil || !res.Created || res.Replaced || res.Version != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	res, err = c.Put(ctx, queue, []byte("2"), options(client.OnExisting(client.KeepExisting))...)
	if err != nil || res.Created || res.Replaced || res.Version != 1 {
		t.Fatalf("KEEP: %+v, %v", res, err)
	}
	all, err := c.PutBatch(ctx, []client.Put{{Queue: queue, Body: []byte("3"), Options: options(
		client.OnExisting(client.ReplaceExisting), client.MaxWait(10*time.Minute), client.IfVersion(1))}})
	if err != nil || !all[0].Replaced || all[0].Version != 2 || time.Until(all[0].DueAt) > 30*time.Minute {
		t.Fatalf("REPLACE: %+v, %v", all, err)
	}
	_, err = c.Put(ctx, queue, []byte("4"), options(client.OnExisting(client.NextExisting), client.IfVersion(1))...)
	var changed *client.Error
	if !errors.Is(err, client.ErrVersionChanged) || !errors.As(err, &changed) || changed.Version != 2 ||
		changed.Outcome != client.OutcomeNotApplied {
		t.Fatalf("the version: %v", err)
	}
	for _, of := range [][]client.JobOption{nil, {client.OfKey(key)}} {
		job, err := c.Get(ctx, queue, id, of...)
		if err != nil || job.Key != key || job.Version != 2 || string(job.Body) != "3" || job.Next != nil {
			t.Fatalf("Get: %+v, %v", job, err)
		}
		if _, err := c.Reschedule(ctx, queue, id, client.In(0), of...); err != nil {
			t.Fatal(err)
		}
	}
	jobs, err := c.Reserve(ctx, client.ReserveOptions{Queues: []string{queue}})
	if err != nil || len(jobs) != 1 || jobs[0].Key != key || jobs[0].Version != 2 {
		t.Fatalf("Reserve: %+v, %v", jobs, err)
	}
	if _, err := c.Put(ctx, queue, nil, options(client.OnExisting(client.ReplaceExisting))...); !errors.Is(err,
		client.ErrJobReserved) {
		t.Fatalf("REPLACE of a reserved job: %v", err)
	}
	if _, err := c.Put(ctx, queue, nil, options(client.OnExisting(client.NextExisting))...); err != nil {
		t.Fatal(err)
	}
	job, err := c.Get(ctx, queue, id)
	if err != nil || job.Next == nil || job.Next.Version != 3 || job.Next.DueAt.IsZero() {
		t.Fatalf("the successor: %+v, %v", job, err)
	}
	if err := jobs[0].Ack(ctx); err != nil {
		t.Fatal(err)
	}
	if state, err := c.Cancel(ctx, queue, id, client.OfKey("another")); !errors.Is(err, client.ErrJobNotFound) {
		t.Fatalf("Cancel with another key: %v, %v", state, err)
	}
	if state, err := c.Cancel(ctx, queue, id, client.OfKey(key)); err != nil || state != "DELAYED" {
		t.Fatalf("Cancel: %v, %v", state, err)
	}
}

// TestClusterOfAServer: the server is a cluster of one node, and says where clients reach it and
// what it runs.
func TestClusterOfAServer(t *testing.T) {
	s := belfrytest.Start(t)
	c, err := s.Client(t).Admin().Cluster(t.Context())
	if err != nil || len(c.Nodes) != 1 || len(c.Problems) > 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	for path, body := range map[string]string{
		"/v1/set-namespace":  `{"name":"t","maxJobs":"1"}`,
		"/v1/update-cluster": `{"gracePeriod":"20m"}`,
		"/v1/reset-clock":    `{}`,
	} {
		answer, err := post(t, s.URL+path, body)
		if err != nil || answer != http.StatusOK {
			t.Errorf("%s: %d, %v", path, answer, err)
		}
	}
	if n := c.Nodes[0]; "http://"+n.Address != s.URL || n.Version != "belfrytest" {
		t.Errorf("the node is at %q and runs %q", n.Address, n.Version)
	}
}

// post makes a call without the SDK and returns the status of the answer.
func post(t *testing.T, url, body string) (status int, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// TestTaskActsOnWhatASearchFinds: an act on many jobs, from its start to its end, by the SDK alone.
func TestTaskActsOnWhatASearchFinds(t *testing.T) {
	c := belfrytest.Start(t).Client(t)
	ctx := t.Context()
	for _, id := range []string{"a1", "a2", "b1"} {
		if _, err := c.Put(ctx, "mail", []byte("x"), client.ID(id)); err != nil {
			t.Fatal(err)
		}
		jobs, err := c.Reserve(ctx, client.ReserveOptions{Queues: []string{"mail"}})
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		if err := jobs[0].Nack(ctx, client.Dead(fmt.Errorf("smtp 421 of %s", id[:1]))); err != nil {
			t.Fatal(err)
		}
	}
	dead := client.ListOptions{State: "DEAD", Cause: "smtp 421 of a"}
	found := 0
	for job, err := range c.List(ctx, "mail", dead) {
		if err != nil || job.Cause != dead.Cause || len(job.Attempts) != 1 || job.Attempts[0].Error != job.LastError ||
			job.Attempts[0].Client == "" {
			t.Errorf("%+v, %v", job, err)
		}
		found++
	}
	selected := admin.Selection{State: dead.State, Cause: dead.Cause}
	task, err := c.Admin().StartTask(ctx, admin.TaskRequest{Act: "REDRIVE", Queue: "mail", Jobs: selected})
	for errors.Is(err, client.Reason("UNIMPLEMENTED")) { // the new server has yet to agree with itself on its format
		task, err = c.Admin().StartTask(ctx, admin.TaskRequest{Act: "REDRIVE", Queue: "mail", Jobs: selected})
	}
	if err != nil {
		t.Fatal(err)
	}
	if task, err = c.Admin().WaitTask(ctx, task.ID); err != nil || task.Changed != 2 || task.Jobs != selected {
		t.Errorf("%+v, %v", task, err)
	}
	queue, err := c.Admin().Queue(ctx, "mail")
	if err != nil || found != 2 || queue.Ready != 2 || queue.Dead != 1 {
		t.Errorf("found %d; %d ready, %d dead, %v", found, queue.Ready, queue.Dead, err)
	}
}

// TestReleaseLeases: what a consumer holds is ready for others, with the attempt given back, and its
// leases are stale. Another consumer keeps its jobs, and the same one what it reserved too late.
func TestReleaseLeases(t *testing.T) {
	s := belfrytest.Start(t)
	gone, stays := s.Client(t, client.WithName("gone")), s.Client(t, client.WithName("stays"))
	ctx := t.Context()
	for range 4 {
		if _, err := gone.Put(ctx, "mail", nil); err != nil {
			t.Fatal(err)
		}
	}
	nobody := admin.LeaseHolder{Queue: "mail", Client: "nobody"}
	n, err := stays.Admin().ReleaseLeases(ctx, nobody)
	for errors.Is(err, client.Reason("UNIMPLEMENTED")) { // the new server has yet to agree with itself on its format
		n, err = stays.Admin().ReleaseLeases(ctx, nobody)
	}
	if err != nil || n != 0 {
		t.Errorf("of a consumer that holds no job: %d, %v", n, err)
	}
	held, err := gone.Reserve(ctx, client.ReserveOptions{Queues: []string{"mail"}, Max: 3})
	if err != nil || len(held) != 3 {
		t.Fatal(held, err)
	}
	kept, err := stays.Reserve(ctx, client.ReserveOptions{Queues: []string{"mail"}})
	if err != nil || len(kept) != 1 {
		t.Fatal(kept, err)
	}
	job, err := stays.Get(ctx, "mail", held[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	of := admin.LeaseHolder{Queue: "mail", Client: job.Client, ReservedBefore: job.ReservedAt}
	if n, err := stays.Admin().ReleaseLeases(ctx, of); err != nil || n != 0 {
		t.Errorf("of before all: %d, %v", n, err)
	}
	of.ReservedBefore = time.Time{}
	if n, err := stays.Admin().ReleaseLeases(ctx, of); err != nil || n != 3 {
		t.Errorf("released %d, %v", n, err)
	}
	if err := held[0].Ack(ctx); !errors.Is(err, client.ErrStaleLease) {
		t.Errorf("an ack under the old lease: %v", err)
	}
	if err := kept[0].Ack(ctx); err != nil {
		t.Errorf("another consumer's ack: %v", err)
	}
	again, err := stays.Reserve(ctx, client.ReserveOptions{Queues: []string{"mail"}, Max: 4})
	if err != nil || len(again) != 3 || again[0].Attempt != 1 {
		t.Errorf("ready again: %v, %v", again, err)
	}
	for _, wrong := range []struct {
		holder admin.LeaseHolder
		reason client.Reason
	}{
		{admin.LeaseHolder{Queue: "mail"}, "INVALID"}, {admin.LeaseHolder{Queue: "none", Client: "c"}, "QUEUE_NOT_FOUND"},
	} {
		if n, err := stays.Admin().ReleaseLeases(ctx, wrong.holder); !errors.Is(err, wrong.reason) || n != 0 {
			t.Errorf("%+v: %d, %v", wrong.holder, n, err)
		}
	}
}
