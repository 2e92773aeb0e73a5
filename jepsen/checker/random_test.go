package checker

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// crowd is clients that do all sorts of things at random.
type crowd struct {
	*lab
	queues []string
	leases []*belfryv1.Job
	old    []string // leases that are over
	ids    int
	sent   []*belfryv1.PutRequest
	asked  []*belfryv1.ReserveRequest
	// settings says that queues are altered, purged and deleted as well.
	settings bool
	version  uint64
}

func newCrowd(t testing.TB, shards int, seed uint64) *crowd {
	return &crowd{lab: newLab(t, shards, seed), queues: []string{"orders", "mail/out", "a", "b", "c"}}
}

func (c *crowd) queue() string { return c.queues[c.rng.IntN(len(c.queues))] }

func (c *crowd) one(n int) bool { return c.rng.IntN(n) == 0 }

// fate is mostly a good one.
func (c *crowd) chance() fate {
	switch c.rng.IntN(20) {
	case 0:
		return unheard
	case 1:
		return lost
	case 2:
		return refused
	default:
		return answered
	}
}

func (c *crowd) newPut() *belfryv1.PutRequest {
	c.ids++
	req := &belfryv1.PutRequest{Queue: c.queue(), Body: &belfryv1.PutRequest_Text{Text: fmt.Sprintf("body %d", c.ids)}}
	if !c.one(3) {
		req.Id = fmt.Sprintf("job-%d", c.ids)
	}
	if !c.one(3) {
		req.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Duration(c.rng.IntN(3000)) * time.Millisecond)}
	}
	if c.one(2) {
		req.RequestId = fmt.Sprintf("r%d", c.ids)
	}
	if c.one(3) {
		p := int64(c.rng.IntN(3) - 1)
		req.Priority = &p
	}
	if c.one(4) {
		req.Ttr = durationpb.New(time.Duration(50+c.rng.IntN(500)) * time.Millisecond)
	}
	if c.one(4) {
		n := uint32(1 + c.rng.IntN(3))
		req.MaxAttempts = &n
	}
	if c.one(5) {
		req.RetryDelays = []*durationpb.Duration{durationpb.New(0), durationpb.New(100 * time.Millisecond)}
	}
	if c.one(10) {
		req.Ttl = durationpb.New(time.Duration(1+c.rng.IntN(4000)) * time.Millisecond)
	}
	if c.one(5) {
		req.Headers = map[string]string{"k": "v", "n": fmt.Sprint(c.ids)}
	}
	return req
}

// take takes a random lease that a client holds.
func (c *crowd) take() string {
	if len(c.leases) == 0 || len(c.old) > 0 && c.one(20) {
		if len(c.old) == 0 {
			return ""
		}
		return c.old[c.rng.IntN(len(c.old))]
	}
	i := c.rng.IntN(len(c.leases))
	token := c.leases[i].GetLease()
	if !c.one(20) {
		c.leases[i] = c.leases[len(c.leases)-1]
		c.leases = c.leases[:len(c.leases)-1]
		c.old = append(c.old, token)
	}
	return token
}

// act sends one call at random.
func (c *crowd) act() {
	switch c.rng.IntN(16) {
	case 0, 1, 2, 3:
		req := c.newPut()
		c.sent = append(c.sent, req)
		c.put(req, c.chance())
	case 4: // a repeat
		if len(c.sent) > 0 {
			if req := c.sent[c.rng.IntN(len(c.sent))]; req.GetRequestId() != "" || req.GetId() != "" {
				c.put(req, c.chance())
			}
		}
	case 5:
		batch := &belfryv1.PutBatchRequest{RequestId: fmt.Sprintf("b%d", c.ids)}
		first := c.newPut()
		for range 1 + c.rng.IntN(5) {
			one := c.newPut()
			one.Queue, one.RequestId = first.GetQueue(), ""
			batch.Jobs = append(batch.Jobs, one)
		}
		c.putBatch(batch, c.chance())
	case 6, 7, 8, 9:
		c.ids++
		req := &belfryv1.ReserveRequest{Queues: []string{c.queue()}, MaxJobs: uint32(c.rng.IntN(5)),
			Wait: durationpb.New(time.Second)}
		if c.one(2) {
			req.RequestId = fmt.Sprintf("v%d", c.ids)
		}
		if c.one(3) {
			req.Ttr = durationpb.New(time.Duration(20+c.rng.IntN(2000)) * time.Millisecond)
		}
		if c.one(10) && len(c.asked) > 0 {
			req = c.asked[c.rng.IntN(len(c.asked))]
		}
		if req.GetRequestId() != "" {
			c.asked = append(c.asked, req)
		}
		c.reserve(req, c.chance(), func(j *belfryv1.Job) { c.leases = append(c.leases, j) })
	default:
		c.actOnJob()
	}
}

func (c *crowd) actOnJob() {
	token := c.take()
	if token == "" {
		return
	}
	c.ids++
	ref, _ := wire.ParseLease(token)
	switch c.rng.IntN(12) {
	case 0, 1, 2, 3:
		c.ack(&belfryv1.AckRequest{Lease: token}, c.chance())
	case 4:
		c.ackBatch(&belfryv1.AckBatchRequest{Leases: []string{token}, RequestId: fmt.Sprintf("ab%d", c.ids)}, c.chance())
	case 5:
		c.nack(&belfryv1.NackRequest{Lease: token, Error: "no", RequestId: fmt.Sprintf("n%d", c.ids)}, c.chance())
	case 6:
		c.nack(&belfryv1.NackRequest{Lease: token, Error: "no", Delay: durationpb.New(50 * time.Millisecond)}, c.chance())
	case 7:
		c.release(&belfryv1.ReleaseRequest{Lease: token,
			Delay: durationpb.New(time.Duration(c.rng.IntN(2)) * 30 * time.Millisecond)}, c.chance())
	case 8:
		c.extend(&belfryv1.ExtendRequest{Lease: token,
			Ttr: durationpb.New(time.Duration(c.rng.IntN(2)) * 300 * time.Millisecond)}, c.chance())
	case 9:
		c.cancel(&belfryv1.CancelRequest{Queue: ref.Queue, Id: fsm.FormatID(ref.Partition, ref.Serial), Force: c.one(2)},
			c.chance())
	case 10:
		if len(c.sent) > 0 {
			one := c.sent[c.rng.IntN(len(c.sent))]
			c.cancel(&belfryv1.CancelRequest{Queue: one.GetQueue(), Id: one.GetId() + "x"[:c.rng.IntN(2)]}, c.chance())
			c.reschedule(one.GetQueue(), one.GetId(), time.Second, c.chance())
		}
	default:
		c.redrive(&belfryv1.RedriveRequest{Queue: ref.Queue, Max: 3}, c.chance())
	}
}

// bustle has the crowd make about n calls.
func (c *crowd) bustle(n int) {
	for c.history.Len() < n {
		for range 1 + c.rng.IntN(8) {
			c.act()
		}
		c.commit()
		c.wait(time.Duration(c.rng.IntN(100)) * time.Millisecond)
		switch c.rng.IntN(30) {
		case 5:
			if c.settings {
				c.alter(c.queue())
			}
		case 6:
			if c.settings {
				c.clean(c.queue())
			}
		case 0:
			c.elect(c.shards[c.rng.IntN(len(c.shards))])
		case 1:
			c.expire(c.shards[c.rng.IntN(len(c.shards))])
		case 2:
			c.getQueue(c.queue())
		case 3:
			c.list(c.queue())
		case 4:
			if len(c.sent) > 0 {
				one := c.sent[c.rng.IntN(len(c.sent))]
				if one.GetId() != "" {
					c.get(one.GetQueue(), one.GetId())
				}
			}
		}
	}
}

// alter changes the settings of a queue, now and then with an outage before it.
func (c *crowd) alter(queue string) {
	c.version++
	s := fsm.Settings{}
	switch c.rng.IntN(8) {
	case 0:
		s.MaxJobs, s.MaxBytes = uint64(1+c.rng.IntN(50)), uint64(100+c.rng.IntN(1000))
	case 1:
		s.PutsPerSecond = uint64(1 + c.rng.IntN(5))
	case 2:
		s.MaxInFlight = uint64(1 + c.rng.IntN(5))
	case 3:
		s.RetryDelays, s.MaxAttempts, s.MaxAttemptsSet = []time.Duration{0, time.Second}, uint32(c.rng.IntN(3)), true
	case 4:
		s.Overdue, s.OverduePeriod, s.OverdueAfter = fsm.OverduePolicy(c.rng.IntN(3)), time.Second, 100*time.Millisecond
	case 5:
		s.ExpireToDead, s.TTR = true, 200*time.Millisecond
	case 6:
		s.Paused, s.PausedUntil = true, fsm.Time(c.rng.IntN(2))*c.stamp().Add(time.Second)
	default:
		s.DedupWindow, s.DedupWindowSet = time.Duration(c.rng.IntN(3))*time.Second, true
	}
	c.configure(queue, c.version, s)
	// What the catalog had logged is in the history as a call, of which the model of the sample only
	// takes note that it was made.
	attempts := uint32(1)
	c.history.Add(&history.Op{
		Client: "admin", Node: "n1", Invoked: c.now, Returned: c.now, Outcome: belfryv1.Outcome_OUTCOME_APPLIED,
		Request:  &belfryv1.UpdateQueueRequest{Queue: queue, Settings: &belfryv1.QueueSettings{MaxAttempts: &attempts}},
		Response: &belfryv1.UpdateQueueResponse{},
	})
	if c.one(3) {
		c.wait(2 * time.Second)
		c.elect(c.shardOf(queue))
	}
}

// clean removes jobs.
func (c *crowd) clean(queue string) {
	if c.one(3) {
		c.deleteQueue(queue, c.chance())
	} else {
		c.purge(&belfryv1.PurgeQueueRequest{Queue: queue, Max: uint32(c.rng.IntN(20))}, c.chance())
	}
	c.commit()
}

// complain fails a test with what a verdict says.
func complain(t *testing.T, v *Verdict) {
	t.Helper()
	for _, x := range v.Violations {
		t.Errorf("%s at %.3fs: %s", x.Invariant, x.At, x.Text)
	}
}

// TestLegal checks runs in which everything went right, half of them with queues that change.
func TestLegal(t *testing.T) {
	for seed := range uint64(10) {
		c := newCrowd(t, 1+int(seed%3), seed)
		c.settings = seed%2 == 1
		c.bustle(3000)
		v := Check(c.run())
		complain(t, &v)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		if seed == 0 {
			for _, one := range v.Checks {
				t.Logf("%-9s %8d %s", one.Invariant, one.Looked, one.Title)
			}
			t.Log(v.Counts)
		}
	}
}
