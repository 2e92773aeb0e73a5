package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// TestScriptsThatFail end in their midst, because a key is not what it was: nothing says that what
// was not written is there.
func TestScriptsThatFail(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	putAll(t, c, time.Now().Add(time.Hour), nil, "own")
	e := &exporter{link: newLink(r, c, pair.Options{RedisQueue: "orders", Share: 1}), format: redisson.New,
		codec: redisson.Bytes, batch: pair.BatchMax}
	if err := errors.Join(e.check(t.Context()), e.WithHold(t.Context(),
		func(context.Context) error { return nil })); err != nil {
		t.Fatal(err)
	}
	if err := r.MSet(t.Context(), timerKey, "text", "orders", "text").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.returnState(t.Context(), "DELAYED"); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("writing back: %v", err)
	}
	g := &deliverer{link: e.link, codec: redisson.Bytes, report: func(BridgeCounts) {}}
	if err := g.deliver(t.Context(), t.Context(), []*client.Job{{ID: "42", Body: []byte("x")}}); err == nil ||
		!strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("delivering: %v", err)
	}
	if n := r.Exists(t.Context(), e.keys.returned, e.keys.delivered).Val(); n != 0 {
		t.Error("Redis says that it has the jobs")
	}
	if err := e.settleLeftovers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(bodies(t, c)); n != 1 {
		t.Errorf("Belfry has %d jobs", n)
	}
}

// TestClaimAndRestore claims entries and gives them back: they are as they were, and only the first
// to deliver is announced.
func TestClaimAndRestore(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
	for n, entry := range []struct {
		payload string
		due     int64
	}{{"a", 5000}, {"b", 1000}, {"c", 1000}} {
		random := string(binary.BigEndian.AppendUint64(nil, uint64(n+1)))
		if err := app.OfferAs(t.Context(), random, []byte(entry.payload),
			time.UnixMilli(1700000000000+entry.due)); err != nil {
			t.Fatal(err)
		}
	}
	i := newImporter(newLink(r, c, pair.Options{RedisQueue: "orders", Share: 1}), ImportOptions{})
	if err := errors.Join(i.check(t.Context()), i.WithHold(t.Context(),
		func(context.Context) error { return nil })); err != nil {
		t.Fatal(err)
	}
	news := r.Subscribe(t.Context(), i.keys.Channel)
	defer news.Close()
	if _, err := news.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	sizes := func() [3]int64 {
		return [3]int64{r.ZCard(t.Context(), timerKey).Val(), r.LLen(t.Context(), listKey).Val(), r.ZCard(t.Context(),
			i.keys.handover).Val()}
	}
	i.batch = 10
	got, err := i.claim(t.Context())
	if err != nil || len(got.entries) != 3 || sizes() != [3]int64{0, 0, 3} {
		t.Fatalf("claimed %+v, %v; sizes %v", got, err, sizes())
	}
	var bad []*BadEntry
	for _, e := range got.entries {
		bad = append(bad, &BadEntry{Member: []byte(e.member), Score: e.score, Reason: errors.New("no")})
	}
	if err := i.refused(t.Context(), bad); !errors.Is(err, bad[0].Reason) || sizes() != [3]int64{3, 3, 0} {
		t.Errorf("given back: %v; sizes %v", err, sizes())
	}
	if diff := cmp.Diff([]string{"1700000001000", "end"}, heard(t, r, news)); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
	next, err := app.Transfer(t.Context(), 1700000001000)
	if diff := cmp.Diff([]string{"b", "c"}, ready(t, app)); err != nil || next != "1700000005000" || diff != "" {
		t.Errorf("the transfer answers %q, %v; delivered (-want +got):\n%s", next, err, diff)
	}
}
