package mirror

import (
	"github.com/belfrydb/belfry/mirror/redisconn"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// keys are the keys of one queue in Redis: Redisson's, and the mirror's own beside them.
type keys struct {
	redisson.Keys
	state     string // the owner of the mirror
	handover  string // claimed entries that Belfry may not have yet
	orphans   string // members that were in the list only
	aside     string // entries that Belfry cannot take
	returned  string // jobs that were written back and may still be in Belfry
	delivered string // jobs that were put on the ready list and may still be in Belfry
	// readyHand has claimed payloads of the ready list that Belfry may not have yet.
	readyHand string
	trial     string // for a moment, to try what the user may do
}

func keysOf(queue string) keys {
	return keys{
		Keys:      redisson.KeysOf(queue),
		state:     redisson.KeyOf("belfry_mirror", queue),
		handover:  redisson.KeyOf("belfry_handover", queue),
		orphans:   redisson.KeyOf("belfry_orphans", queue),
		aside:     redisson.KeyOf("belfry_aside", queue),
		returned:  redisson.KeyOf("belfry_returned", queue),
		delivered: redisson.KeyOf("belfry_rung", queue),

		readyHand: redisson.KeyOf("belfry_handover_ready", queue),
		trial:     redisson.KeyOf("belfry_trial", queue),
	}
}

// all returns the keys that Redis may have, and what they hold.
func (k keys) all() []redisconn.TypedKey {
	return []redisconn.TypedKey{
		redisconn.SortedSet(k.Timer), redisconn.List(k.List), redisconn.List(k.Ready),
		redisconn.Hash(k.state), redisconn.SortedSet(k.handover), redisconn.List(k.orphans),
		redisconn.SortedSet(k.aside), redisconn.Set(k.returned), redisconn.Set(k.delivered),
		redisconn.Hash(k.readyHand),
	}
}

// own returns the keys that the mirror keeps beside Redisson's.
func (k keys) own() []string {
	return []string{k.state, k.handover, k.orphans, k.aside, k.returned, k.delivered, k.readyHand}
}
