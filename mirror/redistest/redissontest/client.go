// Package redissontest imitates live Redisson processes in tests of the mirror: their data in Redis
// and their behaviour, byte for byte and with their faults, in scripts of its own. It shares no
// code with the mirror, so that both sides do not make the same mistake. Only tests and the fault
// tests of jepsen import it.
package redissontest

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Generation is one of the two layouts of members, neither of which reads the other.
type Generation int

const (
	// OldGeneration is Redisson 2.7.0 to 3.21.0: a random double, the payload's length, the payload.
	OldGeneration Generation = iota + 1
	// NewGeneration is Redisson 3.21.1 to 4.7.0: eight random bytes with their length, the
	// payload's length, the payload.
	NewGeneration
)

// pack returns the Lua functions of the generation.
func (g Generation) pack() string {
	if g == OldGeneration {
		return packOld
	}
	return packNew
}

// random returns what a member of the generation begins with, as the scripts take it.
func (g Generation) random() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	if g == OldGeneration {
		return strconv.FormatInt(int64(binary.LittleEndian.Uint64(b[:])), 10)
	}
	return string(b[:])
}

// transferMax is how many entries one transfer moves.
const transferMax = 100

// Client is one delayed queue in one Redisson process. Its methods may be called from any
// goroutine.
type Client struct {
	redis      *redis.Client
	generation Generation
	clock      func() time.Time
	observe    func(next string, err error)
	retryAfter time.Duration

	ready, timer, list, channel string
}

// New returns a client of a queue. The clock is that of the process, by which it says what is due.
func New(rdb *redis.Client, queue string, generation Generation, clock func() time.Time) *Client {
	return &Client{
		redis: rdb, generation: generation, clock: clock, observe: func(string, error) {}, retryAfter: 5 * time.Second,
		ready: queue, timer: keyOf("redisson_delay_queue_timeout", queue), list: keyOf("redisson_delay_queue", queue),
		channel: keyOf("redisson_delay_queue_channel", queue),
	}
}

// keyOf returns the name of a queue's key. A name that has a brace is taken to have a hash tag.
func keyOf(prefix, queue string) string {
	if strings.Contains(queue, "{") {
		return prefix + ":" + queue
	}
	return prefix + ":{" + queue + "}"
}

// Observe has a function called by Run after each transfer with what that answered. To be called
// before Run.
func (c *Client) Observe(observe func(next string, err error)) { c.observe = observe }

// eval runs a script with the generation's functions in front.
func (c *Client) eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return c.redis.Eval(ctx, c.generation.pack()+script, keys, args...)
}

// Offer adds an entry that is due at a time, to the millisecond.
func (c *Client) Offer(ctx context.Context, payload []byte, due time.Time) error {
	return c.OfferAs(ctx, c.generation.random(), payload, due)
}

// OfferAs is Offer with random given: eight bytes, or for the old generation a number of 64 bits in
// decimal. With equal random and payload it is an offer that a client sends again, as Redisson did
// until 3.16.3: the timer has one entry and the list two.
func (c *Client) OfferAs(ctx context.Context, random string, payload []byte, due time.Time) error {
	err := c.eval(ctx, offerScript, []string{c.ready, c.timer, c.list, c.channel}, due.UnixMilli(), random, payload).Err()
	if errors.Is(err, redis.Nil) { // the script has no answer
		return nil
	}
	return err
}

// Transfer moves up to 100 entries that are due at nowMs, in milliseconds since 1970, to the ready
// list, and returns the score of the one that is due next as Redis writes it, or "" if there is
// none.
func (c *Client) Transfer(ctx context.Context, nowMs int64) (next string, err error) {
	next, err = c.eval(ctx, transferScript, []string{c.ready, c.timer, c.list}, nowMs, transferMax).Text()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return next, err
}

// Take pops the head of the ready list and waits for it up to timeout, in whole seconds and at
// least one; ok is false if there was none. With 0 it waits until ctx ends. What is popped is gone
// from Redis.
func (c *Client) Take(ctx context.Context, timeout time.Duration) (payload []byte, ok bool, err error) {
	for {
		// One pop at a time, for at most a second. So ctx is heeded, and no payload is popped when the
		// caller no longer waits for it.
		popped, err := c.redis.BLPop(context.WithoutCancel(ctx), time.Second, c.ready).Result()
		if err == nil {
			return []byte(popped[1]), true, nil
		}
		if !errors.Is(err, redis.Nil) {
			return nil, false, err
		}
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		if timeout != 0 {
			if timeout -= time.Second; timeout <= 0 {
				return nil, false, nil
			}
		}
	}
}

// TakeAll empties the ready list and returns what was in it.
func (c *Client) TakeAll(ctx context.Context) ([][]byte, error) {
	return payloads(c.eval(ctx, drainScript, []string{c.ready}))
}

// Size returns how many entries are in the order list.
func (c *Client) Size(ctx context.Context) (int, error) {
	n, err := c.redis.LLen(ctx, c.list).Result()
	return int(n), err
}

// Peek returns the entry that was offered first, whenever it is due; ok is false if there is none.
func (c *Client) Peek(ctx context.Context) (payload []byte, ok bool, err error) {
	return payloadOf(c.eval(ctx, peekScript, []string{c.list}))
}

// ReadAll returns all entries in the order in which they were offered.
func (c *Client) ReadAll(ctx context.Context) ([][]byte, error) {
	return payloads(c.eval(ctx, readAllScript, []string{c.list}))
}

// Contains reports whether an entry has a payload.
func (c *Client) Contains(ctx context.Context, payload []byte) (bool, error) {
	return c.eval(ctx, containsScript, []string{c.list}, payload).Bool()
}

// Remove cancels the first entry with a payload, and reports whether there was one.
func (c *Client) Remove(ctx context.Context, payload []byte) (bool, error) {
	return c.eval(ctx, removeScript, []string{c.timer, c.list}, payload).Bool()
}

// Poll cancels the entry that was offered first, whenever it is due, and returns it; ok is false if
// there is none.
func (c *Client) Poll(ctx context.Context) (payload []byte, ok bool, err error) {
	return payloadOf(c.eval(ctx, pollScript, []string{c.timer, c.list}))
}

// RetainAll removes all entries but those with one of the payloads from the order list, and not
// from the timer, which delivers them all the same. It reports whether there were any.
func (c *Client) RetainAll(ctx context.Context, keep ...[]byte) (bool, error) {
	args := make([]any, len(keep))
	for i, payload := range keep {
		args[i] = payload
	}
	return c.eval(ctx, retainAllScript, []string{c.list}, args...).Bool()
}

// payloadOf reads an answer that is one payload or none.
func payloadOf(cmd *redis.Cmd) (payload []byte, ok bool, err error) {
	text, err := cmd.Text()
	if errors.Is(err, redis.Nil) {
		return nil, false, nil
	}
	return []byte(text), err == nil, err
}

// payloads reads an answer that is a list of payloads.
func payloads(cmd *redis.Cmd) ([][]byte, error) {
	texts, err := cmd.StringSlice()
	if err != nil {
		return nil, fmt.Errorf("reading payloads: %w", err)
	}
	all := make([][]byte, len(texts))
	for i, text := range texts {
		all[i] = []byte(text)
	}
	return all, nil
}
