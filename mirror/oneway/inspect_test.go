package oneway_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/fromlmstfy"
	"github.com/belfrydb/belfry/mirror/fromyouzan"
	"github.com/belfrydb/belfry/mirror/lmstfy"
	"github.com/belfrydb/belfry/mirror/oneway"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// said leaves out what findings say in words.
var said = cmpopts.IgnoreFields(oneway.Finding{}, "FirstBad", "Warnings")

// TestInspectLmstfy counts one of each kind, and finds queues by what there is of them.
func TestInspectLmstfy(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t).Client()
	s := &lmstfyServer{redisDo: redisDo{t, r}, ns: "ns1", q: "q1"}
	now := time.Now().Truncate(time.Second)
	s.publish(now, "dead", 0, 0, 1)
	s.consume(now, time.Second)
	s.pump(now.Add(time.Second))
	s.publish(now, "held", 0, 0, 2)
	s.consume(now, time.Minute)
	s.publish(now, "ready", 0, 0, 2)
	s.publish(now, "delayed", time.Hour, 2*time.Hour, 1)
	s.publish(now, "lapses", 2*time.Hour, time.Hour, 1)
	s.ack(s.publish(now, "ended", 0, 0, 1))
	s.value(s.id(now, 0), "lost", 0)
	s.publish(now, strings.Repeat("x", 1<<20+1), time.Hour, 0, 1)
	s.do("LPUSH", s.ready(), "short")
	before := redistest.Dump(t, r)
	got, err := fromlmstfy.Inspect(t.Context(), r, source())
	if err != nil {
		t.Fatal(err)
	}
	want := &fromlmstfy.Finding{Queue: "ns1/q1", Dead: 1, Lapsing: 1, Finding: oneway.Finding{
		Delayed: 3, Reserved: 1, Ready: 1, Ended: 1, Unnamed: 1, Bad: 2, Earliest: now.Add(time.Minute),
		Latest: now.Add(2 * time.Hour),
	}}
	if diff := cmp.Diff(want, got, said); diff != "" {
		t.Errorf("the queue (-want +got):\n%s", diff)
	}
	if len(got.Warnings) != 5 || got.FirstBad == "" {
		t.Errorf("the warnings are %q, the first bad is %q", got.Warnings, got.FirstBad)
	}
	if diff := cmp.Diff(before, redistest.Dump(t, r)); diff != "" {
		t.Errorf("looking changed something:\n%s", diff)
	}

	s.do("HSET", "m/ns", "written", 1)
	s.do("HSET", "m/ns/written", "down", 1)
	timer := &lmstfyServer{redisDo: redisDo{t, r}, ns: "in", q: "timer", serial: 1}
	timer.publish(now, "", time.Hour, 0, 1)
	list := &lmstfyServer{redisDo: redisDo{t, r}, ns: "in", q: "list", serial: 2}
	list.publish(now, "", 0, 0, 1)
	s.do("LPUSH", "q/another/program", "x")
	s.do("SET", "d/a/text", "x")
	queues, err := fromlmstfy.Find(t.Context(), r)
	all := []lmstfy.Queue{{Namespace: "in", Name: "list"}, {Namespace: "in", Name: "timer"}, {Namespace: "ns1",
		Name: "q1"}, {Namespace: "written", Name: "down"}}
	if diff := cmp.Diff(all, queues); err != nil || diff != "" {
		t.Errorf("the queues (-want +got), error %v:\n%s", err, diff)
	}
}

// TestInspectYouzan counts one of each kind, and finds topics in buckets and lists.
func TestInspectYouzan(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t).Client()
	s := &youzanServer{redisDo: redisDo{t, r}}
	now := time.Now().Truncate(time.Second)
	s.push("order", "held", now.Add(-time.Second), 60, "")
	s.tick(now)
	s.pop("order", now)
	s.push("order", "ready", now.Add(-time.Second), 60, "")
	s.push("mail", "letter", now.Add(-time.Second), 60, "")
	s.tick(now)
	s.push("order", "delayed", now.Add(time.Hour), 60, "")
	s.push("order", "later", now.Add(2*time.Hour), 60, "")
	s.push("order", "bad", now.Add(time.Hour), 0, "")
	s.push("sms", "text", now.Add(time.Hour), 60, "")
	s.do("RPUSH", "dq_queue_order", "ended")
	s.do("SET", "lost", s.pack("order", "lost", now.Unix(), 60, ""))
	s.do("SET", "page", "another program's")
	got, err := fromyouzan.Inspect(t.Context(), r, fromyouzan.Server{}, "order")
	if err != nil {
		t.Fatal(err)
	}
	want := []*fromyouzan.Finding{{Topic: "order", Finding: oneway.Finding{
		Delayed: 2, Reserved: 1, Ready: 1, Ended: 1, Unnamed: 1, Bad: 1, Earliest: now.Add(time.Minute),
		Latest: now.Add(2 * time.Hour),
	}}}
	if diff := cmp.Diff(want, got, said); diff != "" {
		t.Errorf("the topic (-want +got):\n%s", diff)
	}
	if len(got[0].Warnings) != 3 || !strings.Contains(got[0].FirstBad, "TTR") {
		t.Errorf("the warnings are %q, the first bad is %q", got[0].Warnings, got[0].FirstBad)
	}
	s.do("ZADD", "dq_bucket_1", 1, "unreadable")
	s.do("SET", "unreadable", "x")
	want[0].Bad++
	before := redistest.Dump(t, r)
	got, err = fromyouzan.Inspect(t.Context(), r, fromyouzan.Server{})
	want = []*fromyouzan.Finding{
		{Topic: "mail", Finding: oneway.Finding{Ready: 1, Bad: 1}}, want[0],
		{Topic: "sms", Finding: oneway.Finding{Delayed: 1, Bad: 1, Earliest: now.Add(time.Hour), Latest: now.Add(time.Hour)}},
	}
	if diff := cmp.Diff(want, got, said); err != nil || diff != "" {
		t.Errorf("the topics (-want +got), error %v:\n%s", err, diff)
	}
	if diff := cmp.Diff(before, redistest.Dump(t, r)); diff != "" {
		t.Errorf("looking changed something:\n%s", diff)
	}
}

// TestInspectYouzanBounded looks at some of the keys of a large database for jobs that nothing
// names, and says so. Of what is no job it reads a byte.
func TestInspectYouzanBounded(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t).Client()
	s := &youzanServer{redisDo: redisDo{t, r}}
	s.push("order", "delayed", time.Now().Add(time.Hour), 60, "")
	s.do("SET", "lost", s.pack("order", "lost", 1, 60, ""))
	s.do("SETRANGE", "another program's", 8<<20, "x")
	sent := func() int64 {
		stats := r.InfoMap(t.Context(), "stats").Val()
		n, err := strconv.ParseInt(stats["Stats"]["total_net_output_bytes"], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := sent()
	got, err := fromyouzan.Inspect(t.Context(), r, fromyouzan.Server{})
	if err != nil || len(got) != 1 || got[0].Unnamed != 1 || got[0].Unlooked != 0 {
		t.Errorf("found %+v, error %v", got, err)
	}
	if n := sent() - before; n > 1<<20 {
		t.Errorf("it read %d bytes", n)
	}
	s.do("EVAL", "for i = 1, 110000 do redis.call('SET', 'x' .. i, 'x') end", 0)
	got, err = fromyouzan.Inspect(t.Context(), r, fromyouzan.Server{})
	if err != nil || len(got) != 1 || got[0].Unlooked < 5000 || got[0].Unlooked > 10003 ||
		!strings.Contains(strings.Join(got[0].Warnings, "\n"), "were not looked at") {
		t.Errorf("found %+v, error %v", got, err)
	}
	// An import of what no server works on any more looks at all of them.
	if counts, err := fromyouzan.Import(t.Context(), r, belfrytest.Start(t).Client(t), fromyouzan.Options{
		Topic: "order", Options: oneway.Options{Stopped: true, Share: 1},
	}); err != nil || counts.Acked != 1 || counts.Unnamed != 1 {
		t.Errorf("the import counted %+v, error %v", counts, err)
	}
}

// TestInspectOtherTypes refuses keys that are of another type, and finds no queue in them.
func TestInspectOtherTypes(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t).Client()
	for _, key := range []string{"timer_set", "m/ns", "q/ns1/q1", "d/ns1/q1", "dq_bucket_1", "dq_queue_order"} {
		if err := r.Set(t.Context(), key, "text", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if queues, err := fromlmstfy.Find(t.Context(), r); err != nil || len(queues) > 0 {
		t.Errorf("found %v, error %v", queues, err)
	}
	if topics, err := fromyouzan.Inspect(t.Context(), r, fromyouzan.Server{}); err != nil || len(topics) > 0 {
		t.Errorf("found %v, error %v", topics, err)
	}
	if _, err := fromlmstfy.Inspect(t.Context(), r, source()); err == nil || !strings.Contains(err.Error(),
		"is a string") {
		t.Errorf("the queue passed with %v", err)
	}
	if _, err := fromyouzan.Inspect(t.Context(), r, fromyouzan.Server{}, "order"); err == nil ||
		!strings.Contains(err.Error(), "is a string") {
		t.Errorf("the topic passed with %v", err)
	}
}
