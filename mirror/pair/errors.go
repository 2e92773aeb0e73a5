package pair

import (
	"errors"
	"fmt"
	"strings"

	"github.com/belfrydb/belfry/mirror/redisconn"
)

// Passing is [redisconn.Passing] for scripts: too few replicas pass, and so does a turn that the
// guard has seen before, because the library sent a script again whose answer was lost.
func Passing(err error) bool {
	return redisconn.Passing(err) || redisconn.HasCode(err, "BELFRYTURN") || errors.Is(err, errReplicas)
}

// Explain is [redisconn.Explain] that also knows what the guard answers.
func Explain(err error) error {
	if redisconn.IsExplained(err) {
		return err
	}
	switch text := err.Error(); {
	case redisconn.HasCode(err, "BELFRYOWNER"):
		cluster, queue, _ := strings.Cut(strings.TrimPrefix(text, "BELFRYOWNER "), " ")
		return redisconn.Explained(otherOwner(cluster, queue))
	case redisconn.HasCode(err, "BELFRYLEFT"):
		return redisconn.Explained(fmt.Errorf("the key %s has something again; look once more", strings.TrimPrefix(text,
			"BELFRYLEFT ")))
	case redisconn.HasCode(err, "BELFRYFENCE"):
		fence, key, _ := strings.Cut(strings.TrimPrefix(text, "BELFRYFENCE "), " ")
		return redisconn.Explained(fmt.Errorf("%w; Redis has seen the fence %s; if nobody else mirrors the queue, Belfry "+
			"was restored from an older backup: HDEL %s fence", ErrHoldLost, fence, key))
	case errors.Is(err, errReplicas):
		return redisconn.Explained(fmt.Errorf("%w; wait for fewer with --replicas, or look why they are behind: INFO "+
			"replication", err))
	default:
		return redisconn.Explain(err)
	}
}

// otherOwner says that a queue belongs to another mirror.
func otherOwner(cluster, queue string) error {
	return fmt.Errorf("this Redis queue is mirrored to the queue %s of the Belfry cluster %s; finalize there first, "+
		"after a rollback as well", queue, cluster)
}
