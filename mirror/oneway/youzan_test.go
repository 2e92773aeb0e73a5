package oneway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/fromyouzan"
	"github.com/belfrydb/belfry/mirror/oneway"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/youzan"
)

// What a real server wrote: a job of the topic "order", due at 1795261238.
const (
	youzanHex = "85a131a56f72646572a132ab3135373032333938333231a133ce6b018336a13478" +
		"a135b17b22756964223a2031303832393337387d"
	youzanID    = "15702398321"
	youzanState = "belfry_mirror:youzan:order"
)

// TestImportYouzan brings over what a stopped server has, and looks at all that a job says.
func TestImportYouzan(t *testing.T) {
	t.Parallel()
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	s := &youzanServer{redisDo: redisDo{t, r}}
	now := time.Now().Truncate(time.Second)
	s.push("order", "held", now.Add(-time.Minute), 300, "held")
	s.push("order", "ready", now.Add(-time.Second), 86400, "")
	s.push("order", "12-34", now.Add(time.Hour), 1, strings.Repeat("b", 300))
	s.push("order", "finished", now.Add(time.Hour), 1, "")
	s.push("mail", "other", now.Add(time.Hour), 1, "")
	s.push("mail", "ready other", now.Add(-time.Hour), 1, "")
	s.tick(now)
	s.finish("finished")
	s.do("LREM", "dq_queue_order", 0, "ready") // whichever came first
	s.do("RPUSH", "dq_queue_order", "ready")
	held, until := s.pop("order", now)
	if held != "held" {
		t.Fatalf("%q was handed out", held)
	}
	s.do("SET", youzanID, unhex(t, youzanHex))
	s.do("ZADD", "dq_bucket_2", 1795261238, youzanID)
	s.do("SET", "lost", s.pack("order", "lost", now.Add(-time.Hour).Unix(), 5, "lost"))
	s.do("SET", "page", "another program's")
	s.do("HSET", "hash", "another", "program's")

	o := fromyouzan.Options{Topic: "order", Options: oneway.Options{Stopped: true, Share: 1}}
	counts, err := fromyouzan.Import(t.Context(), r, c, o)
	if err != nil || counts.Acked != 4 || counts.Unnamed != 1 || counts.Unread != 0 {
		t.Fatalf("the import counted %+v, error %v", counts, err)
	}
	written := job(t, c, "order", youzanID)
	if string(written.Body) != `{"uid": 10829378}` || written.DueAt.Unix() != 1795261238 ||
		written.TTR != 2*time.Minute || written.MaxAttempts != 0 {
		t.Errorf("the real job is %+v", written)
	}
	if j := job(t, c, "order", "held"); !j.DueAt.Equal(until) || j.TTR != 5*time.Minute {
		t.Errorf("the reserved job is %+v", j)
	}
	if j := job(t, c, "order", "ready"); j.State != "READY" || len(j.Body) != 0 || j.TTR != 24*time.Hour {
		t.Errorf("the ready job is %+v", j)
	}
	foreign := 0
	for id := range inBelfry(t, c, "order") {
		if strings.HasPrefix(id, "youzan:") {
			foreign++
		}
	}
	if foreign != 1 {
		t.Errorf("%d jobs have made ids, want that of 12-34", foreign)
	}
	names := []string{youzanState, "dq_bucket_1", "dq_bucket_2", "dq_bucket_3", "dq_queue_mail", "other",
		"ready other", "page", "hash"}
	var left []string // an empty bucket is no key
	for _, name := range names {
		if s.do("EXISTS", name) == int64(1) {
			left = append(left, name)
		}
	}
	nothingLeft(t, r, append(left, "lost")...)
	o.Unnamed = true
	counts, err = fromyouzan.Import(t.Context(), r, c, o)
	if err != nil || counts.Acked != 1 || counts.Unnamed != 0 {
		t.Errorf("the import of what nothing names counted %+v, error %v", counts, err)
	}
	job(t, c, "order", "lost")
	nothingLeft(t, r, left...)
}

// TestImportYouzanReserved leaves what consumers hold while servers run, and takes it once it was
// let go.
func TestImportYouzanReserved(t *testing.T) {
	t.Parallel()
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	s := &youzanServer{redisDo: redisDo{t, r}}
	now := time.Now()
	s.push("order", "one", now.Add(-time.Second), 3, "")
	s.push("order", "two", now.Add(-time.Second), 3, "")
	s.push("order", "again", now.Add(-time.Second), 3, "")
	s.tick(now)
	for range 3 {
		s.pop("order", now)
	}
	s.do("RPUSH", "dq_queue_order", "one") // twice in the list, and one of them was handed out
	// Pushed again while a consumer holds it: its second life waits for a due second, in another
	// bucket.
	s.do("ZREM", "dq_bucket_1", "again")
	s.do("ZREM", "dq_bucket_2", "again")
	s.do("ZADD", "dq_bucket_3", now.Add(3*time.Second).Unix(), "again")
	s.pushed = 0
	s.push("order", "again", now.Add(time.Hour), 3, "")
	o := fromyouzan.Options{Topic: "order", Options: oneway.Options{Share: 1}}
	counts, err := fromyouzan.Import(t.Context(), r, c, o)
	if err != nil || counts.Claimed != 0 || counts.Reserved != 2 {
		t.Fatalf("the import counted %+v, error %v", counts, err)
	}
	if !s.finish("one") {
		t.Error("the job was gone although a consumer held it")
	}
	s.do("LREM", "dq_queue_order", 0, "one")
	s.tick(now.Add(3 * time.Second))
	counts, err = fromyouzan.Import(t.Context(), r, c, o)
	if err != nil || counts.Claimed != 2 || counts.Reserved != 0 {
		t.Errorf("the import counted %+v, error %v", counts, err)
	}
	job(t, c, "order", "two")
	if j := job(t, c, "order", "again"); j.DueAt.Unix() != now.Add(time.Hour).Unix() {
		t.Errorf("the job that was pushed again is %+v", j)
	}
	nothingLeft(t, r, youzanState)
}

// TestImportYouzanBad refuses what cannot be brought over, and leaves it where it is.
func TestImportYouzanBad(t *testing.T) {
	t.Parallel()
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	s := &youzanServer{redisDo: redisDo{t, r}}
	due := time.Now().Add(time.Hour).Truncate(time.Second)
	s.push("order", "good", due, 5, "")
	s.push("order", "long", due, 5, strings.Repeat("x", 1<<20+1))
	s.push("order", "longer", due, 5, strings.Repeat("x", 3<<20))
	s.push("order", "no lease", due, 0, "")
	s.push("order", "stranger", due, 5, "")
	s.do("SET", "stranger", s.pack("order", "another", due.Unix(), 5, ""))
	s.push("order", "broken", due, 5, "")
	s.do("APPEND", "broken", "x")
	before := redistest.Dump(t, r)
	o := fromyouzan.Options{Topic: "order", Options: oneway.Options{Stopped: true, Share: 1}}
	if _, err := fromyouzan.Import(t.Context(), r, c, o); err == nil || !strings.Contains(err.Error(),
		"5 jobs cannot be brought over") {
		t.Errorf("the import ended with %v", err)
	}
	if diff := cmp.Diff(before, redistest.Dump(t, r)); diff != "" {
		t.Errorf("the refused import changed something (-before +after):\n%s", diff)
	}
	o.SetAside = true
	counts, err := fromyouzan.Import(t.Context(), r, c, o)
	if err != nil || counts.Acked != 1 || counts.Unread != 5 || counts.SetAside != 0 {
		t.Errorf("the import counted %+v, error %v", counts, err)
	}
	job(t, c, "order", "good")
	for _, id := range []string{"long", "longer", "no lease", "stranger", "broken"} {
		if s.do("EXISTS", id) != int64(1) {
			t.Errorf("job %s is gone", id)
		}
	}
}

// TestImportYouzanAgain meets a job under an id that was brought over: it goes back, or aside.
func TestImportYouzanAgain(t *testing.T) {
	t.Parallel()
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	s := &youzanServer{redisDo: redisDo{t, r}}
	due := time.Now().Add(time.Hour).Truncate(time.Second)
	o := fromyouzan.Options{Topic: "order", Options: oneway.Options{Share: 1}}
	s.push("order", "a", due, 5, "first")
	if _, err := fromyouzan.Import(t.Context(), r, c, o); err != nil {
		t.Fatal(err)
	}
	s.push("order", "a", due, 5, "second")
	value := s.do("GET", "a")
	if _, err := fromyouzan.Import(t.Context(), r, c, o); !errors.Is(err, client.ErrJobExists) {
		t.Errorf("the import ended with %v", err)
	}
	if got := s.do("GET", "a"); got != value {
		t.Errorf("the job was not given back but is %q", got)
	}
	if score, err := r.ZScore(t.Context(), "dq_bucket_1", "a").Result(); err != nil || int64(score) != due.Unix() {
		t.Errorf("it is scored %v, %v", score, err)
	}
	o.SetAside = true
	if counts, err := fromyouzan.Import(t.Context(), r, c, o); err != nil || counts.SetAside != 1 {
		t.Errorf("the import counted %+v, error %v", counts, err)
	}
	nothingLeft(t, r, youzanState, "belfry_aside:youzan:order")
}

// TestYouzanServer refuses settings that are not those of the server.
func TestYouzanServer(t *testing.T) {
	r := redistest.Start(t).Client()
	for _, server := range []fromyouzan.Server{{Buckets: -1}, {Buckets: 65}, {Names: youzan.Names{Bucket: "b",
		Queue: "%s"}}} {
		if _, err := fromyouzan.Inspect(t.Context(), r, server, "order"); err == nil {
			t.Errorf("%+v passed", server)
		}
	}
	s := &youzanServer{redisDo: redisDo{t, r}}
	s.do("ZADD", "dq_bucket_4", 1, "x")
	o := fromyouzan.Options{Topic: "order", Options: oneway.Options{SetAside: true}}
	if _, err := fromyouzan.Import(t.Context(), r, belfrytest.Start(t).Client(t), o); err == nil ||
		!strings.Contains(err.Error(), "more buckets than 3") {
		t.Errorf("the import with too few buckets ended with %v", err)
	}
}

// TestImportYouzanInterrupted ends an import at each of its calls, and runs it again.
func TestImportYouzanInterrupted(t *testing.T) {
	t.Parallel()
	interrupt(t, func(r *redis.Client) (want []string) {
		s := &youzanServer{redisDo: redisDo{t, r}}
		now := time.Now().Truncate(time.Second)
		for n := range 3 {
			held, ready, delayed := fmt.Sprintf("held-%d", n), fmt.Sprintf("ready-%d", n), fmt.Sprintf("delayed-%d", n)
			s.push("order", held, now.Add(-time.Second), 60, "")
			s.tick(now)
			s.pop("order", now)
			s.push("order", ready, now.Add(-time.Second), 60, "")
			s.push("order", delayed, now.Add(time.Hour), 60, "")
			want = append(want, held, ready, delayed)
		}
		s.tick(now)
		s.do("SET", "lost", s.pack("order", "lost", now.Unix(), 5, "lost"))
		return append(want, "lost")
	}, func(ctx context.Context, r *redis.Client, c *client.Client, queue string) error {
		_, err := fromyouzan.Import(ctx, r, c, fromyouzan.Options{
			Topic: "order", Options: oneway.Options{Queue: queue, Stopped: true, Unnamed: true, Share: 1},
		})
		return err
	})
}

// youzanLive is a server of ouqiang/delay-queue as live works with one.
type youzanLive struct{ *youzanServer }

func (s youzanLive) offer(now time.Time, delay time.Duration) string {
	id := fmt.Sprintf("job-%d", s.pushed)
	s.push("order", id, now.Add(delay), 3, "x")
	return id
}
func (s youzanLive) move(now time.Time)                        { s.tick(now) }
func (s youzanLive) end(id string) bool                        { return s.finish(id) }
func (s youzanLive) handOut(now time.Time) (string, time.Time) { return s.pop("order", now) }

func TestImportYouzanLive(t *testing.T) {
	t.Parallel()
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	live(t, c, youzanLive{&youzanServer{redisDo: redisDo{t, r}}}, func(ctx context.Context,
		o oneway.Options) (oneway.Counts, error) {
		return fromyouzan.Import(ctx, r, c, fromyouzan.Options{Topic: "order", Options: o})
	})
}
