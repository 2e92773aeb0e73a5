package checker

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/journal"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// lab is a cluster that is none: a machine a shard, true time that only the test moves, and what
// clients would have been told. Each queue is in one shard.
type lab struct {
	t       testing.TB
	history *history.History
	rng     *rand.Rand
	now     time.Duration
	shards  []*labShard
	// pending are calls that were sent and are carried out with the next entry of their shard.
	pending []*call
	clients int
	format  fsm.Format // of the entries
}

type labShard struct {
	number  uint32
	machine *machine.Machine
	term    uint64
	index   uint64
	entries []journal.Entry
}

// call is a call under way.
type call struct {
	op    *history.Op
	shard *labShard
	// request is what is logged of it; answer makes the response of what that gave.
	request *fsm.Request
	answer  func(results []fsm.Result, w *belfryv1.Witness) proto.Message
	// fate says what its client hears.
	fate fate
	done func(resp proto.Message)
}

// fate is what a client hears of a call.
type fate int

const (
	answered fate = iota
	unheard       // carried out, and the client does not hear of it
	lost          // not carried out, and the client does not know
	refused       // not carried out, as the client hears
)

func newLab(t testing.TB, shards int, seed uint64) *lab {
	h := history.New()
	h.Start = time.Unix(1_800_000_000, 123_456_789)
	l := &lab{t: t, history: h, rng: rand.New(rand.NewPCG(seed, 1)), now: time.Second, format: fsm.FirstFormat}
	if seed%2 == 0 {
		l.format = fsm.LatestFormat
	}
	for i := range shards {
		s := &labShard{number: uint32(i), machine: machine.New(fsm.Config{Seed: 7}), index: 1}
		l.shards = append(l.shards, s)
		l.elect(s)
	}
	return l
}

// stamp is the true time as a leader stamps it.
func (l *lab) stamp() fsm.Time { return fsm.Time(l.history.Start.UnixNano()).Add(l.now) }

// wait lets time pass.
func (l *lab) wait(d time.Duration) { l.now += d }

// elect begins a term.
func (l *lab) elect(s *labShard) {
	s.term++
	s.index += 2 // what Raft logs by itself
	l.log(s, []*fsm.Request{{Commands: []fsm.Command{&fsm.Lead{Grace: 500 * time.Millisecond}}}})
}

// expire has the leader of a shard do what is overdue.
func (l *lab) expire(s *labShard) {
	l.log(s, []*fsm.Request{{Commands: []fsm.Command{&fsm.Expire{}}}})
}

// log commits one entry.
func (l *lab) log(s *labShard, requests []*fsm.Request) []fsm.Result {
	var encoded [][]byte
	for _, r := range requests {
		encoded = append(encoded, codec.AppendRequestIn(nil, l.format, r))
	}
	s.index++
	entry := codec.AppendEntryIn(nil, l.format, l.stamp(), encoded)
	results, err := s.machine.Apply(s.index, entry)
	if err != nil {
		l.t.Fatal(err)
	}
	s.entries = append(s.entries, journal.Entry{
		AppliedEntry: node.AppliedEntry{Shard: s.number, Term: s.term, Index: s.index, Entry: entry,
			Digest: s.machine.Digest()}, At: l.stamp().Add(time.Millisecond),
	})
	l.now += time.Millisecond
	return results
}

// shardOf is where a queue is.
func (l *lab) shardOf(queue string) *labShard {
	return l.shards[int(crc32.ChecksumIEEE([]byte(queue)))%len(l.shards)]
}

// send sends a call; commit carries it out.
func (l *lab) send(c *call, req proto.Message) *call {
	l.clients++
	l.now += time.Duration(l.rng.IntN(1000)) * time.Microsecond
	c.op = &history.Op{Client: fmt.Sprintf("c%d", l.clients), Node: "n1", Workload: "lab", Invoked: l.now, Request: req}
	l.pending = append(l.pending, c)
	return c
}

// commit carries out what was sent: one entry a shard.
func (l *lab) commit() {
	l.now += 2 * time.Millisecond
	for _, s := range l.shards {
		var batch []*call
		var requests []*fsm.Request
		for _, c := range l.pending {
			if c.shard != s {
				continue
			}
			if c.fate == lost || c.fate == refused {
				l.finish(c, nil)
				continue
			}
			batch, requests = append(batch, c), append(requests, c.request)
		}
		if len(batch) == 0 {
			continue
		}
		results := l.log(s, requests)
		at := 0
		for _, c := range batch {
			n := len(c.request.Commands)
			w := &belfryv1.Witness{Shard: s.number, Term: s.term, Index: s.index, Entry: uint32(at),
				Time: exact(s.machine.Clock())}
			l.conclude(c, results[at:at+n], w)
			at += n
		}
	}
	l.pending = nil
	l.now += 2 * time.Millisecond
}

// conclude ends a call that was carried out.
func (l *lab) conclude(c *call, results []fsm.Result, w *belfryv1.Witness) {
	if c.fate == unheard {
		l.finish(c, nil)
		return
	}
	if len(results) == 1 && results[0].Code != fsm.OK && !isBatch(c.op.Request) {
		c.op.Witness, c.op.Reason, c.op.Outcome = w, wire.ReasonOf(results[0].Code), belfryv1.Outcome_OUTCOME_NOT_APPLIED
		if results[0].Code == fsm.RequestExpired {
			c.op.Outcome = belfryv1.Outcome_OUTCOME_UNKNOWN
		}
		l.end(c)
		return
	}
	l.finish(c, c.answer(results, w))
}

func isBatch(m proto.Message) bool {
	name := string(m.ProtoReflect().Descriptor().Name())
	return strings.Contains(name, "Batch")
}

// finish ends a call as its fate says.
func (l *lab) finish(c *call, resp proto.Message) {
	switch c.fate {
	case answered:
		c.op.Response, c.op.Outcome = resp, belfryv1.Outcome_OUTCOME_APPLIED
	case unheard, lost:
		c.op.Outcome, c.op.Reason = belfryv1.Outcome_OUTCOME_UNKNOWN, belfryv1.Reason_REASON_UNKNOWN_OUTCOME
	case refused:
		c.op.Outcome, c.op.Reason = belfryv1.Outcome_OUTCOME_NOT_APPLIED, belfryv1.Reason_REASON_OVERLOADED
	}
	l.end(c)
	if resp != nil && c.done != nil {
		c.done(resp)
	}
}

func (l *lab) end(c *call) {
	l.now += time.Duration(l.rng.IntN(300)) * time.Microsecond
	c.op.Returned = l.now
	l.history.Add(c.op)
}

// read asks a shard without the log.
func (l *lab) read(queue string, req proto.Message,
	answer func(m *machine.Machine, w *belfryv1.Witness) proto.Message) proto.Message {
	s := l.shardOf(queue)
	op := &history.Op{Client: "reader", Node: "n2", Workload: "lab", Invoked: l.now, Request: req}
	l.now += time.Millisecond
	w := &belfryv1.Witness{Shard: s.number, Term: s.term, Index: s.machine.Index(), Time: exact(s.machine.Clock())}
	op.Response = answer(s.machine, w)
	if op.Response == nil {
		op.Outcome, op.Reason = belfryv1.Outcome_OUTCOME_NOT_APPLIED, belfryv1.Reason_REASON_JOB_NOT_FOUND
	} else {
		op.Outcome = belfryv1.Outcome_OUTCOME_APPLIED
	}
	l.now += time.Millisecond
	op.Returned = l.now
	l.history.Add(op)
	return op.Response
}

// run returns the run as the checker gets it: three nodes, one of which was restarted, and one of
// which was sent a snapshot.
func (l *lab) run() *Run {
	n1, n2, n2again, n3 := Journal{Node: "n1"}, Journal{Node: "n2"}, Journal{Node: "n2"}, Journal{Node: "n3"}
	for _, s := range l.shards {
		third := len(s.entries) / 3
		n1.Entries = append(n1.Entries, s.entries...)
		n2.Entries = append(n2.Entries, s.entries[:2*third]...)
		n2again.Entries = append(n2again.Entries, s.entries[third:]...)
		n3.Entries = append(append(n3.Entries, s.entries[:third/2]...), s.entries[third:]...)
	}
	for _, j := range []*Journal{&n1, &n2, &n2again, &n3} {
		j.Entries = slices.Clone(j.Entries)
	}
	return &Run{History: l.history, Journals: []Journal{n1, n2, n2again, n3}, ClockBound: 250 * time.Millisecond}
}

func exact(t fsm.Time) *timestamppb.Timestamp { return timestamppb.New(time.Unix(0, int64(t))) }

func ceiled(t fsm.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	return exact(wire.CeilTime(t))
}

func floored(t fsm.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	return exact(wire.FloorTime(t))
}

func formatLease(ref fsm.Ref) string {
	b := []byte{1 /* version */}
	b = binary.AppendUvarint(b, uint64(len(ref.Queue)))
	b = append(b, ref.Queue...)
	for _, v := range [...]uint64{uint64(ref.Partition), ref.Serial, ref.Fence} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return base64.RawURLEncoding.EncodeToString(b)
}

// wireJob is a job as the edge shows it.
func wireJob(j *fsm.Job) *belfryv1.Job {
	out := &belfryv1.Job{
		Queue: j.Queue, Id: j.ID, Fence: j.Fence, Attempt: j.Attempt, DueAt: ceiled(j.Due), FirstDueAt: ceiled(j.FirstDue),
		CreatedAt: floored(j.Created),
		ExpiresAt: floored(j.TTL), State: wire.StateOf(j.State), Priority: j.Priority, Ttr: durationpb.New(j.TTR),
		MaxAttempts: j.MaxAttempts,
		LastError:   j.LastError, BodyBytes: j.BodyBytes, Key: j.Key, Version: max(1, j.Version),
	}
	if j.Next != nil {
		out.Next = &belfryv1.Successor{Version: j.Next.Version, DueAt: ceiled(j.Next.FirstDue)}
	}
	for _, d := range j.RetryDelays {
		out.RetryDelays = append(out.RetryDelays, durationpb.New(d))
	}
	if j.State == fsm.Reserved {
		out.LeaseUntil, out.Client, out.ReservedAt = floored(j.Until), j.Client, floored(j.Leased)
	}
	for _, a := range j.Attempts {
		out.Attempts = append(out.Attempts, &belfryv1.Attempt{
			Number: a.Number, BeganAt: floored(a.Began), EndedAt: floored(a.Ended), Lapsed: a.Lapsed, Client: a.Client,
			Error: a.Error,
		})
	}
	for _, h := range j.Headers {
		if out.Headers == nil {
			out.Headers = map[string]string{}
		}
		out.Headers[h.Name] = h.Value
	}
	if j.Body != nil {
		out.Body = &belfryv1.Job_Data{Data: j.Body}
	}
	return out
}
