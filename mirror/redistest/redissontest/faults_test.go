package redissontest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/mirror/redistest"
)

// TestB16: retainAll forgets the timer, which delivers what was removed.
func TestB16(t *testing.T) {
	q := newQueue(t, NewGeneration)
	q.offer(r0, "A", 900)
	q.offer(r0, "B", 100)
	for _, changed := range []bool{true, false} {
		if got, err := q.RetainAll(t.Context(), []byte("A")); err != nil || got != changed {
			t.Errorf("retainAll is %v, %v", got, err)
		}
	}
	q.wantSizes(2, 1)
	q.wantPayload("peek", q.Peek, "A")
	q.wantTransfer(1000, "")
	q.wantReady("B", "A")
}

// TestB17: of the old generation's random number 53 bits are left, so that two may be one.
func TestB17(t *testing.T) {
	q := newQueue(t, OldGeneration)
	q.offer("9007199254740993", "x", at)
	q.offer("9007199254740992", "x", at)
	member := unhex(t, "0000000000004043010000000000000078")
	q.wantTimer(member)
	q.wantList(q.list, []string{member, member})
}

// TestB20: a new member with no payload whose random ends in 1 is an old one with a payload of one
// zero: each generation reads its own.
func TestB20(t *testing.T) {
	for generation, want := range map[Generation]string{NewGeneration: "", OldGeneration: "\x00"} {
		q := newQueue(t, generation)
		q.offerRaw(unhex(t, "08000102030405060100000000000000"+"00"), "5")
		q.wantTransfer(5, "")
		q.wantReady(want)
	}
}

// TestB21: names whose braces Redis reads differently cannot be offered to in a cluster, and others
// can.
func TestB21(t *testing.T) {
	server := redistest.Start(t, redistest.WithCluster())
	for name, works := range map[string]bool{
		"orders": true, "{svc}:orders": true, "svc:{orders}": true, "订单": true,
		"a{b": false, "a}b": false, "a{}b": false, "{}x": false,
	} {
		err := New(server.Client(), name, NewGeneration, time.Now).Offer(t.Context(), []byte("hello"), time.UnixMilli(at))
		if works != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), "CROSSSLOT") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTake: what is ready comes in order and once, and a consumer that waits in vain is told so
// when its time is up.
func TestTake(t *testing.T) {
	q := newQueue(t, NewGeneration)
	for _, payload := range []string{"a", "b", "c", "d"} {
		q.offer(r0, payload, 1000)
	}
	q.wantTransfer(1000, "")
	for _, timeout := range []time.Duration{0, time.Second} {
		want := map[time.Duration]string{0: "a", time.Second: "b"}[timeout]
		q.wantPayload("take", func(ctx context.Context) ([]byte, bool, error) { return q.Take(ctx, timeout) }, want)
	}
	if all, err := q.TakeAll(t.Context()); err != nil || len(all) != 2 || !equal(all[0], "c") || !equal(all[1], "d") {
		t.Errorf("the rest is %q, %v", all, err)
	}
	if payload, ok, err := q.Take(t.Context(), time.Second); ok || err != nil {
		t.Errorf("of nothing it takes %q, %v", payload, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if payload, ok, err := q.Take(ended, 0); ok || err == nil {
		t.Errorf("of nothing it takes %q, %v", payload, err)
	}
}
