package clustertrial

import (
	"context"
	"flag"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/processtest"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

var (
	kills    = flag.Int("trial.kills", 2, "how often TestKill kills a leader")
	restarts = flag.Int("trial.restarts", 1, "how often TestRestart stops and starts a leader")
)

const (
	// quietRate is the load, in jobs a second, under which nodes are killed, stopped and frozen.
	quietRate = 100
	// killOutage and restartGap are aims.
	killOutage = 3 * time.Second
	restartGap = 300 * time.Millisecond
)

var inADay = client.In(probeDelay)

// TestKill kills leaders, one after the other, and measures for each of the shards that they led
// until it takes puts again.
func TestKill(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2", "n3")
	c.start("n1", "n2", "n3")
	status := c.awaitHealthy()
	probes := c.queues("probe")
	l := startLoad(c, quietRate)
	o := &outage{}
	back := processtest.Durations{}
	for kill := range *kills {
		victim := c.member(status.Shards[kill%len(status.Shards)].Leader)
		var led []string
		for _, s := range status.Shards {
			if s.Leader == victim.name {
				led = append(led, probes[s.Number])
			}
		}
		c.killNode(victim)
		o.measure(c, c.running()[kill%2], led)
		began := time.Now()
		c.start(victim.name)
		status = c.awaitHealthy()
		back = append(back, time.Since(began))
	}
	f := &figures{trial: "kill"}
	f.account(l.finish())
	f.count("kills", *kills)
	f.count("shards that lost their leader", len(o.plain))
	f.durations("until a shard takes puts, plain calls", o.plain, killOutage)
	f.durations("until a shard takes puts, SDK", o.sdk)
	f.durations("from the start of the killed node until all is healthy and even", back)
	f.print(t)
}

// TestRestart stops leaders as an operator does, and measures how long their shards were without
// one that took puts.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2", "n3")
	c.start("n1", "n2", "n3")
	status := c.awaitHealthy()
	probes := c.queues("probe")
	l := startLoad(c, quietRate)
	var usual, gaps, stops processtest.Durations
	for restart := range *restarts {
		victim := c.member(status.Shards[restart%len(status.Shards)].Leader)
		others := slices.DeleteFunc(c.running(), func(m *member) bool { return m == victim })
		var watches []*watch
		for _, s := range status.Shards {
			if s.Leader == victim.name {
				watches = append(watches, startWatch(c, others[restart%2], probes[s.Number]))
			}
		}
		before := time.NewTimer(time.Second)
		<-before.C
		stopped := time.Now()
		c.stopNode(victim.name)
		stops = append(stops, time.Since(stopped))
		for _, w := range watches {
			gaps = append(gaps, w.end(stopped, &usual))
		}
		c.start(victim.name)
		status = c.awaitHealthy()
	}
	f := &figures{trial: "restart"}
	f.account(l.finish())
	f.count("restarts", *restarts)
	f.durations("from the signal until the process has ended", stops)
	f.durations("longest time between two puts of a shard in the second before", usual)
	f.durations("longest time between two puts of a shard while its leader stopped", gaps, restartGap)
	f.print(t)
}

// watch puts into one queue with plain calls, one after the other, and notes when each succeeded.
type watch struct {
	stop    context.CancelFunc
	running sync.WaitGroup
	times   []time.Time
}

func startWatch(c *cluster, through *member, queue string) *watch {
	ctx, stop := context.WithCancel(c.t.Context())
	w := &watch{stop: stop}
	to := plain(through)
	w.running.Go(func() { w.run(ctx, to, queue) })
	return w
}

func (w *watch) run(ctx context.Context, to belfryv1connect.QueueServiceClient, queue string) {
	pause := time.NewTicker(probePause)
	defer pause.Stop()
	for {
		if putOnce(ctx, to, queue) == nil {
			w.times = append(w.times, time.Now())
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// end stops the watch and returns the longest time between two puts after a moment, or since the
// last; the longest before it goes to usual.
func (w *watch) end(moment time.Time, usual *processtest.Durations) time.Duration {
	ended := time.Now()
	w.stop()
	w.running.Wait()
	w.times = append(w.times, ended)
	var before, after time.Duration
	for i := 1; i < len(w.times); i++ {
		gap := w.times[i].Sub(w.times[i-1])
		if w.times[i].Before(moment) {
			before = max(before, gap)
		} else {
			after = max(after, gap)
		}
	}
	*usual = append(*usual, before)
	return after
}
