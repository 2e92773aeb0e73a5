package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisconn"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

const (
	timerKey = "redisson_delay_queue_timeout:{orders}"
	listKey  = "redisson_delay_queue:{orders}"
)

// putAll puts jobs in order, due at so many milliseconds after base.
func putAll(t *testing.T, c *client.Client, base time.Time, afterMs map[string]int64, order ...string) {
	t.Helper()
	for _, body := range order {
		due := base.Add(time.Duration(afterMs[body]) * time.Millisecond)
		if _, err := c.Put(t.Context(), "orders", []byte(body), client.At(due)); err != nil {
			t.Fatal(err)
		}
	}
}

// ready takes all that has delivered.
func ready(t *testing.T, app *redissontest.Client) []string {
	t.Helper()
	all, err := app.TakeAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]string, len(all))
	for n, payload := range all {
		texts[n] = string(payload)
	}
	return texts
}

// TestExportOwnJobs has jobs of Belfry's own delivered to Redisson in the order of their times, and
// within a millisecond in that of their puts.
func TestExportOwnJobs(t *testing.T) {
	for format, generation := range map[redisson.Generation]redissontest.Generation{
		redisson.Old: redissontest.OldGeneration, redisson.New: redissontest.NewGeneration,
	} {
		t.Run(format.String(), func(t *testing.T) {
			r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
			app := redissontest.New(r, "orders", generation, time.Now)
			base := time.Now().Add(time.Hour).Truncate(time.Millisecond)
			putAll(t, c, base, map[string]int64{"a": 5000, "b": 1000, "c": 1000}, "a", "b", "c")
			news := r.Subscribe(t.Context(), "redisson_delay_queue_channel:{orders}")
			defer news.Close()
			if _, err := news.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			counts, err := Export(t.Context(), r, c, ExportOptions{RedisQueue: "orders", Format: format,
				Codec: redisson.Bytes, Share: 1})
			if err != nil || counts.Returned != 3 || counts.Original != 0 || counts.Total != 3 {
				t.Fatalf("the export counted %+v, %v", counts, err)
			}
			if again, err := Export(t.Context(), r, c, ExportOptions{RedisQueue: "orders", Format: format,
				Share: 1}); err != nil || again.Returned != 0 {
				t.Errorf("the second export counted %+v, %v", again, err)
			}
			if diff := cmp.Diff([]string{"0", fmt.Sprint(base.UnixMilli() + 1000), "0"}, heard(t, r, news)[:3]); diff != "" {
				t.Errorf("announced: a check, the first to deliver, the end (-want +got):\n%s", diff)
			}
			for _, step := range []struct {
				at        int64
				next      string
				delivered []string
			}{
				{999, fmt.Sprint(base.UnixMilli() + 1000), []string{}},
				{1000, fmt.Sprint(base.UnixMilli() + 5000), []string{"b", "c"}},
				{5000, "", []string{"a"}},
			} {
				next, err := app.Transfer(t.Context(), base.UnixMilli()+step.at)
				if err != nil || next != step.next {
					t.Errorf("the transfer at %d answers %q, %v", step.at, next, err)
				}
				if diff := cmp.Diff(step.delivered, ready(t, app)); diff != "" {
					t.Errorf("delivered at %d (-want +got):\n%s", step.at, diff)
				}
			}
			if n := r.Exists(t.Context(), timerKey, listKey, "belfry_returned:{orders}").Val(); n != 0 {
				t.Errorf("%d keys are left", n)
			}
		})
	}
}

// heard is what was announced so far.
func heard(t *testing.T, r *redis.Client, news *redis.PubSub) []string {
	t.Helper()
	if err := r.Publish(t.Context(), "redisson_delay_queue_channel:{orders}", "end").Err(); err != nil {
		t.Fatal(err)
	}
	var all []string
	for {
		message, err := news.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, message.Payload); message.Payload == "end" {
			return all
		}
	}
}

// TestExportKeepsOrder has more jobs of one millisecond than one script takes.
func TestExportKeepsOrder(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
	base := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	var puts []client.Put
	var want []string
	for n := range 1200 {
		body := fmt.Sprintf("order %d", n)
		want, puts = append(want, body), append(puts, client.Put{Queue: "orders", Body: []byte(body),
			Options: []client.PutOption{client.At(base)}})
	}
	if _, err := c.PutBatch(t.Context(), puts); err != nil {
		t.Fatal(err)
	}
	if _, err := Export(t.Context(), r, c, ExportOptions{RedisQueue: "orders", Format: redisson.New,
		Codec: redisson.String, Share: 1}); err != nil {
		t.Fatal(err)
	}
	for next := "more"; next != ""; {
		var err error
		if next, err = app.Transfer(t.Context(), base.UnixMilli()); err != nil {
			t.Fatal(err)
		}
	}
	if got := ready(t, app); !slices.Equal(want, got) {
		t.Errorf("%d delivered, and not in the order of their puts; the first are %q", len(got), got[:min(5, len(got))])
	}
}

// TestExportFormat chooses, finds out and refuses formats.
func TestExportFormat(t *testing.T) {
	const oldFleet, newFleet = redissontest.OldGeneration, redissontest.NewGeneration
	const says, named = "nothing says which format", "not in the format"
	for _, test := range []struct {
		name   string
		redis  []redissontest.Generation // of entries that Redis has
		came   redissontest.Generation   // of a job that came before; 0 for none
		own    bool                      // whether there is a job of Belfry's own
		format redisson.Generation
		want   redisson.Generation
		refuse string
	}{
		{name: "as Redis has it: old", redis: []redissontest.Generation{oldFleet}, own: true, want: redisson.Old},
		{name: "as Redis has it: new", redis: []redissontest.Generation{newFleet}, own: true, want: redisson.New},
		{name: "as it came: old", came: oldFleet, own: true, want: redisson.Old},
		{name: "as it came: new", came: newFleet, own: true, want: redisson.New},
		{name: "Redis goes before what came", redis: []redissontest.Generation{newFleet}, came: oldFleet, want: redisson.New},
		{name: "named: the fleet was upgraded meanwhile", came: oldFleet, format: redisson.New, want: redisson.New},
		{name: "named: nothing else says it", own: true, format: redisson.Old, want: redisson.Old},
		{name: "nothing says it", own: true, refuse: says},
		{name: "named against Redis", redis: []redissontest.Generation{newFleet}, own: true,
			format: redisson.Old, refuse: named},
		{name: "both", redis: []redissontest.Generation{oldFleet, newFleet}, own: true, refuse: "in both formats"},
		{name: "both, and named", redis: []redissontest.Generation{oldFleet, newFleet}, own: true, format: redisson.Old,
			want: redisson.Old},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
			due := time.Now().Add(time.Hour)
			if test.came != 0 {
				if err := redissontest.New(r, "orders", test.came, time.Now).Offer(t.Context(), []byte("came"), due); err != nil {
					t.Fatal(err)
				}
				if _, err := Import(t.Context(), r, c, ImportOptions{RedisQueue: "orders"}); err != nil {
					t.Fatal(err)
				}
			}
			for _, generation := range test.redis {
				if err := redissontest.New(r, "orders", generation, time.Now).Offer(t.Context(), []byte("there"), due); err != nil {
					t.Fatal(err)
				}
			}
			if test.own {
				putAll(t, c, due, nil, "own")
			}
			before := r.ZCard(t.Context(), timerKey).Val()
			_, err := Export(t.Context(), r, c, ExportOptions{RedisQueue: "orders", Format: test.format, Codec: redisson.Bytes})
			if test.refuse != "" {
				if err == nil || !strings.Contains(err.Error(), test.refuse) || r.ZCard(t.Context(), timerKey).Val() != before {
					t.Errorf("it was not refused: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			there := slices.DeleteFunc(r.ZRange(t.Context(), timerKey, 0, -1).Val(),
				func(m string) bool { return strings.HasSuffix(m, "there") })
			for _, text := range there {
				if m, err := redisson.ParseMember([]byte(text), redisson.New); err != nil || m.Generation != test.want {
					t.Errorf("%s is in the format %v, %v", m.Payload, m.Generation, err)
				}
			}
			if len(there) == 0 {
				t.Error("nothing was written")
			}
		})
	}
}

// TestExportEmpty needs no format if there is nothing to write.
func TestExportEmpty(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	if _, err := c.Admin().CreateQueue(t.Context(), "orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	if counts, err := Export(t.Context(), r, c, ExportOptions{RedisQueue: "orders"}); err != nil || counts.Returned != 0 {
		t.Errorf("the export counted %+v, %v", counts, err)
	}
}

// TestRollbackOfClaims has an import killed after its first claim: what it claimed says the format,
// and goes back.
func TestRollbackOfClaims(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	app := redissontest.New(r, "orders", redissontest.OldGeneration, time.Now)
	if err := app.Offer(t.Context(), []byte("a"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admin().CreateQueue(t.Context(), "orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	before := r.Dump(t.Context(), timerKey).Val()
	i := newImporter(newLink(r, c, pair.Options{RedisQueue: "orders", Share: 1}), ImportOptions{})
	if err := i.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := i.WithHold(t.Context(), func(ctx context.Context) error {
		_, err := i.claim(ctx)
		return err
	})
	if n := r.ZCard(t.Context(), i.keys.handover).Val(); err != nil || n != 1 {
		t.Fatalf("%d are claimed: %v", n, err)
	}
	if counts, err := Rollback(t.Context(), r, c, ExportOptions{RedisQueue: "orders"}); err != nil ||
		counts.Original != 1 {
		t.Errorf("the rollback counted %+v, %v", counts, err)
	}
	if after := r.Dump(t.Context(), timerKey).Val(); after != before {
		t.Error("the timer is not as it was")
	}
}

// interruption stops a process when a script has run.
type interruption struct {
	after *redis.Script
	stop  func()
}

func (i *interruption) DialHook(next redis.DialHook) redis.DialHook { return next }
func (i *interruption) ProcessPipelineHook(n redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return n
}
func (i *interruption) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(cmd.Name(), "eval") && slices.ContainsFunc(cmd.Args(), func(arg any) bool {
			text, ok := arg.(string)
			return ok && (text == i.after.Hash() || strings.HasPrefix(text, pair.Guard) &&
				redis.NewScript(text).Hash() == i.after.Hash())
		}) {
			i.stop()
		}
		return err
	}
}

// interruptExport ends an export after its first write: its context, and what else dies with it.
func interruptExport(t *testing.T, server *redistest.Server, c *client.Client, die func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cut, err := redisconn.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Close()
	cut.AddHook(&interruption{after: returnScript, stop: func() {
		cancel()
		die()
	}})
	if _, err := Export(ctx, cut, c, ExportOptions{RedisQueue: "orders", Format: redisson.New, Codec: redisson.Bytes,
		Share: 1, Hold: pair.HoldMin}); !errors.Is(err, context.Canceled) {
		t.Fatalf("the export ended with %v", err)
	}
}

// TestExportInterrupted ends an export between the write and the cancel. Whether an import comes
// next or an export: each job is in one place, once. One that is stopped in good order cancels
// first.
func TestExportInterrupted(t *testing.T) {
	for _, next := range []string{"import", "export", "stopped"} {
		t.Run(next, func(t *testing.T) {
			server, belfry := redistest.Start(t), belfrytest.Start(t)
			r, c, killed := server.Client(), belfry.Client(t), belfry.Client(t)
			app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
			due, want := time.Now().Add(time.Hour).Truncate(time.Millisecond), map[string]int{}
			for n := range 30 {
				text := fmt.Sprintf("came %d", n)
				want[text] = 1
				if err := app.Offer(t.Context(), []byte(text), due); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := Import(t.Context(), r, c, ImportOptions{RedisQueue: "orders", Share: 1}); err != nil {
				t.Fatal(err)
			}
			for n := range 30 {
				text := fmt.Sprintf("own %d", n)
				want[text] = 1
				putAll(t, c, due, nil, text)
			}
			both := int64(60)
			if next == "stopped" {
				both = 0
				interruptExport(t, server, c, func() {})
			} else {
				interruptExport(t, server, killed, func() { killed.Close() })
			}
			n, inRedis := r.SCard(t.Context(), "belfry_returned:{orders}").Val(), r.ZCard(t.Context(), timerKey).Val()
			if n != both || int64(len(bodies(t, c))) != both || inRedis != 60 {
				t.Fatalf("%d jobs are in both, %d in Belfry", n, len(bodies(t, c)))
			}
			warns := func(w string) bool { return strings.Contains(w, "an export was killed: 60 jobs") }
			found, err := Inspect(t.Context(), r, "orders")
			if err != nil || slices.ContainsFunc(found.Warnings, warns) != (both > 0) {
				t.Errorf("the warnings are %q, %v", found.Warnings, err)
			}
			if next == "import" {
				counts, err := ImportCounts{}, pair.ErrWished
				for errors.Is(err, pair.ErrWished) { // until the hold of the killed one ends
					counts, err = Import(t.Context(), r, c, ImportOptions{RedisQueue: "orders", Share: 1})
				}
				if err != nil || counts.Committed != 60 || counts.Repeated != 0 {
					t.Errorf("the import counted %+v, %v", counts, err)
				}
				if diff := cmp.Diff(want, bodies(t, c)); diff != "" {
					t.Errorf("bodies in Belfry (-want +got):\n%s", diff)
				}
			} else {
				o := ExportOptions{RedisQueue: "orders", Codec: redisson.Bytes, Share: 1}
				if _, err := Export(t.Context(), r, c, o); err != nil || len(bodies(t, c)) > 0 {
					t.Errorf("Belfry still has %v; %v", bodies(t, c), err)
				}
				if _, err := app.Transfer(t.Context(), due.UnixMilli()); err != nil {
					t.Fatal(err)
				}
				delivered := map[string]int{}
				for _, text := range ready(t, app) {
					delivered[text]++
				}
				if diff := cmp.Diff(want, delivered); diff != "" {
					t.Errorf("delivered (-want +got):\n%s", diff)
				}
			}
			if n := r.Exists(t.Context(), "belfry_returned:{orders}", "belfry_handover:{orders}").Val(); n != 0 {
				t.Errorf("%d keys of the mirror still have entries", n)
			}
		})
	}
}

// bodies are how many jobs have which body.
func bodies(t *testing.T, c *client.Client) map[string]int {
	t.Helper()
	found := map[string]int{}
	for job, err := range c.List(t.Context(), "orders", client.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		whole, err := c.Get(t.Context(), "orders", job.ID)
		if err != nil {
			t.Fatal(err)
		}
		found[string(whole.Body)]++
	}
	return found
}

// TestExportReduced counts the jobs that have what Redisson cannot hold, and waits for the one that
// is reserved.
func TestExportReduced(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	later := client.In(time.Hour)
	for body, options := range map[string][]client.PutOption{
		"plain": {later}, "priority": {later, client.Priority(-1)}, "header": {later, client.Header("k", "v")},
		"ttl":     {later, client.TTL(2 * time.Hour)},
		"attempt": nil,
	} {
		if _, err := c.Put(t.Context(), "orders", []byte(body), options...); err != nil {
			t.Fatal(err)
		}
	}
	reserve := func() *client.Job {
		jobs, err := c.Reserve(t.Context(), client.ReserveOptions{Queues: []string{"orders"}, Wait: 20 * time.Second})
		if err != nil || len(jobs) != 1 {
			t.Fatalf("%d jobs are reserved: %v", len(jobs), err)
		}
		return jobs[0]
	}
	failed := reserve()
	if _, _, err := c.Nack(t.Context(), failed.Lease, client.RetryAfter(time.Hour, errors.New("no"))); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"acked", "dead", "nacked"} {
		putAll(t, c, time.Now(), nil, body)
	}
	held := map[string]*client.Job{}
	for range 3 {
		job := reserve()
		held[string(job.Body)] = job
	}
	told := make(chan string, 100)
	var counts ExportCounts
	ended := make(chan error)
	go func() {
		var err error
		counts, err = Export(t.Context(), r, c, ExportOptions{
			RedisQueue: "orders", Format: redisson.New, Codec: redisson.Bytes, Share: 1,
			Notice: func(err error) { told <- err.Error() },
		})
		ended <- err
	}()
	if text := <-told; text != "3 jobs are left; those that consumers hold are waited for" {
		t.Errorf("it says %q", text)
	}
	_, _, dead := c.Nack(t.Context(), held["dead"].Lease, client.Dead(errors.New("no")))
	_, _, nacked := c.Nack(t.Context(), held["nacked"].Lease, client.RetryAfter(time.Hour, errors.New("no")))
	if err := errors.Join(held["acked"].Ack(t.Context()), dead, nacked); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if counts.Returned != 6 || counts.Reduced != 5 || counts.Dead != 1 || counts.Original != 0 {
		t.Errorf("the export counted %+v", counts)
	}
	if left := bodies(t, c); len(left) > 0 {
		t.Errorf("Belfry still has %v", left)
	}
}
