package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func natsPeers() []Queue {
	one := func(name string, replicas int) Queue {
		return Queue{Name: name, Keeps: "nothing; written, and synced every two minutes", program: "nats-server",
			pack: "nats-server", Cannot: natsCannot(), Start: func(ctx context.Context, s *Site) (*Running, error) {
				return startNATS(ctx, s, replicas)
			}}
	}
	return []Queue{one("nats-one", 1), one("nats-three", 3)}
}

// natsCannot says what is left out. Its delays come with a later version than Debian has.
func natsCannot() map[string]string {
	reasons := map[string]string{"queues": "1,000 queues would be as many streams, or consumers of one"}
	for _, name := range []string{"lateness", "lateplain", "herd", "pending", "pendingids"} {
		reasons[name] = "it has no delays"
	}
	return reasons
}

const (
	natsStream   = "compare"
	natsConsumer = "takers"
)

// startNATS runs so many servers, and makes a work queue with as many replicas.
func startNATS(ctx context.Context, s *Site, replicas int) (*Running, error) {
	r := &Running{}
	var urls, clients, routes []string
	for range replicas {
		client, err := s.Addresses.Free()
		if err != nil {
			return r, err
		}
		route, err := s.Addresses.Free()
		if err != nil {
			return r, err
		}
		urls, clients, routes = append(urls, "nats://"+client), append(clients, client), append(routes, "nats://"+route)
	}
	dir := s.NewDir("nats")
	for n := range replicas {
		host, port, err := net.SplitHostPort(clients[n])
		if err != nil {
			return r, err
		}
		at := filepath.Join(dir, fmt.Sprint(n))
		args := []string{"-a", host, "-p", port, "-js", "-sd", filepath.Join(at, "store"), "-n", fmt.Sprintf("n%d", n)}
		if replicas > 1 {
			args = append(args, "--cluster_name", "compare", "--cluster", routes[n], "--routes", strings.Join(routes, ","))
		}
		p, err := start(at, "nats-server", args...)
		if err != nil {
			return r, err
		}
		r.Processes = append(r.Processes, p)
	}
	var all *natsCaller
	err := r.Processes[0].await(ctx, func(ctx context.Context) (err error) {
		if all == nil {
			if all, err = dialNATS(strings.Join(urls, ",")); err != nil {
				return err
			}
		}
		r.Version = "NATS " + all.conn.ConnectedServerVersion()
		return all.open(ctx, replicas)
	})
	if all != nil {
		r.Close = all.conn.Close
	}
	next := 0
	r.Caller = func(ctx context.Context, k Kind) (Caller, error) {
		if k == Shared {
			return &natsCaller{conn: all.conn, stream: all.stream, queue: all.queue}, nil
		}
		next++
		c, err := dialNATS(urls[next%replicas])
		if err != nil {
			return nil, err
		}
		c.own = true
		if c.queue, err = c.stream.Consumer(ctx, natsStream, natsConsumer); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return c, nil
	}
	return r, err
}

// natsCaller is a connection, or one that all callers share.
type natsCaller struct {
	conn   *nats.Conn
	stream jetstream.JetStream
	queue  jetstream.Consumer
	own    bool
}

func dialNATS(urls string) (*natsCaller, error) {
	conn, err := nats.Connect(urls)
	if err != nil {
		return nil, fmt.Errorf("connecting to NATS: %w", err)
	}
	stream, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &natsCaller{conn: conn, stream: stream}, nil
}

// waitersMax is how many callers may wait at a time: more than any work has.
const waitersMax = 20_000

// open makes the stream and the consumer that all callers take from.
func (c *natsCaller) open(ctx context.Context, replicas int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	stream, err := c.stream.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: natsStream, Subjects: []string{natsStream}, Retention: jetstream.WorkQueuePolicy,
		Storage: jetstream.FileStorage, Replicas: replicas,
	})
	if err != nil {
		return err
	}
	c.queue, err = stream.CreateOrUpdateConsumer(ctx,
		jetstream.ConsumerConfig{Durable: natsConsumer, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1 << 20,
			MaxWaiting: waitersMax, Replicas: replicas})
	return err
}

// Put publishes; a batch is published without waiting, and then all answers are awaited. There is
// no delay.
func (c *natsCaller) Put(ctx context.Context, all Batch) error {
	bodies := all.Bodies
	if len(bodies) == 1 {
		_, err := c.stream.Publish(ctx, natsStream, bodies[0])
		return err
	}
	answers := make([]jetstream.PubAckFuture, len(bodies))
	for n, body := range bodies {
		var err error
		if answers[n], err = c.stream.PublishAsync(natsStream, body); err != nil {
			return err
		}
	}
	for _, answer := range answers {
		select {
		case <-answer.Ok():
		case err := <-answer.Err():
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// natsWait is how long a fetch waits at least: it has no way of not waiting that takes from a
// consumer of several replicas.
const natsWait = 50 * time.Millisecond

// Take implements Caller.
func (c *natsCaller) Take(ctx context.Context, what Wanted, seen func([]byte)) (int, error) {
	batch, err := c.queue.Fetch(what.Most, jetstream.FetchMaxWait(max(what.Wait, natsWait)))
	if err != nil {
		return 0, err
	}
	var last jetstream.Msg
	n := 0
	for msg := range batch.Messages() {
		seen(msg.Data())
		if last != nil {
			if err := last.Ack(); err != nil {
				return n, err
			}
		}
		last = msg
		n++
	}
	if last != nil {
		return n, last.DoubleAck(ctx) // the answer to the last one is awaited
	}
	if err := batch.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
		return 0, err
	}
	return 0, nil
}

// Close implements Caller.
func (c *natsCaller) Close() error {
	if c.own {
		c.conn.Close()
	}
	return nil
}
