package admin

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/belfrydb/belfry/client/internal/calls"
	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A Key is what is known of a key of a queue.
type Key struct {
	// Name is the key.
	Name string
	// Delayed, Ready, Reserved and Dead count its jobs. A job that fell due since the last entry of its
	// shard still counts as delayed.
	Delayed, Ready, Reserved, Dead int
	// Paused: PauseKey keeps its jobs back.
	Paused bool
	// Blocked says why its ready jobs are not handed out: "PAUSED", "DEAD" (HoldOnDead), "LIMIT"
	// (KeyConcurrency or KeyOrdered), "ORDER" (its first job is delayed) or "RATE" (KeyRate). It is
	// "NOT_BLOCKED" if a job may be handed out, or none is ready.
	Blocked string
	// NextTokenAt is when it gets its next token; zero if it has one or needs none.
	NextTokenAt time.Time
	// NextDueAt is when the job that is next was or will be due; zero if no job waits.
	NextDueAt time.Time
}

// KeyFilter selects keys of a queue.
type KeyFilter struct {
	// Prefix is what the keys begin with; empty for all.
	Prefix string
	// State selects keys with jobs in this state; empty for all keys that have jobs or are paused.
	State State
	// ByName sorts by name. Otherwise the key with the most ready jobs is first.
	ByName bool
}

// ErrKeysLeftOut says that the servers did not look at all keys, so that some may be missing. It is the
// last element of a sequence that [Client.Keys] returns.
var ErrKeysLeftOut = errors.New("there are too many keys, so the servers did not look at all")

// Keys reads the keys of a queue. The sequence ends after the first error. Each page of 1,000 keys is
// what the servers have at that moment. So without ByName, a key whose ready jobs change may be left
// out or come twice.
//
// For each page the servers look at all keys again, of all queues of a shard: at most 1,000,000 a
// shard, for about a second. If that was not enough for any page, the sequence has the keys that were
// found, and ends with [ErrKeysLeftOut]. A key that was left out may belong before any of them.
//
// Errors: Reason("QUEUE_NOT_FOUND"). Reason("UNIMPLEMENTED") until all nodes run a version that knows
// keys.
func (c Client) Keys(ctx context.Context, queue string, f KeyFilter) iter.Seq2[Key, error] {
	return func(yield func(Key, error) bool) {
		state, ok := values.StateNumber(f.State)
		if !ok {
			yield(Key{}, c.refusal("there is no state %q", f.State))
			return
		}
		req := &belfryv1.ListKeysRequest{
			Queue: queue, Prefix: f.Prefix, State: state, PageSize: keysAtOnce, Order: belfryv1.KeyOrder_KEY_ORDER_BACKLOG,
		}
		if f.ByName {
			req.Order = belfryv1.KeyOrder_KEY_ORDER_NAME
		}
		leftOut := false
		for {
			res, err := calls.Read(ctx, c.service, calls.Of(methods.ListKeys, req))
			if err != nil {
				yield(Key{}, err)
				return
			}
			for _, k := range res.GetKeys() {
				if !yield(keyOf(k), nil) {
					return
				}
			}
			leftOut = leftOut || res.GetStoppedEarly()
			if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
		}
		if leftOut {
			yield(Key{}, ErrKeysLeftOut)
		}
	}
}

// keysAtOnce is how many keys a page has.
const keysAtOnce = 1000

// keyOf reads a key off the wire.
func keyOf(k *belfryv1.Key) Key {
	n := k.GetCounts()
	return Key{
		Name: k.GetKey(), Delayed: int(n.GetDelayed()), Ready: int(n.GetReady()), Reserved: int(n.GetReserved()),
		Dead: int(n.GetDead()), Paused: k.GetPaused(), Blocked: strings.TrimPrefix(k.GetBlocked().String(), "KEY_BLOCK_"),
		NextTokenAt: values.TimeOf(k.GetNextTokenAt()), NextDueAt: values.TimeOf(k.GetNextDueAt()),
	}
}

// PauseKey keeps the jobs of one key back until ResumeKey. Puts and leases go on. A key that is paused
// already stays so.
//
// Errors: Reason("QUEUE_NOT_FOUND"). Reason("QUOTA") if 10,000 keys of the shard are paused.
func (c Client) PauseKey(ctx context.Context, queue, key string) error {
	req := &belfryv1.PauseKeyRequest{Queue: queue, Key: key}
	_, err := calls.Change(ctx, c.service, &req.RequestId, calls.Of(methods.PauseKey, req))
	return err
}

// ResumeKey ends the pause of a key. A key that is not paused stays so.
//
// Errors: Reason("QUEUE_NOT_FOUND").
func (c Client) ResumeKey(ctx context.Context, queue, key string) error {
	req := &belfryv1.ResumeKeyRequest{Queue: queue, Key: key}
	_, err := calls.Change(ctx, c.service, &req.RequestId, calls.Of(methods.ResumeKey, req))
	return err
}

// PurgeKey removes all jobs of a key in the given states, and returns how many it removed. No states
// means DELAYED, READY and DEAD. RESERVED jobs are removed only if states names RESERVED.
//
// Errors: Reason("QUEUE_NOT_FOUND").
func (c Client) PurgeKey(ctx context.Context, queue, key string, states ...State) (int, error) {
	req := &belfryv1.PurgeKeyRequest{Queue: queue, Key: key}
	for _, state := range states {
		number, ok := values.StateNumber(state)
		if !ok || state == "" {
			return 0, c.refusal("there is no state %q", state)
		}
		req.States = append(req.States, number)
	}
	res, err := calls.Change(ctx, c.service, &req.RequestId, calls.Of(methods.PurgeKey, req))
	return int(res.GetPurged()), err
}
