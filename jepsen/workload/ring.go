package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// ringQueue is a queue in which nothing else happens.
	ringQueue = "ring"
	// ringTries is how often a ring is tried at each node: a busy machine makes one late or has a
	// shard change its leader, a lost wake-up is there in all of them.
	ringTries = 3
	// ringWait is how long it is waited for.
	ringWait = 10 * time.Second
	// ringPause is how long a consumer has been waiting when a job is put for it.
	ringPause = 200 * time.Millisecond
)

// RingAll has a consumer wait at every node, with nothing else going on, for a job that is put or
// that falls due, and returns how long it took from that moment to the consumer: at the slowest
// node the quickest of a few tries.
func RingAll(ctx context.Context, target Target, by Ring) (slowest time.Duration, err error) {
	for _, node := range target.Nodes() {
		quickest := ringWait
		var refused error
		for try := range ringTries {
			took, err := ring(ctx, target, node, by, try)
			if errors.Is(err, errNoLeader) {
				refused = err
				continue
			}
			if err != nil {
				return 0, err
			}
			quickest = min(quickest, took)
		}
		if quickest == ringWait && refused != nil {
			return 0, refused
		}
		slowest = max(slowest, quickest)
	}
	return slowest, nil
}

// errNoLeader is wrapped by the error of a put that no leader took. No consumer waited in vain for
// its job.
var errNoLeader = errors.New("the shard had no leader")

// Ring is what wakes a waiting consumer.
type Ring string

// What wakes a consumer.
const (
	// Put is a job that is put without a delay while the consumer waits.
	Put Ring = "put"
	// Due is a job that falls due while the consumer waits.
	Due Ring = "due"
)

// ring has one consumer wait for one job.
func ring(ctx context.Context, target Target, node string, by Ring, try int) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	producer, err := NewClient(target, Probe, fmt.Sprintf("ring-%s-%s-%d-producer", by, node, try),
		uint64(target.History.Now()))
	if err != nil {
		return 0, err
	}
	defer producer.Close()
	consumer, err := NewClient(target, Probe, fmt.Sprintf("ring-%s-%s-%d-consumer", by, node, try),
		uint64(target.History.Now()))
	if err != nil {
		return 0, err
	}
	defer consumer.Close()
	producer.Ask(node)
	consumer.Ask(node)
	got := make(chan []*belfryv1.Job, 1)
	wait := func() {
		answer, _ := consumer.reserve(ctx, &belfryv1.ReserveRequest{Queues: []string{ringQueue},
			Wait: durationpb.New(ringWait), RequestId: consumer.requestID()})
		got <- answer.GetJobs()
	}
	job := &belfryv1.PutRequest{Queue: ringQueue, Body: &belfryv1.PutRequest_Text{Text: "ring"},
		RequestId: producer.requestID()}
	if by == Put {
		go wait()
		pause(ctx, ringPause)
	} else {
		job.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(probeDelay)}
	}
	from := target.History.Now()
	if _, o := producer.put(ctx, job); o.Reason == belfryv1.Reason_REASON_NO_LEADER {
		if by == Put { // the waiting consumer would get the next one's job
			cancel()
			<-got
		}
		return 0, fmt.Errorf("a put at %s: %w", node, errNoLeader)
	} else if !o.OK() {
		return 0, fmt.Errorf("a put at %s: %s", node, o.Message)
	}
	if by == Due {
		from = target.History.Now() + probeDelay // or a little earlier, since the put took some time
		go wait()
	}
	jobs := <-got
	took := target.History.Now() - from
	for _, j := range jobs {
		consumer.ack(ctx, j.GetLease())
	}
	if len(jobs) == 0 {
		return 0, fmt.Errorf("%v after its put or due time a job was not handed out at %s, where somebody waited for it",
			took, node)
	}
	return took, nil
}
