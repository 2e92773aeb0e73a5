package mirror

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/fromlmstfy"
	"github.com/belfrydb/belfry/mirror/lmstfy"
	"github.com/belfrydb/belfry/mirror/oneway"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// remembersForever looks whether the queue all remembers ids without end.
func remembersForever(t *testing.T, c *client.Client) bool {
	t.Helper()
	queue, err := c.Admin().Queue(t.Context(), "all")
	if err != nil {
		t.Fatal(err)
	}
	return isSet(queue.Settings.DedupForever)
}

// importTo imports an empty Redis queue, on which a bridge has worked before, into the queue all.
func importTo(t *testing.T, r *redis.Client, c *client.Client, redisQueue string) {
	t.Helper()
	if err := r.HSet(t.Context(), keysOf(redisQueue).state, "fence", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := Import(t.Context(), r, c, ImportOptions{RedisQueue: redisQueue, Queue: "all", Share: 1}); err != nil {
		t.Fatal(err)
	}
}

// TestFinalizeOneOfTwo: of two Redis queues that come to one queue, the last to be ended has it
// remember ids as before the first import.
func TestFinalizeOneOfTwo(t *testing.T) {
	for _, was := range []bool{false, true} {
		for _, order := range [][]string{{"r1", "r2"}, {"r2", "r1"}} {
			t.Run(fmt.Sprint(order[0], " first, ids remembered before: ", was), func(t *testing.T) {
				r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
				if _, err := c.Admin().CreateQueue(t.Context(), "all", 1,
					&admin.QueueSettings{DedupForever: new(was)}); err != nil {
					t.Fatal(err)
				}
				importTo(t, r, c, "r1")
				importTo(t, r, c, "r2")
				for n, redisQueue := range order {
					var told []string
					o := FinalizeOptions{RedisQueue: redisQueue, Queue: "all", Share: 1,
						Notice: func(err error) { told = append(told, err.Error()) }}
					if _, err := Finalize(t.Context(), r, c, o); err != nil {
						t.Fatal(err)
					}
					if got, want := remembersForever(t, c), was || n == 0; got != want {
						t.Errorf("ids are remembered after %s: %v, want %v", redisQueue, got, want)
					}
					if got, want := slices.ContainsFunc(told, func(text string) bool {
						return strings.Contains(text,
							"also comes from "+order[1])
					}), n == 0; got != want {
						t.Errorf("%s: it told %q", redisQueue, told)
					}
				}
			})
		}
	}
}

// TestDedupKilled: the end of one import was killed after it had the queue forget ids and before it
// looked whether another import had begun.
func TestDedupKilled(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	importTo(t, r, c, "r1")
	importTo(t, r, c, "r2")
	if _, err := c.Admin().UpdateQueue(t.Context(), "all", &admin.QueueSettings{DedupForever: new(false)}); err != nil {
		t.Fatal(err)
	}
	forgetNote(t, c, "was")
	for n, redisQueue := range []string{"r1", "r2"} {
		if _, err := Finalize(t.Context(), r, c, FinalizeOptions{RedisQueue: redisQueue, Queue: "all",
			Share: 1}); err != nil {
			t.Fatal(err)
		}
		if got := remembersForever(t, c); got != (n == 0) {
			t.Errorf("ids are remembered after %s: %v", redisQueue, got)
		}
	}
}

// TestFinalizeLostState: Redis has lost what the mirror kept, and the queue still remembers ids
// without end.
func TestFinalizeLostState(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	importTo(t, r, c, "r1")
	if err := r.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Finalize(t.Context(), r, c, FinalizeOptions{RedisQueue: "r1", Queue: "all",
			Share: 1}); err != nil || remembersForever(t, c) {
			t.Errorf("it ended with %v; ids are remembered: %v", err, remembersForever(t, c))
		}
	}
}

// TestFinalizeSourceLostState is TestFinalizeLostState for another service, and for each queue that
// jobs came to.
func TestFinalizeSourceLostState(t *testing.T) {
	for _, lost := range []string{"all", "all.dead"} {
		r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
		o := fromlmstfy.Options{Options: oneway.Options{Queue: "all", Share: 1, Stopped: true},
			Dead: fromlmstfy.DeadQueue, Source: lmstfy.Queue{Namespace: "ns", Name: "q"}}
		if _, err := fromlmstfy.Import(t.Context(), r, c, o); err != nil {
			t.Fatal(err)
		}
		if err := r.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if lost != "all" { // it was killed between the two
			forgetNote(t, c, "mark:"+hashed("lmstfy:ns/q\x00all"))
		}
		for range 2 {
			_, err := fromlmstfy.Finalize(t.Context(), r, c, o)
			queue, failed := c.Admin().Queue(t.Context(), lost)
			if err != nil || failed != nil || isSet(queue.Settings.DedupForever) {
				t.Errorf("it ended with %v; the queue %s has %v, %v", err, lost, queue.Settings, failed)
			}
		}
	}
}

// forgetNote removes a note about the queue all.
func forgetNote(t *testing.T, c *client.Client, id string) {
	t.Helper()
	if _, err := c.Cancel(t.Context(), "belfry.mirror/"+hashed("dedup all"), id); err != nil {
		t.Fatal(err)
	}
}

// hashed is the part of a name that stands for a text.
func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
