package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// serveFewQueues starts a server with tokens, on a real node with one shard that holds at most so
// many queues.
func serveFewQueues(t *testing.T, queuesMax int) (*served, *tokenMemory, *node.Node) {
	t.Helper()
	n, err := node.Open(t.Context(), node.Config{
		Dir: t.TempDir(), Shards: 1, Machine: fsm.Config{QueuesMax: queuesMax}, Logger: slog.New(slog.DiscardHandler),
		Fatal: func(err error) {
			t.Error(err)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	tokenStore := newTokenMemory()
	s := serve(t, func(cfg *Config) {
		cfg.Authenticator, cfg.Catalog, cfg.Node = tokenStore, tokenStore, &soleNode{Node: n}
	})
	s.await("the shard to be served", func() bool { return n.Serves(0) })
	return s, tokenStore, n
}

// must fails the test if something failed.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTenantLeavesQueuesToOthers: a tenant that makes queue after queue, of jobs that are gone in a
// moment, is refused when it has half of them, one by one, raw and in batches. Its queues go on,
// and other tenants make theirs.
func TestTenantLeavesQueuesToOthers(t *testing.T) {
	t.Parallel()
	const most = 40
	s, tokenStore, _ := serveFewQueues(t, most)
	greedy, _ := tokenStore.make(t, "put:t/*")
	other, _ := tokenStore.make(t, "put:u/*", "put:v/*")
	admin, _ := tokenStore.make(t, "admin:t/*")
	put := func(token, queue string) answered {
		return s.with(token, "POST", "/v1/put", fmt.Sprintf(`{"queue":%q,"ttl":"1ms"}`, queue))
	}
	for i := range most / 2 {
		if got := put(greedy, fmt.Sprintf("t/%d", i)); got.status != 200 {
			t.Fatalf("queue %d: %d %s", i, got.status, got.body)
		}
	}
	refused := func(what string, got answered, words ...string) {
		t.Helper()
		for _, word := range append(words, `"reason":"QUOTA"`, `"NOT_APPLIED"`, "delete some") {
			if !strings.Contains(got.body, word) {
				t.Errorf("%s: %d %s; want %s", what, got.status, got.body, word)
			}
		}
		if got.status != 429 || got.header.Get("Retry-After") != "" {
			t.Errorf("%s: status %d, to be tried again after %q; want 429, and no time", what, got.status,
				got.header.Get("Retry-After"))
		}
	}
	refused("one too many", put(greedy, "t/more"), `queue \"t/more\" is not made`, `namespace \"t\" has 20 queues`,
		"20 of 40")
	refused("a raw one", s.with(greedy, "POST", "/q/t/more", "x"), "20 of 40")
	if got := put(greedy, "t/0"); got.status != 200 {
		t.Errorf("a queue that is there: %d %s", got.status, got.body)
	}
	batch := s.with(other, "POST", "/v1/put-batch", `{"jobs":[{"queue":"u/0"},{"queue":"t/more"},{"queue":"u/1"}]}`)
	if batch.status != 200 || strings.Count(batch.body, `"created":true`) != 2 ||
		!strings.Contains(batch.body, "FORBIDDEN") {
		t.Errorf("a neighbour's batch: %d %s", batch.status, batch.body)
	}
	both, _ := tokenStore.make(t, "put:*")
	batch = s.with(both, "POST", "/v1/put-batch",
		`{"requestId":"r","jobs":[{"queue":"v/0"},{"queue":"t/more"},{"queue":"t/0"},{"queue":"plain"}]}`)
	if batch.status != 200 || strings.Count(batch.body, `"created":true`) != 3 ||
		strings.Count(batch.body, `"QUOTA"`) != 1 || strings.Count(batch.body, "t/more") != 1 {
		t.Errorf("a batch of several namespaces: %d %s; want what would make a queue of the full one refused", batch.status,
			batch.body)
	}
	if got := s.with(admin, "POST", "/v1/delete-queue", `{"queue":"t/0"}`); got.status != 200 {
		t.Fatalf("deleting a queue: %d %s", got.status, got.body)
	}
	refused("while others have some, too", put(greedy, "t/more"), `namespace \"t\" has 19 queues`, "17 of 40")
}

// TestTooManyQueuesFault: it is a QUOTA that time does not end.
func TestTooManyQueuesFault(t *testing.T) {
	f := fault.Of(fmt.Errorf("shard-1: %w", &node.QueuesError{Queue: "q", Used: 5, Free: 3, Max: 8}))
	if f.Reason != belfryv1.Reason_REASON_QUOTA || f.Outcome() != belfryv1.Outcome_OUTCOME_NOT_APPLIED ||
		f.RetryAfter != 0 ||
		f.Message != `queue "q" is not made: queues without a namespace, which count as one, are 5 in this shard, `+
			`and no namespace may have more than are left there for all, 3 of 8; delete some, or ask an admin to` {
		t.Errorf("%+v", f)
	}
}

// TestUnknownQueueIsRefusedAlone: where puts make no queues, one into a queue that does not exist
// takes no other put of its batch with it, and a repeat of the batch finds what was done.
func TestUnknownQueueIsRefusedAlone(t *testing.T) {
	t.Parallel()
	s, tokenStore, n := serveFewQueues(t, 40)
	token, _ := tokenStore.make(t, "put:*", "admin:*")
	for _, queue := range []string{"here", "there"} {
		if got := s.with(token, "POST", "/v1/put", fmt.Sprintf(`{"queue":%q}`, queue)); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	must(t, n.RefuseNewQueues())
	var first [3]string // what the first attempt made
	for attempt := range 2 {
		got := s.with(token, "POST", "/v1/put-batch",
			`{"requestId":"r","jobs":[{"queue":"here"},{"queue":"hree"},{"queue":"there"}]}`)
		var answer struct {
			Results []struct {
				Put   struct{ ID string }
				Error struct{ Reason, Message string }
			}
		}
		if err := json.Unmarshal([]byte(got.body), &answer); err != nil || len(answer.Results) != len(first) {
			t.Fatalf("%d %s: %v", got.status, got.body, err)
		}
		for _, i := range []int{0, 2} {
			id := answer.Results[i].Put.ID
			if attempt == 0 {
				first[i] = id
			}
			if id == "" || id != first[i] {
				t.Errorf("attempt %d, put %d: %+v; the first made %q", attempt, i, answer.Results[i], first[i])
			}
		}
		if e := answer.Results[1].Error; e.Reason != "QUEUE_NOT_FOUND" || !strings.Contains(e.Message, `"hree"`) {
			t.Errorf("attempt %d, the put into a queue that does not exist: %+v", attempt, answer.Results[1])
		}
	}
}

// TestRepeatFindsWhatWasDone though the setting by which puts make queues, or a token, changed
// between the attempts: none of what was put is put again.
func TestRepeatFindsWhatWasDone(t *testing.T) {
	t.Parallel()
	s, tokenStore, n := serveFewQueues(t, 40)
	token, _ := tokenStore.make(t, "put:*")
	fewer, _ := tokenStore.make(t, "put:here", "put:n/*")
	post := func(token, call string) []string {
		t.Helper()
		got := s.with(token, "POST", call[:strings.Index(call, " ")], call[strings.Index(call, " ")+1:])
		if got.status != 200 {
			t.Fatalf("%s: %d %s", call, got.status, got.body)
		}
		return regexp.MustCompile(`"id":"[^"]*"`).FindAllString(got.body, -1)
	}
	for _, call := range []string{
		`/v1/put {"requestId":"one","queue":"here"}`,
		`/v1/put {"requestId":"one of a namespace","queue":"n/here"}`,
		`/v1/put-batch {"requestId":"of one queue","jobs":[{"queue":"here"},{"queue":"here"}]}`,
		`/v1/put-batch {"requestId":"of one namespace","jobs":[{"queue":"n/here"},{"queue":"n/there"},{"queue":"n/here"}]}`,
		`/v1/put-batch {"requestId":"of all kinds","jobs":[{"queue":"here"},{"queue":"n/here"},` +
			`{"queue":"there"},{"queue":"n/there"}]}`,
	} {
		first := post(token, call)
		must(t, n.RefuseNewQueues())
		if again := post(token, call); !slices.Equal(again, first) {
			t.Errorf("%s: made %s, and again, where puts make no queues, %s", call, first, again)
		}
		must(t, n.MakeNewQueues())
		for _, id := range post(fewer, call) {
			if !slices.Contains(first, id) {
				t.Errorf("%s: made %s, and again, with a token for fewer queues, %s", call, first, id)
			}
		}
	}
}
