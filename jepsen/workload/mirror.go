package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The queues of the workload mirror, which have the same names in Redis and in Belfry. Commands
// that are killed serve the first two, every server the third.
const (
	MirrorIn     = "mirror/in"     // comes to Belfry's consumers, or is delivered by Redisson before
	MirrorOut    = "mirror/out"    // comes to Redisson's consumers
	MirrorServed = "mirror/served" // likewise
)

// mirror has Redisson run beside Belfry.
func mirror() Workload {
	queues := []string{MirrorIn, MirrorOut, MirrorServed}
	anyone := func(c *Client) string { return queues[c.Rand.IntN(len(queues))] }
	return Workload{
		Name: "mirror", What: "processes of Redisson in a Redis, which is killed, beside commands of 'belfry mirror' that " +
			"are suspended and killed, and servers that mirror", Queues: queues,
		NeedsRedis: true,
		Prepare: func(ctx context.Context, c *Client) error {
			return errors.Join(c.ensureQueue(ctx, MirrorIn, 2), c.ensureQueue(ctx, MirrorOut, 3),
				c.ensureQueue(ctx, MirrorServed, 1))
		},
		Roles: []Role{
			{"offerer", 2, func(ctx context.Context, c *Client) { c.offer(ctx, anyone(c)) }},
			{"producer", 2, func(ctx context.Context, c *Client) {
				r := c.newPut(anyone(c))
				r.MaxAttempts = proto.Uint32(0) // its mirror is killed again and again
				r.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(c.between(0, 3*time.Second))}
				c.put(ctx, r)
			}},
			{"worker", 1, func(ctx context.Context, c *Client) {
				life, end := context.WithTimeout(ctx, c.between(time.Second, 9*time.Second))
				defer end()
				c.target.Redisson.Transfer(life)
			}},
			{"taker", 3, func(ctx context.Context, c *Client) { c.takeDelivered(ctx, anyone(c)) }},
			{"consumer", 2, work(8, MirrorIn)},
			{"killer", 1, func(ctx context.Context, c *Client) {
				if pause(ctx, c.between(3*time.Second, 15*time.Second)) {
					if err := c.target.Redisson.Restart(ctx); err != nil {
						c.err = err
					}
				}
			}},
			{"command", 4, func(ctx context.Context, c *Client) { c.mirror(ctx) }},
		},
	}
}

// offer has a process of Redisson offer a payload.
func (c *Client) offer(ctx context.Context, queue string) {
	due := time.Now().Add(c.between(-100*time.Millisecond, 3*time.Second)).Truncate(time.Millisecond)
	p := history.Passage{Client: c.Name, Queue: queue, Payload: c.body(bodyMost), Due: due, Invoked: c.history.Now()}
	p.Unknown = c.target.Redisson.Offer(ctx, queue, p.Payload, due) != nil
	p.Returned = c.history.Now()
	c.history.Pass(p)
}

// takeDelivered has a consumer of Redisson take what is on the ready list. What Redis does not
// answer may be lost, and it is not killed meanwhile.
func (c *Client) takeDelivered(ctx context.Context, queue string) {
	began := c.history.Now()
	payloads, err := c.target.Redisson.Take(ctx, queue)
	for _, payload := range payloads {
		c.history.Pass(history.Passage{Client: c.Name, Queue: queue, Payload: payload, Taken: true, Invoked: began,
			Returned: c.history.Now()})
	}
	if err != nil {
		c.err = fmt.Errorf("taking from the ready list of %s: %w", queue, err)
	}
}

// mirrorArgs returns the command for a queue.
func mirrorArgs(queue string) []string {
	if queue == MirrorIn {
		return []string{"import", "--follow"}
	}
	return []string{"run"}
}

// servers returns where the client reaches the nodes that there are now.
func (c *Client) servers() (list string) {
	for _, node := range c.target.Nodes() {
		url, err := c.target.URL(c.Name, node)
		if err != nil {
			c.err = err
			return ""
		}
		if list != "" {
			list += ","
		}
		list += url
	}
	return list
}

// mirror runs a command for a while. It may be suspended for longer than its hold lasts, and is
// killed in the end.
func (c *Client) mirror(ctx context.Context) {
	queue := []string{MirrorIn, MirrorOut}[c.Rand.IntN(2)]
	servers := c.servers()
	if c.err != nil {
		return
	}
	command, err := c.target.Redisson.Run(queue, servers, mirrorArgs(queue)...)
	if err != nil {
		c.err = err
		return
	}
	defer command.Kill()
	if !command.Live(ctx, c.between(500*time.Millisecond, 4*time.Second)) || c.oneIn(3) {
		return
	}
	command.Stop()
	if command.Live(ctx, c.between(time.Second, 5*time.Second)) {
		command.Continue()
		command.Live(ctx, c.between(0, time.Second))
	}
}

// DrainMirror has Redisson's workers and consumers and the mirror go on until Redis has nothing
// left, nor Belfry of what is Redisson's consumers'. It is for after the last fault, with a target
// that has a Redis.
func DrainMirror(ctx context.Context, target Target, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := NewClient(target, Drain, Drain+"-mirror", 0)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, queue := range []string{MirrorIn, MirrorOut} {
		command, err := target.Redisson.Run(queue, c.servers(), mirrorArgs(queue)...)
		if err != nil {
			return err
		}
		defer command.Kill()
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		target.Redisson.Transfer(working)
		close(ended)
	}()
	defer func() {
		stop()
		<-ended
	}()
	for {
		for _, queue := range []string{MirrorIn, MirrorOut, MirrorServed} {
			c.takeDelivered(ctx, queue)
		}
		left, err := target.Redisson.Left(ctx)
		if err == nil && c.err == nil && left == "" && c.gone(ctx, MirrorOut) && c.gone(ctx, MirrorServed) {
			return nil
		}
		if err := errors.Join(err, c.err); err != nil {
			return err
		}
		if !pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("after %v the mirror is not done: Redis has %s left, or Belfry jobs for its consumers", limit,
				cmp.Or(left, "nothing"))
		}
	}
}

// gone reports whether Belfry has no job of a queue but dead ones.
func (c *Client) gone(ctx context.Context, queue string) bool {
	found, o := c.getQueue(ctx, queue)
	n := found.GetQueue().GetCounts()
	return o.OK() && n.GetDelayed()+n.GetReady()+n.GetReserved() == 0 || o.Reason == belfryv1.Reason_REASON_QUEUE_NOT_FOUND
}
