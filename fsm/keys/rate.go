package keys

import (
	"math"
	"math/bits"

	"github.com/belfrydb/belfry/fsm"
)

// The token bucket of a key is kept as the time at which it is full again (the theoretical arrival
// time of the generic cell rate algorithm, ITU-T I.371), as that of a queue is.

// period returns the time between two tokens, at least 1 ns.
func period(r *fsm.KeyRate) fsm.Duration { return max(1, r.Per/fsm.Duration(max(1, r.Count))) }

// burst returns how many tokens a full bucket has.
func burst(r *fsm.KeyRate) uint64 {
	if r.Burst > 0 {
		return uint64(r.Burst)
	}
	return uint64(r.Count)
}

// ahead returns how far before the bucket is full it has its first token.
func ahead(r *fsm.KeyRate) fsm.Duration {
	hi, lo := bits.Mul64(burst(r)-1, uint64(period(r)))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return fsm.Duration(lo)
}

// tokenAt returns when a bucket that is full at the given time has a token; 0 if it has one since
// ever.
func tokenAt(r *fsm.KeyRate, full fsm.Time) fsm.Time { return max(0, full-fsm.Time(ahead(r))) }
