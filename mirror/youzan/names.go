package youzan

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	bucketVerb = "%d"
	queueVerb  = "%s"
)

// Names are the patterns by which a server names its keys: its settings bucket_name and queue_name.
type Names struct {
	Bucket string // with one %d for the number of the bucket
	Queue  string // with one %s for the topic
}

// DefaultNames are those of a server without settings. It has three buckets then.
func DefaultNames() Names { return Names{Bucket: "dq_bucket_%d", Queue: "dq_queue_%s"} }

// Check reports patterns that do not name a key for each bucket and topic. Nothing else of Names is
// to be used before.
func (n Names) Check() error {
	for _, p := range []struct{ what, pattern, verb string }{{"buckets", n.Bucket, bucketVerb}, {"queues", n.Queue,
		queueVerb}} {
		if strings.Count(p.pattern, "%") != 1 || !strings.Contains(p.pattern, p.verb) {
			return fmt.Errorf("youzan: the pattern %q of %s must have one %s, and no other %%", p.pattern, p.what, p.verb)
		}
	}
	return nil
}

// BucketKey is the sorted set of a bucket; the first bucket has the number 1.
func (n Names) BucketKey(number int) string {
	return strings.Replace(n.Bucket, bucketVerb, strconv.Itoa(number), 1)
}

// QueueKey is the list of a topic's ready jobs.
func (n Names) QueueKey(topic string) string {
	return strings.Replace(n.Queue, queueVerb, topic, 1)
}
