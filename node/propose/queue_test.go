package propose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node/outcome"
	gocmp "github.com/google/go-cmp/cmp"
)

// fakeFuture is the future of an entry that a test decides about.
type fakeFuture struct {
	entry []byte
	done  chan struct{}
	did   *Applied
	err   error
}

func (f *fakeFuture) Wait() (*Applied, error) {
	<-f.done
	return f.did, f.err
}

// apply ends the future with one result per command, whose serials count over the whole entry.
func (f *fakeFuture) apply(t *testing.T, index uint64) {
	t.Helper()
	stamp, requests, err := codec.DecodeEntry(f.entry)
	if err != nil {
		t.Fatal(err)
	}
	f.did = &Applied{Term: 3, Index: index, Clock: stamp}
	for _, r := range requests {
		for range r.Commands {
			f.did.Results = append(f.did.Results, fsm.Result{Serial: uint64(len(f.did.Results))})
		}
	}
	close(f.done)
}

// fail ends the future with an error.
func (f *fakeFuture) fail(err error) {
	f.err = err
	close(f.done)
}

// bench is a proposer whose entries come to the test.
type bench struct {
	*Queue
	entries chan *fakeFuture
	stamps  fsm.Time
	refuse  error
	format  fsm.Format // of what is sent

	lateEntries, failed atomic.Int64
}

// result is how a request ended.
type result struct {
	reply Reply
	err   error
}

// withDefaults completes the configuration of a proposer.
func (cfg Config) withDefaults() Config {
	cfg.Shard = 5
	cfg.QueueRequestsMax, cfg.QueueBytesMax = cmp.Or(cfg.QueueRequestsMax, 16<<10), cmp.Or(cfg.QueueBytesMax, 32<<20)
	cfg.EntryBytesMax, cfg.EntriesInFlight = cmp.Or(cfg.EntryBytesMax, 512<<10), cmp.Or(cfg.EntriesInFlight, 2)
	cfg.ProposeTimeout = cmp.Or(cfg.ProposeTimeout, 10*time.Second)
	return cfg
}

// startProposer runs a proposer until the end of the test. What is in flight then must have been
// ended by the test.
func startProposer(t *testing.T, cfg Config) *bench {
	t.Helper()
	b := &bench{entries: make(chan *fakeFuture, 100), format: fsm.FirstFormat}
	cfg = cfg.withDefaults()
	cfg.Stamp = func() fsm.Time { b.stamps++; return b.stamps }
	cfg.Applied = func([]*Proposal, *Applied) {}
	cfg.AnsweredLate = func() { b.lateEntries.Add(1) }
	cfg.Failed = func(_ error, requests int) { b.failed.Add(int64(requests)) }
	if cfg.Fatal == nil {
		cfg.Fatal = func(err error) { t.Errorf("the proposer gave up: %v", err) }
	}
	b.Queue = New(cfg)
	b.Open()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Run(ctx, func(entry []byte) (Future, error) {
			if b.refuse != nil {
				return nil, b.refuse
			}
			f := &fakeFuture{entry: append([]byte(nil), entry...), done: make(chan struct{})}
			b.entries <- f
			return f, nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		b.Close(outcome.ErrNoLeader)
		<-ended
	})
	return b
}

// send queues a request of a number of commands and returns where its answer will be.
func (b *bench) send(t *testing.T, commands int) (*Proposal, chan result) {
	t.Helper()
	req := &fsm.Request{}
	for range commands {
		req.Commands = append(req.Commands, &fsm.Lead{})
	}
	answers := make(chan result, 1)
	pr := &Proposal{
		Request: req, Encoded: codec.AppendRequest(nil, req), Format: b.format,
		Complete: func(reply Reply, err error) { answers <- result{reply, err} },
	}
	if err := b.Enqueue(pr); err != nil {
		answers <- result{err: err}
	}
	return pr, answers
}

// next returns the next entry that was handed to Raft.
func (b *bench) next(t *testing.T) *fakeFuture {
	t.Helper()
	synctest.Wait()
	select {
	case f := <-b.entries:
		return f
	default:
		t.Fatal("no entry was proposed")
		return nil
	}
}

// none fails the test if an entry was handed to Raft.
func (b *bench) none(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if len(b.entries) > 0 {
		t.Fatal("an entry was proposed")
	}
}

func TestProposerCoalescesWhatGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProposer(t, Config{EntriesInFlight: 1})
		_, first := b.send(t, 1)
		inFlight := b.next(t)
		var waiting []chan result
		for commands := range 4 {
			_, a := b.send(t, commands)
			waiting = append(waiting, a)
		}
		b.none(t)
		inFlight.apply(t, 10)
		if a := <-first; a.err != nil || a.reply.Witness != (Witness{Shard: 5, Term: 3, Index: 10, Entry: 0, Time: 1}) {
			t.Errorf("the first was answered %+v, %v", a.reply, a.err)
		}
		b.next(t).apply(t, 11)
		entry := uint32(0)
		for commands, answers := range waiting {
			a := <-answers
			want := Witness{Shard: 5, Term: 3, Index: 11, Entry: entry, Time: 2}
			if a.err != nil || a.reply.Witness != want || len(a.reply.Results) != commands {
				t.Errorf("request %d was answered %+v, %v", commands, a.reply, a.err)
			}
			for i, r := range a.reply.Results {
				if r.Serial != uint64(entry)+uint64(i) {
					t.Errorf("request %d got result %d as its number %d", commands, r.Serial, i)
				}
			}
			entry += uint32(commands)
		}
		if c := b.Stats(); c.Entries != 2 || c.Commands != 7 || c.Requests != 5 {
			t.Errorf("counted %d entries, %d commands, %d requests", c.Entries, c.Commands, c.Requests)
		}
	})
}

func TestProposerKeepsEntriesInFlight(t *testing.T) {
	for _, inFlight := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(inFlight), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startProposer(t, Config{EntriesInFlight: inFlight, EntryBytesMax: 1}) // each request fills one
				var futures []*fakeFuture
				for range inFlight {
					b.send(t, 1)
					futures = append(futures, b.next(t))
				}
				b.send(t, 1)
				b.none(t)
				for i, f := range futures {
					f.apply(t, uint64(i))
				}
				b.next(t).apply(t, 9)
			})
		})
	}
}

func TestProposerCapsEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProposer(t, Config{EntriesInFlight: 1, EntryBytesMax: 150})
		b.send(t, 1)
		first := b.next(t)
		for range 3 {
			b.send(t, 20)
		}
		b.send(t, 500) // more than an entry may be, but alone it is let through
		first.apply(t, 1)
		var sizes []int
		for i := range uint64(3) {
			f := b.next(t)
			_, requests, err := codec.DecodeEntry(f.entry)
			if err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, len(requests))
			f.apply(t, i+2)
		}
		b.none(t)
		if diff := gocmp.Diff([]int{2, 1, 1}, sizes); diff != "" {
			t.Errorf("requests in the entries (-want +got):\n%s", diff)
		}
	})
}

func TestProposerIsBounded(t *testing.T) {
	tests := []struct {
		name     string
		cfg      Config
		commands int // of each request
		fit      int // requests
	}{
		{"in requests", Config{QueueRequestsMax: 3}, 1, 3},
		{"in bytes", Config{QueueBytesMax: 150}, 20, 2},
		{"but takes one of any size", Config{QueueBytesMax: 10}, 20, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.cfg.EntriesInFlight = 1
				b := startProposer(t, tt.cfg)
				b.send(t, 1)
				first := b.next(t)
				fit := 0
				for range 10 {
					_, answers := b.send(t, tt.commands)
					select {
					case a := <-answers:
						if !errors.Is(a.err, outcome.ErrOverloaded) {
							t.Errorf("refused with %v", a.err)
						}
					default:
						fit++
					}
				}
				if fit != tt.fit {
					t.Errorf("%d requests fit, want %d", fit, tt.fit)
				}
				first.apply(t, 1)
				b.next(t).apply(t, 2)
				if requests, bytes := b.Waiting(); requests != 0 || bytes != 0 {
					t.Errorf("%d requests of %d bytes seem to wait", requests, bytes)
				}
				b.send(t, tt.commands)
				b.next(t).apply(t, 3)
			})
		})
	}
}

func TestProposerRefusesWhatNoEntryCanHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProposer(t, Config{})
		err := b.Enqueue(&Proposal{Encoded: make([]byte, RequestBytesMax+1)})
		if !errors.Is(err, outcome.ErrTooLarge) {
			t.Errorf("error is %v, want ErrTooLarge", err)
		}
	})
}

func TestProposerGivesUpWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProposer(t, Config{EntriesInFlight: 1, ProposeTimeout: 10 * time.Second})
		_, logged := b.send(t, 1)
		stuck := b.next(t)
		time.Sleep(5 * time.Second)
		_, queued := b.send(t, 1)
		start := time.Now()
		if a := <-logged; outcome.Of(a.err) != outcome.Unknown || time.Since(start) != 5*time.Second {
			t.Errorf("after %v what was logged ended with %v", time.Since(start), a.err)
		}
		if a := <-queued; !errors.Is(a.err, outcome.ErrOverloaded) || time.Since(start) != 10*time.Second+giveUpMargin {
			t.Errorf("after %v what was queued ended with %v", time.Since(start), a.err)
		}
		stuck.apply(t, 1) // too late; and the slot is free again
		b.send(t, 1)
		b.next(t).apply(t, 2)
		synctest.Wait()
		if late := b.lateEntries.Load(); late != 1 {
			t.Errorf("%d entries were applied late, want 1", late)
		}
		if failed, applied := b.failed.Load(), b.Stats().Requests; failed != 1 || applied != 1 {
			t.Errorf("counted %d failed and %d applied", failed, applied)
		}
	})
}

func TestProposerAnswersFailures(t *testing.T) {
	tests := []struct {
		name    string
		end     func(*testing.T, *fakeFuture)
		outcome outcome.Outcome
	}{
		{"refused", func(_ *testing.T, f *fakeFuture) { f.fail(outcome.ErrNotLeader) }, outcome.NotApplied},
		{"lost", func(_ *testing.T, f *fakeFuture) { f.fail(outcome.ErrUnknownOutcome) }, outcome.Unknown},
		{"for a reason that is not known", func(_ *testing.T, f *fakeFuture) { f.fail(errors.New("damaged")) },
			outcome.Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startProposer(t, Config{})
				_, answers := b.send(t, 2)
				tt.end(t, b.next(t))
				if a := <-answers; a.err == nil || outcome.Of(a.err) != tt.outcome {
					t.Errorf("ended with %v, outcome %v, want %v", a.err, outcome.Of(a.err), tt.outcome)
				}
			})
		})
	}
}

func TestProposerWithoutLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProposer(t, Config{})
		b.refuse = outcome.ErrNoLeader
		_, answers := b.send(t, 1)
		if a := <-answers; !errors.Is(a.err, outcome.ErrNoLeader) {
			t.Errorf("ended with %v", a.err)
		}
	})
}

func TestProposerIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProposer(t, Config{EntriesInFlight: 1})
		_, logged := b.send(t, 1)
		f := b.next(t)
		_, queued := b.send(t, 1)
		b.Close(outcome.ErrShuttingDown)
		if a := <-queued; !errors.Is(a.err, outcome.ErrShuttingDown) {
			t.Errorf("what was queued ended with %v", a.err)
		}
		if _, late := b.send(t, 1); !errors.Is((<-late).err, outcome.ErrShuttingDown) {
			t.Error("a closed proposer took a request")
		}
		f.apply(t, 1)
		if a := <-logged; a.err != nil {
			t.Errorf("what was in flight ended with %v", a.err)
		}
	})
}

func TestProposalIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startProposer(t, Config{EntriesInFlight: 1})
		taken, _ := b.send(t, 1)
		f := b.next(t)
		var queue []*Proposal
		for range 4 {
			pr, _ := b.send(t, 1)
			queue = append(queue, pr)
		}
		for i, want := range []bool{true, false, false, true} { // the last, then the first
			pr := queue[3]
			if i == 1 {
				pr = taken
			}
			if i == 3 {
				pr = queue[0]
			}
			if got := b.Withdraw(pr); got != want {
				t.Errorf("step %d: withdrawn %v, want %v", i, got, want)
			}
		}
		f.apply(t, 1)
		next := b.next(t)
		if _, requests, err := codec.DecodeEntry(next.entry); err != nil || len(requests) != 2 {
			t.Errorf("the next entry has %d requests, %v, want 2", len(requests), err)
		}
		next.apply(t, 2)
		b.none(t)
	})
}

func TestProposerNoticesWrongResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gaveUp := make(chan error, 1)
		b := startProposer(t, Config{Fatal: func(err error) { gaveUp <- err }})
		_, answers := b.send(t, 2)
		f := b.next(t)
		f.did = &Applied{Results: make([]fsm.Result, 1)}
		close(f.done)
		if err := <-gaveUp; err == nil {
			t.Error("one result for two commands was accepted")
		}
		if a := <-answers; outcome.Of(a.err) != outcome.Unknown {
			t.Errorf("ended with %v, want an unknown outcome", a.err)
		}
	})
}

// A request of a few bytes may ask for a lot of work, and the machine is locked during all of an
// entry.
func TestProposerCapsTheWorkOfEntries(t *testing.T) {
	tests := []struct {
		name    string
		command fsm.Command
		times   int   // in each request
		want    []int // requests in each entry
	}{
		{"puts", &fsm.Put{}, 16, []int{64}},
		{"small reserves", &fsm.Reserve{}, 1000, []int{32, 32}},
		{"large reserves", &fsm.Reserve{Max: 1000}, 1, []int{32, 32}},
		{"larger than an entry", &fsm.Reserve{Max: 1000}, 50, slices.Repeat([]int{1}, 64)},
		{"purges", &fsm.Purge{Max: 1}, 1, slices.Repeat([]int{8}, 8)},
		{"redrives", &fsm.Redrive{}, 2, slices.Repeat([]int{4}, 16)},
		{"deletions", &fsm.DeleteQueue{}, 3, slices.Repeat([]int{2}, 32)},
		{"expiry", &fsm.Expire{}, 8, slices.Repeat([]int{1}, 64)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startProposer(t, Config{EntriesInFlight: 1, EntryBytesMax: 1 << 20})
				b.send(t, 1)
				last := b.next(t)
				req := &fsm.Request{Commands: slices.Repeat([]fsm.Command{tt.command}, tt.times)}
				for range 64 {
					pr := &Proposal{Request: req, Encoded: codec.AppendRequest(nil, req), Format: b.format,
						Complete: func(Reply, error) {}}
					if err := b.Enqueue(pr); err != nil {
						t.Fatal(err)
					}
				}
				var got []int
				for index := uint64(2); ; index++ {
					last.apply(t, index)
					synctest.Wait()
					if len(b.entries) == 0 {
						break
					}
					last = <-b.entries
					_, requests, err := codec.DecodeEntry(last.entry)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, len(requests))
				}
				if diff := gocmp.Diff(tt.want, got); diff != "" {
					t.Errorf("requests in each entry (-want +got):\n%s", diff)
				}
			})
		})
	}
}
