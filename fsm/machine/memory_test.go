package machine_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/store"
)

// filling is a load that a machine is filled with.
type filling struct {
	queues, body, id int
	span             time.Duration
}

// put returns the nth put of a load.
func (f filling) put(rng *rand.Rand, n int) *fsm.Put {
	c := &fsm.Put{
		Queue: fmt.Sprint("orders", n%max(1, f.queues)), Partitions: 1, Given: fsm.GivenDelay, Body: make([]byte, f.body),
	}
	c.Delay = time.Duration(rng.Int64N(int64(max(1, f.span))))
	if f.id > 0 {
		c.ID = fmt.Sprintf("job-%0*x", f.id-4, n)
	}
	return c
}

// fill puts jobs of a load, in entries of at most 500.
func (d *driver) fill(t *testing.T, f filling, from, to int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	each := max(1, min(500, 256<<10/(f.body+1)))
	for n := from; n < to; n += each {
		commands := make([]fsm.Command, min(each, to-n))
		for i := range commands {
			commands[i] = f.put(rng, n+i)
		}
		d.now += fsm.Time(time.Millisecond)
		for _, r := range d.apply(t,
			codec.AppendEntry(nil, d.now, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: commands})})) {
			if r.Code != fsm.OK {
				t.Fatalf("a put ended with %v", r.Code)
			}
		}
	}
}

// drain reserves and acks up to most jobs of one queue, later than all are due.
func (d *driver) drain(t *testing.T, most int, span time.Duration) (acked int) {
	t.Helper()
	d.now += fsm.Time(span)
	for acked < most {
		reserve := codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{
			Queues: []string{"orders0"}, Max: 500,
		}}})
		grants := d.apply(t, codec.AppendEntry(nil, d.now, [][]byte{reserve}))[0].Grants
		if len(grants) == 0 {
			return acked
		}
		acks := make([]fsm.Command, len(grants))
		for i, g := range grants {
			acks[i] = &fsm.Ack{Ref: fsm.Ref{Queue: g.Queue, Serial: g.Serial, Fence: g.Fence}}
		}
		d.now += fsm.Time(time.Millisecond)
		d.apply(t, codec.AppendEntry(nil, d.now, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: acks})}))
		acked += len(acks)
	}
	return acked
}

// TestMemoryIsWhatTheHeapHolds: the account agrees with the heap, for small jobs and large ones, in
// one queue and in many, full and drained, and with a snapshot open.
func TestMemoryIsWhatTheHeapHolds(t *testing.T) {
	for name, f := range map[string]filling{
		"small":  {queues: 1, body: 10, span: time.Hour},
		"usual":  {queues: 1, body: 200, id: 20, span: time.Hour},
		"large":  {queues: 1, body: 5000, id: 36, span: time.Minute},
		"own":    {queues: 3, body: 40 << 10, span: time.Minute},
		"queues": {queues: 5000, body: 20, span: time.Hour},
		"full":   {queues: 30_000, body: 20, span: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			jobs := min(60_000, 40<<20/(f.body+200))
			before := heapBytes()
			d := newDriver()
			check := func(when string) {
				t.Helper()
				held := int64(d.m.Memory().Held)
				if heap := int64(heapBytes() - before); held < heap*93/100-1<<20 || held > heap*110/100+1<<20 {
					t.Errorf("%s: the account is %d KiB, the heap has %d KiB", when, held>>10, heap>>10)
				}
			}
			d.fill(t, f, 0, jobs)
			check("full")
			s := d.m.Snapshot()
			d.fill(t, f, jobs, jobs*5/4)
			if f.queues == 1 {
				d.drain(t, jobs/2, 2*time.Hour)
			}
			check("with a snapshot")
			d.m.Release(s)
			runtime.KeepAlive(s)
			check("with the snapshot released")
			if f.queues == 1 {
				d.drain(t, jobs*2, 2*time.Hour)
				check("drained")
			}
			runtime.KeepAlive(d)
		})
	}
}

// TestJobMemory: what a plan counts on is what many jobs take.
func TestJobMemory(t *testing.T) {
	for _, f := range []filling{
		{
			queues: 1, body: 10, span: time.Hour,
		}, {queues: 1, body: 200, span: time.Hour}, {queues: 1, body: 200, id: 36, span: 24 * time.Hour},
		{queues: 6, body: 1000, id: 20, span: time.Hour}, {queues: 1, body: 50_000, id: 20, span: time.Hour},
	} {
		d, jobs := newDriver(), min(40_000, 40<<20/(f.body+200))
		before := d.m.Memory()
		d.fill(t, f, 0, jobs)
		now, want := d.m.Memory(), store.JobMemory(f.body, f.id)
		for name, each := range map[string][2]uint64{
			"held":      {(now.Held - before.Held) / uint64(jobs), want.Held},
			"promised":  {now.Promised / uint64(jobs), want.Promised},
			"shareable": {(now.CopyOnWrite - before.CopyOnWrite) / uint64(jobs), want.CopyOnWrite},
		} {
			// the last page of each kind is not full
			if each[0] < each[1]*93/100 || each[0] > each[1]*107/100+uint64(64<<10/jobs) {
				t.Errorf("%+v: a job takes %d bytes %s, the plan says %d", f, each[0], name, each[1])
			}
		}
	}
}

// TestDeletedQueuesLeaveTheAccount: what the orders of a queue had room for is not counted when the
// queue is gone.
func TestDeletedQueuesLeaveTheAccount(t *testing.T) {
	d := newDriver()
	cycle := func(n int) {
		t.Helper()
		queue := fmt.Sprint("q", n)
		request := codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{
			&fsm.Put{
				Queue: queue, Partitions: 1, ID: "a",
			}, &fsm.Put{Queue: queue, Partitions: 1, Given: fsm.GivenDelay, Delay: time.Hour},
			&fsm.Reserve{Queues: []string{queue}, Max: 1}, &fsm.DeleteQueue{Queue: queue},
		}})
		d.now += fsm.Time(time.Millisecond)
		if results := d.apply(t, codec.AppendEntry(nil, d.now, [][]byte{request})); results[3].Count != 2 {
			t.Fatalf("the delete ended with %+v", results[3])
		}
	}
	cycle(0)
	before := d.m.Memory().Held
	for n := range 10_000 {
		cycle(1 + n)
	}
	if after := d.m.Memory().Held; after != before {
		t.Errorf("the account was %d bytes before, and is %d after", before, after)
	}
}
