package redissontest

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/mirror/redistest"
)

// The random bytes and the time of most vectors.
const (
	r0 = "\x00\x01\x02\x03\x04\x05\x06\x07"
	r1 = "\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8"
	at = 1_700_000_000_123
)

// queue is a queue on a server of its own, of which a test sees what is in Redis and what is
// published.
type queue struct {
	*testing.T
	*Client
	server    *redistest.Server
	published *redis.PubSub
}

// newQueue returns a queue by the name "orders".
func newQueue(t *testing.T, generation Generation) *queue {
	t.Helper()
	server := redistest.Start(t)
	q := &queue{
		t, New(server.Client(), "orders", generation, time.Now), server,
		server.Client().Subscribe(t.Context(), "redisson_delay_queue_channel:{orders}"),
	}
	t.Cleanup(func() { q.published.Close() })
	if _, err := q.published.Receive(t.Context()); err != nil { // that it listens
		t.Fatal(err)
	}
	return q
}

// offer offers a payload.
func (q *queue) offer(random, payload string, dueMs int64) {
	q.Helper()
	if err := q.OfferAs(q.Context(), random, []byte(payload), time.UnixMilli(dueMs)); err != nil {
		q.Fatal(err)
	}
}

// offerRaw adds a member with a score to the timer and the list, as a foreign program would.
func (q *queue) offerRaw(member, score string) {
	q.Helper()
	err := q.redis.Do(q.Context(), "ZADD", q.timer, score, member).Err()
	if err := errors.Join(err, q.redis.RPush(q.Context(), q.list, member).Err()); err != nil {
		q.Fatal(err)
	}
}

// wantPublished compares what was published since it was last called.
func (q *queue) wantPublished(want ...string) {
	q.Helper()
	const end = "end"
	if err := q.redis.Publish(q.Context(), q.channel, end).Err(); err != nil {
		q.Fatal(err)
	}
	var got []string
	for {
		message, err := q.published.ReceiveMessage(q.Context())
		if err != nil {
			q.Fatal(err)
		}
		if message.Payload == end {
			break
		}
		got = append(got, message.Payload)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		q.Errorf("published (-want +got):\n%s", diff)
	}
}

// wantTransfer transfers and compares what that says is next.
func (q *queue) wantTransfer(nowMs int64, want string) {
	q.Helper()
	if next, err := q.Transfer(q.Context(), nowMs); err != nil || next != want {
		q.Errorf("a transfer at %d answers %q, %v, want %q", nowMs, next, err, want)
	}
}

// wantUnreadable transfers and expects the error of a member that cannot be read.
func (q *queue) wantUnreadable(nowMs int64) {
	q.Helper()
	var answer redis.Error
	if next, err := q.Transfer(q.Context(), nowMs); !errors.As(err, &answer) {
		q.Errorf("a transfer at %d answers %q, %v", nowMs, next, err)
	}
}

// wantReady compares the ready list.
func (q *queue) wantReady(want ...string) {
	q.Helper()
	q.wantList(q.ready, want)
}

func (q *queue) wantList(key string, want []string) {
	q.Helper()
	got, err := q.redis.LRange(q.Context(), key, 0, -1).Result()
	if err != nil {
		q.Fatal(err)
	}
	if diff := cmp.Diff(want, append([]string(nil), got...)); diff != "" {
		q.Errorf("%s (-want +got):\n%s", key, diff)
	}
}

// wantTimer compares the timer's members and scores, in order.
func (q *queue) wantTimer(want ...string) {
	q.Helper()
	got, err := q.redis.ZRange(q.Context(), q.timer, 0, -1).Result()
	if err != nil {
		q.Fatal(err)
	}
	if diff := cmp.Diff(want, append([]string(nil), got...)); diff != "" {
		q.Errorf("the timer (-want +got):\n%s", diff)
	}
}

// wantSizes compares how many the timer and the order list have.
func (q *queue) wantSizes(timer, list int) {
	q.Helper()
	inTimer, err := q.redis.ZCard(q.Context(), q.timer).Result()
	inList, err2 := q.Size(q.Context())
	if err := errors.Join(err, err2); err != nil || int(inTimer) != timer || inList != list {
		q.Errorf("the timer has %d and the list %d, %v, want %d and %d", inTimer, inList, err, timer, list)
	}
}

// unhex returns the bytes of a hexadecimal number.
func unhex(t *testing.T, text string) string {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestKeys: a name is put into braces unless it has an opening one.
func TestKeys(t *testing.T) {
	for queue, want := range map[string]string{
		"orders": "redisson_delay_queue_timeout:{orders}", "{svc}:orders": "redisson_delay_queue_timeout:{svc}:orders",
		"svc:{orders}": "redisson_delay_queue_timeout:svc:{orders}", "a{b": "redisson_delay_queue_timeout:a{b",
		"a}b": "redisson_delay_queue_timeout:{a}b}",
	} {
		if got := New(nil, queue, NewGeneration, time.Now).timer; got != want {
			t.Errorf("the timer of %s is %s, want %s", queue, got, want)
		}
	}
}

// TestMembers: vectors V1 to V20 of what each version of Redisson puts into the timer, and the very
// same into the list.
func TestMembers(t *testing.T) {
	const first, second = "0001020304050607", "fffefdfcfbfaf9f8"
	for _, tc := range []struct {
		name                    string
		random, payload, member string
	}{
		{"V1", first, "68656c6c6f", "080001020304050607050000000000000068656c6c6f"},
		{"V2", first, "", "0800010203040506070000000000000000"},
		{"V3", first, "e6b58be8af95", "0800010203040506070600000000000000e6b58be8af95"},
		{"V4", first, "2268656c6c6f22", "08000102030405060707000000000000002268656c6c6f22"},
		{"V5", first, "5b226a6176612e6c616e672e4c6f6e67222c315d",
			"08000102030405060714000000000000005b226a6176612e6c616e672e4c6f6e67222c315d"},
		{"V6", first, "7b226f726465724964223a313030317d",
			"08000102030405060710000000000000007b226f726465724964223a313030317d"},
		{"V7", first, "0368656c6cef", "08000102030405060706000000000000000368656c6cef"},
		{"V8", first, "09f6a1abfef962", "080001020304050607070000000000000009f6a1abfef962"},
		{"V9", first, "043e0568656c6c6f", "0800010203040506070800000000000000043e0568656c6c6f"},
		{"V10", first, "fc0568656c6c6f", "0800010203040506070700000000000000fc0568656c6c6f"},
		{"V11", second, "aced000574000568656c6c6f", "08fffefdfcfbfaf9f80c00000000000000aced000574000568656c6c6f"},
		{"V12", first, "00ff", "080001020304050607020000000000000000ff"},
		{"V13", "1234567890123456789", "68656c6c6f", "81e97df41022b143050000000000000068656c6c6f"},
		{"V14", "-1234567890123456789", "68656c6c6f", "81e97df41022b1c3050000000000000068656c6c6f"},
		{"V15", "1234567890123456789", "043e0568656c6c6f", "81e97df41022b1430800000000000000043e0568656c6c6f"},
		{"V16", "-42", "fc0568656c6c6f", "00000000000045c00700000000000000fc0568656c6c6f"},
		{"V17", "0", "2268656c6c6f22", "000000000000000007000000000000002268656c6c6f22"},
		{"V18", "9223372036854775807", "", "000000000000e0430000000000000000"},
		{"V19", "1", "0368656c6cef", "000000000000f03f06000000000000000368656c6cef"},
		{"V20", "9007199254740993", "78", "0000000000004043010000000000000078"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			generation, random := OldGeneration, tc.random
			if tc.random == first || tc.random == second {
				generation, random = NewGeneration, unhex(t, tc.random)
			}
			q, payload, member := newQueue(t, generation), unhex(t, tc.payload), unhex(t, tc.member)
			q.offer(random, payload, at)
			q.wantTimer(member)
			q.wantList("redisson_delay_queue:{orders}", []string{member})
			score, err := q.redis.ZScore(t.Context(), "redisson_delay_queue_timeout:{orders}", member).Result()
			if err != nil || score != at {
				t.Errorf("the score is %f, %v", score, err)
			}
			q.wantPublished("1700000000123")
			q.wantTransfer(at, "")
			q.wantReady(payload)
			q.wantSizes(0, 0)
		})
	}
}

// TestB1toB7: only a new head is published, and what is due goes by score, then by the member's
// bytes.
func TestB1toB7(t *testing.T) {
	q := newQueue(t, NewGeneration)
	const early = "\x22hello\x22"
	for _, step := range []struct {
		name, random, payload string
		due                   int64
		published             []string
	}{
		{"B1", r0, "hello", at, []string{"1700000000123"}},
		{"B2", r1, "later", 1_700_000_000_999, nil},
		{"B3", r1, early, 1_700_000_000_001, []string{"1700000000001"}},
		{"B4", "\xff\x00\x00\x00\x00\x00\x00\x00", "tie-lower", 1_700_000_000_001, []string{"1700000000001"}},
		{"B5", "\xff\xff\x00\x00\x00\x00\x00\x00", "tie-higher", 1_700_000_000_001, nil},
	} {
		q.offer(step.random, step.payload, step.due)
		q.wantPublished(step.published...)
	}
	q.wantTransfer(at, "1700000000999") // B6
	q.wantReady("tie-lower", early, "tie-higher", "hello")
	q.wantSizes(1, 1)
	q.wantTransfer(1_700_000_000_998, "1700000000999") // B7
	q.wantSizes(1, 1)
	q.wantTransfer(1_700_000_000_999, "")
	q.wantReady("tie-lower", early, "tie-higher", "hello", "later")
	q.wantSizes(0, 0)
	q.wantPublished() // a transfer publishes nothing
}

// TestB8: a transfer moves a hundred, and says when the next ones were due.
func TestB8(t *testing.T) {
	q := newQueue(t, NewGeneration)
	var all []string
	for due := range int64(250) {
		all = append(all, fmt.Sprintf("payload %d", due))
		q.offer(r0, all[due], 1000+due)
	}
	for _, step := range []struct {
		next  string
		ready int
	}{{"1100", 100}, {"1200", 200}, {"", 250}} {
		q.wantTransfer(2000, step.next)
		q.wantReady(all[:step.ready]...)
		q.wantSizes(250-step.ready, 250-step.ready)
	}
}

// TestB9B10: a member of the other generation stops each transfer halfway, and what is before it is
// delivered each time.
func TestB9B10(t *testing.T) {
	for _, tc := range []struct {
		name         string
		own, foreign Generation
		random       string
	}{
		{"B9", NewGeneration, OldGeneration, "1234567890123456789"},
		{"B10", OldGeneration, NewGeneration, r0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := newQueue(t, tc.own)
			q.offer("12345678", "first", 100)
			other := &queue{t, New(q.redis, "orders", tc.foreign, time.Now), nil, nil}
			other.offer(tc.random, "foreign", 200)
			q.offer("23456789", "last", 300)
			var ready []string
			for range 3 {
				q.wantUnreadable(1000)
				ready = append(ready, "first")
				q.wantReady(ready...)
				q.wantSizes(3, 2)
			}
		})
	}
}

// TestB11: one old member in 256 begins like a new one, and is read by either generation, to the
// same payload.
func TestB11(t *testing.T) {
	for _, generation := range []Generation{OldGeneration, NewGeneration} {
		q := newQueue(t, generation)
		q.offerRaw(unhex(t, "07000000000000000600000000000000736e65616b79"), "5")
		q.wantTransfer(5, "")
		q.wantReady("sneaky")
	}
}

// TestB12: what has a negative score is never due, and is the head for ever.
func TestB12(t *testing.T) {
	q := newQueue(t, NewGeneration)
	q.offer(r0, "due", 1000)
	q.offer(r0, "never", -1)
	q.wantPublished("1000", "-1")
	q.wantTransfer(2000, "-1")
	q.wantTransfer(2000, "-1")
	q.wantReady("due")
	q.wantSizes(1, 1)
}

// TestB13: the answer has the score as Redis writes it, also where Redisson cannot read that.
func TestB13(t *testing.T) {
	for score, want := range map[string]string{
		"1700000000123.5":  "1700000000123.5",
		"9007199254740993": "9007199254740992",
		"1e17":             "1e+17",
		"inf":              "inf",
	} {
		q := newQueue(t, NewGeneration)
		q.offerRaw(unhex(t, "080001020304050607050000000000000068656c6c6f"), score)
		q.wantTransfer(1000, want)
	}
}

// TestB14: an offer that was sent twice leaves an entry in the list that nothing delivers.
func TestB14(t *testing.T) {
	q := newQueue(t, NewGeneration)
	q.offer(r0, "twice", 500)
	q.offer(r0, "twice", 900)
	q.wantSizes(1, 2)
	q.wantTransfer(899, "900")
	q.wantTransfer(900, "")
	q.wantReady("twice")
	q.wantSizes(0, 1)
}

// TestB15: whatever reads or cancels goes by the order of the offers.
func TestB15(t *testing.T) {
	for _, generation := range []Generation{OldGeneration, NewGeneration} {
		t.Run(strconv.Itoa(int(generation)), func(t *testing.T) {
			q := newQueue(t, generation)
			q.wantNone()
			for i, payload := range []string{"A", "B", "C"} {
				if err := q.Offer(t.Context(), []byte(payload), time.UnixMilli([]int64{900, 100, 500}[i])); err != nil {
					t.Fatal(err)
				}
			}
			if all, err := q.ReadAll(t.Context()); err != nil || !slices.EqualFunc(all, []string{"A", "B", "C"}, equal) {
				t.Errorf("all are %q, %v", all, err)
			}
			q.wantPayload("peek", q.Peek, "A")
			q.wantBool("contains C", q.Contains, "C", true)
			q.wantBool("remove C", q.Remove, "C", true)
			q.wantBool("contains C", q.Contains, "C", false)
			q.wantBool("remove C", q.Remove, "C", false)
			q.wantSizes(2, 2)
			q.wantPayload("poll", q.Poll, "A")
			q.wantSizes(1, 1)
			q.wantTransfer(1000, "")
			q.wantReady("B")
		})
	}
}

// wantNone expects that there is nothing to read.
func (q *queue) wantNone() {
	q.Helper()
	for name, read := range map[string]func(context.Context) ([]byte, bool, error){"peek": q.Peek, "poll": q.Poll} {
		if payload, ok, err := read(q.Context()); ok || err != nil {
			q.Errorf("%s of nothing is %q, %v", name, payload, err)
		}
	}
	for name, read := range map[string]func(context.Context) ([][]byte, error){"readAll": q.ReadAll,
		"takeAll": q.TakeAll} {
		if all, err := read(q.Context()); len(all) > 0 || err != nil {
			q.Errorf("%s of nothing is %q, %v", name, all, err)
		}
	}
}

func (q *queue) wantPayload(name string, read func(context.Context) ([]byte, bool, error), want string) {
	q.Helper()
	if payload, ok, err := read(q.Context()); err != nil || !ok || string(payload) != want {
		q.Errorf("%s is %q, %v, want %q", name, payload, err, want)
	}
}

func (q *queue) wantBool(name string, ask func(context.Context, []byte) (bool, error), payload string, want bool) {
	q.Helper()
	if got, err := ask(q.Context(), []byte(payload)); err != nil || got != want {
		q.Errorf("%s is %v, %v, want %v", name, got, err, want)
	}
}

func equal(got []byte, want string) bool { return string(got) == want }
