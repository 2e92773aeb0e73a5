package check

import (
	"math/bits"
	"time"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// The bounds of the settings of keys.
const (
	keyCountMax = 1_000_000
	keyPerMin   = time.Second
	keyPerMax   = 24 * time.Hour
	// keyFillMax bounds how long an empty bucket of tokens takes to become full. A shard remembers each
	// key that was handed out until its bucket is full again.
	keyFillMax = 24 * time.Hour
)

// OneKey checks a key that must be given.
func (c *Request) OneKey(field, key string) string {
	if key == "" {
		c.Fail(fault.Invalid(field, "a key is required: 1 to %d bytes of UTF-8", c.Limits.KeyBytesMax))
	}
	return c.Key(field, key)
}

// KeyPrefix checks what a key begins with; empty for all keys.
func (c *Request) KeyPrefix(field, prefix string) string {
	c.text(field, prefix, c.Limits.KeyBytesMax)
	return prefix
}

// keySettings checks the settings of keys and returns a function that changes those in force. It
// changes the fields that the request sets. It fails if the result makes no sense as a whole.
func (c *Request) keySettings(field string, in *belfryv1.QueueSettings) func(*fsm.KeySettings) error {
	if in == nil {
		in = &belfryv1.QueueSettings{}
	}
	c.keyCount(fault.Join(field, "keyConcurrency"), in.GetKeyConcurrency())
	rate := c.keyRate(fault.Join(field, "keyRate"), in.GetKeyRate())
	return func(s *fsm.KeySettings) error {
		if in.KeyConcurrency != nil {
			s.Concurrency = in.GetKeyConcurrency()
		}
		if in.GetKeyRate() != nil {
			s.Rate = rate
		}
		for _, f := range []struct {
			from *bool
			to   *bool
		}{
			{in.KeyOrdered, &s.Ordered}, {in.KeyFair, &s.Fair}, {in.HoldOnDead, &s.HoldOnDead}, {in.NoKeys, &s.Refused},
		} {
			if f.from != nil {
				*f.to = *f.from
			}
		}
		if s.Ordered && s.Concurrency > 1 {
			return fault.Invalid(fault.Join(field, "keyOrdered"),
				"it does not go with a keyConcurrency of %d: an ordered key has one job reserved at a time", s.Concurrency)
		}
		return nil
	}
}

// keyCount checks a number of jobs of a key.
func (c *Request) keyCount(field string, n uint32) {
	if n > keyCountMax {
		c.Fail(fault.Invalid(field, "%d is out of range: 0 to %d", n, keyCountMax))
	}
}

// keyRate checks the rate of a key. A message without any field means no limit.
func (c *Request) keyRate(field string, in *belfryv1.KeyRate) fsm.KeyRate {
	if in.GetCount() == 0 {
		if in.GetPer() != nil || in.GetBurst() != 0 {
			c.Fail(fault.Invalid(fault.Join(field, "count"), "per and burst need it: 1 to %d", keyCountMax))
		}
		return fsm.KeyRate{}
	}
	c.keyCount(fault.Join(field, "count"), in.GetCount())
	c.keyCount(fault.Join(field, "burst"), in.GetBurst())
	if in.GetPer() == nil {
		c.Fail(fault.Invalid(fault.Join(field, "per"), "it is required: %s to %s", wire.FormatDuration(keyPerMin),
			wire.FormatDuration(keyPerMax)))
	}
	per, _ := c.Span(fault.Join(field, "per"), in.GetPer(), keyPerMin, keyPerMax)
	rate := fsm.KeyRate{Count: in.GetCount(), Per: per, Burst: in.GetBurst()}
	if c.Err == nil && rate.Burst > burstMax(&rate) {
		c.Fail(fault.Invalid(fault.Join(field, "burst"),
			"%d is out of range: at %d per %s, 0 to %d; an empty bucket must be full again within %s, because the shard "+
				"remembers a key until then", rate.Burst, rate.Count, wire.FormatDuration(per), burstMax(&rate),
			wire.FormatDuration(keyFillMax)))
	}
	return rate
}

// burstMax returns the largest burst that fills within keyFillMax.
func burstMax(r *fsm.KeyRate) uint32 {
	hi, lo := bits.Mul64(uint64(keyFillMax), uint64(r.Count))
	most := uint64(keyCountMax)
	if hi < uint64(r.Per) { //nolint:gosec // checked to be positive
		n, _ := bits.Div64(hi, lo, uint64(r.Per)) //nolint:gosec // checked to be positive
		most = min(most, n)
	}
	return uint32(most) //nolint:gosec // bounded
}
