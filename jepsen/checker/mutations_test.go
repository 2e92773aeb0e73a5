package checker

import (
	"slices"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/node/journal"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// mutation is a lie that is told in the story, and the check that must find it.
type mutation struct {
	name   string
	claims finding.Invariant
	lie    func(s *story)
}

// job returns the job that a Reserve of the story was handed.
func (s *story) job(name string) *belfryv1.Job {
	return response[*belfryv1.ReserveResponse](s, name).GetJobs()[0]
}

// later moves a time of the wire.
func later(t *timestamppb.Timestamp, d time.Duration) *timestamppb.Timestamp {
	return timestamppb.New(t.AsTime().Add(d))
}

// drop takes a call out of the history.
func (s *story) drop(name string) {
	s.retell(s.ops[name], func(p history.Passage) []history.Passage { return []history.Passage{p} })
}

// retell makes another history: without a call, unless it is nil, and with other passages.
func (s *story) retell(without *history.Op, pass func(history.Passage) []history.Passage) {
	h := history.New()
	h.Start = s.history.Start
	for _, o := range s.history.Ops() {
		if o != without {
			h.Add(o)
		}
	}
	for _, p := range s.history.Passages() {
		for _, other := range pass(p) {
			h.Pass(other)
		}
	}
	s.history = h
	s.ends().History = h
}

// answers gives a call that was refused the answer of one that was not.
func (s *story) answers(name string, resp proto.Message) {
	o := s.ops[name]
	o.Response, o.Outcome, o.Reason, o.Witness = resp, belfryv1.Outcome_OUTCOME_APPLIED,
		belfryv1.Reason_REASON_UNSPECIFIED, nil
}

// refuses gives a call that was answered a refusal.
func (s *story) refuses(name string, reason belfryv1.Reason, w *belfryv1.Witness) {
	o := s.ops[name]
	o.Response, o.Outcome, o.Reason, o.Witness = nil, belfryv1.Outcome_OUTCOME_NOT_APPLIED, reason, w
}

// entryOf finds the entry of a witness in a journal.
func entryOf(j *Journal, w *belfryv1.Witness) *journal.Entry {
	i := slices.IndexFunc(j.Entries, func(e journal.Entry) bool {
		return e.Shard == w.GetShard() && e.Index == w.GetIndex()
	})
	if i < 0 {
		return nil
	}
	return &j.Entries[i]
}

// everywhere changes an entry in all journals that have it.
func (s *story) everywhere(w *belfryv1.Witness, change func(*journal.Entry)) {
	run := s.ends()
	for i := range run.Journals {
		if e := entryOf(&run.Journals[i], w); e != nil {
			change(e)
		}
	}
}

// lose takes an entry out of all journals.
func (s *story) lose(w *belfryv1.Witness) {
	run := s.ends()
	for i := range run.Journals {
		j := &run.Journals[i]
		j.Entries = slices.DeleteFunc(j.Entries, func(e journal.Entry) bool {
			return e.Shard == w.GetShard() && e.Index == w.GetIndex()
		})
	}
}

// forge makes a lease of a job with another fence.
func forge(token string, serial, fence uint64) string {
	ref, _ := wire.ParseLease(token)
	if serial != 0 {
		ref.Serial = serial
	}
	ref.Fence = fence
	return formatLease(ref)
}

// adds has a Reserve hand out one more job.
func (s *story) adds(name string, job *belfryv1.Job) {
	resp := response[*belfryv1.ReserveResponse](s, name)
	job = proto.Clone(job).(*belfryv1.Job)
	w := s.witness(name)
	job.Witness = w
	resp.Jobs, resp.Witnesses = append(resp.Jobs, job), nil
	s.ops[name].Request.(*belfryv1.ReserveRequest).MaxJobs = uint32(len(resp.Jobs))
}

// witness is where a Reserve was carried out.
func (s *story) witness(name string) *belfryv1.Witness {
	resp := response[*belfryv1.ReserveResponse](s, name)
	if len(resp.GetJobs()) > 0 {
		return resp.GetJobs()[0].GetWitness()
	}
	return resp.GetWitnesses()[0]
}

// mutations are all lies.
func mutations() []mutation {
	return slices.Concat(mutatedJournals(), mutatedPuts(), mutatedGrants(), mutatedHolders(), mutatedLeases(),
		mutatedQueues(),
		mutatedTimes(), mutatedGivens(), mutatedScopes(), mutatedTasks(), mutatedPassages(), mutatedKeys(),
		mutatedSchedules())
}

func mutatedJournals() []mutation {
	return []mutation{
		{"an acknowledged entry is in no journal", 28, func(s *story) {
			s.lose(response[*belfryv1.PutResponse](s, "put seen").GetWitness())
		}},
		{"one node applied another entry", 28, func(s *story) {
			e := entryOf(&s.ends().Journals[0], response[*belfryv1.PutResponse](s, "put a").GetWitness())
			e.Entry = codec.AppendEntry(nil, 1, nil)
		}},
		{"one node has another term", 28, func(s *story) {
			entryOf(&s.ends().Journals[0], response[*belfryv1.PutResponse](s, "put seen").GetWitness()).Term++
		}},
		{"entries applied in another order", 28, func(s *story) {
			e := s.ends().Journals[0].Entries
			e[3], e[4] = e[4], e[3]
		}},
		{"an entry applied twice in one life", 28, func(s *story) {
			j := &s.ends().Journals[0]
			j.Entries = slices.Insert(j.Entries, 5, j.Entries[5])
		}},
		{"terms go down", 28, func(s *story) {
			s.everywhere(response[*belfryv1.PutResponse](s, "put given back").GetWitness(), func(e *journal.Entry) {
				e.Term = 0
			})
		}},
		{"an answer names another term", 28, func(s *story) { response[*belfryv1.PutResponse](s, "put a").Witness.Term++ }},
		{"an answer names an entry after the last", 28, func(s *story) {
			response[*belfryv1.PutResponse](s, "put a").Witness.Index += 1000
		}},
		{"one node has another digest", 25, func(s *story) {
			entryOf(&s.ends().Journals[0], response[*belfryv1.PutResponse](s, "put a").GetWitness()).Digest++
		}},
		{"all nodes have another digest", 27, func(s *story) {
			s.everywhere(response[*belfryv1.PutResponse](s, "put a").GetWitness(), func(e *journal.Entry) { e.Digest++ })
		}},
		{"an entry cannot be read", 27, func(s *story) {
			s.everywhere(response[*belfryv1.PutResponse](s, "put seen").GetWitness(), func(e *journal.Entry) {
				e.Entry = []byte("not an entry")
			})
		}},
	}
}

func mutatedPuts() []mutation {
	return []mutation{
		{"a put that no client sent", 2, func(s *story) { s.drop("put seen") }},
		{"the log has another body than was sent", 2, func(s *story) {
			s.ops["put a"].Request.(*belfryv1.PutRequest).Body = &belfryv1.PutRequest_Text{Text: "other"}
		}},
		{"a put that was refused took effect", 3, func(s *story) {
			s.refuses("put seen", belfryv1.Reason_REASON_NO_LEADER, nil)
		}},
		{"a put that was refused took effect, and was sent again", 3, func(s *story) {
			o := s.ops["put seen"]
			s.history.Add(&history.Op{
				Client: "hasty", Node: "n1", Invoked: o.Invoked, Returned: o.Returned,
				Outcome: belfryv1.Outcome_OUTCOME_NOT_APPLIED,
				Reason:  belfryv1.Reason_REASON_NO_LEADER, Request: o.Request,
			})
			o.Invoked, o.Returned = o.Invoked+time.Minute, o.Returned+time.Minute
		}},
		{"a put took effect before it was sent", 2, func(s *story) {
			o := s.ops["put seen"]
			o.Invoked, o.Returned = o.Invoked+time.Minute, o.Returned+time.Minute
		}},
		{"a put that was refused for overload took effect", 38, func(s *story) {
			s.refuses("put seen", belfryv1.Reason_REASON_OVERLOADED, nil)
		}},
		{"an ack that was refused took effect", 3, func(s *story) {
			s.refuses("ack seen", belfryv1.Reason_REASON_NOT_LEADER, nil)
		}},
		{"an unknown put took effect twice", 4, func(s *story) {
			put := loggedPut(&belfryv1.PutRequest{Queue: "mail", Body: &belfryv1.PutRequest_Text{Text: "unheard"}})
			s.log(s.shardOf("mail"), []*fsm.Request{{Commands: []fsm.Command{put}}})
		}},
		{"a put without an answer is logged twice under its request id", 4, func(s *story) {
			put := loggedPut(&belfryv1.PutRequest{Queue: "mail", Body: &belfryv1.PutRequest_Text{Text: "lost"}})
			s.log(s.shardOf("mail"), []*fsm.Request{{ID: "lost", Commands: []fsm.Command{put}}})
			s.wait(6 * time.Minute)
			s.log(s.shardOf("mail"), []*fsm.Request{{ID: "lost", Commands: []fsm.Command{put}}})
		}},
		{"a repeat made a job again", 5, func(s *story) { response[*belfryv1.PutResponse](s, "repeat a").Created = true }},
		{"a conflict was not told", 5, func(s *story) {
			resp := proto.Clone(s.ops["put a"].Response).(*belfryv1.PutResponse)
			resp.Created, resp.Witness = false, s.ops["conflict a"].Witness
			s.answers("conflict a", resp)
		}},
		{"two jobs got one id", 6, func(s *story) {
			response[*belfryv1.PutResponse](s, "generated too").Id = response[*belfryv1.PutResponse](s, "generated").Id
		}},
		{"a batch has fewer results than entries", 7, func(s *story) {
			resp := response[*belfryv1.PutBatchResponse](s, "batch")
			resp.Results = resp.Results[:2]
		}},
		{"an entry of a batch has no result", 7, func(s *story) {
			response[*belfryv1.PutBatchResponse](s, "batch").Results[1].Result = nil
		}},
		{"a batch of acks has more results than leases", 7, func(s *story) {
			resp := response[*belfryv1.AckBatchResponse](s, "acks")
			resp.Results = append(resp.Results, resp.Results[0])
		}},
		{"two results of a batch are swapped", 7, func(s *story) {
			r := response[*belfryv1.PutBatchResponse](s, "batch").Results
			r[0], r[2] = r[2], r[0]
		}},
		{"a put was answered with another due time", 36, func(s *story) {
			resp := response[*belfryv1.PutResponse](s, "put seen")
			resp.DueAt = later(resp.DueAt, time.Millisecond)
		}},
		{"an answer has no witness", 36, func(s *story) { response[*belfryv1.PutResponse](s, "put seen").Witness = nil }},
	}
}

func mutatedGrants() []mutation {
	return []mutation{
		{"a job from nowhere", 2, func(s *story) {
			job := s.job("reserve a")
			s.adds("reserve first", job)
			added := response[*belfryv1.ReserveResponse](s, "reserve first").Jobs[1]
			added.Lease, added.Fence = forge(job.GetLease(), 1_000_000, 1_000_001), 1_000_001
		}},
		{"a job has another body", 2, func(s *story) { s.job("reserve a").Body = &belfryv1.Job_Text{Text: "other"} }},
		{"a job has other headers", 2, func(s *story) { s.job("reserve generated").Headers["k"] = "w" }},
		{"a job was handed out early", 8, func(s *story) { j := s.job("reserve a"); j.DueAt = later(j.DueAt, time.Hour) }},
		{"two jobs left in the wrong order", 13, func(s *story) {
			x, y := s.job("reserve first"), s.job("reserve second")
			x.Lease, y.Lease = forge(y.Lease, 0, x.Fence), forge(x.Lease, 0, y.Fence)
			x.Id, y.Id = y.Id, x.Id
			x.Body, y.Body = y.Body, x.Body
		}},
		{"a waiting reserve came back empty, and a job was granted to it", 14, func(s *story) {
			resp := response[*belfryv1.ReserveResponse](s, "reserve seen")
			resp.Witnesses, resp.Jobs = []*belfryv1.Witness{resp.Jobs[0].Witness}, nil
			s.drop("ack seen")
			s.lose(response[*belfryv1.AckResponse](s, "ack seen").GetWitness())
		}},
		{"two holders", 15, func(s *story) { s.adds("reserve first", s.job("reserve a")) }},
		{"a fence came again", 15, func(s *story) {
			j := s.job("reserve late again")
			j.Fence = s.job("reserve late").Fence
		}},
		{"an ack of an old fence was taken after another had the job", 15, func(s *story) {
			s.answers("ack late", &belfryv1.AckResponse{Witness: s.ops["ack late"].Witness})
		}},
	}
}

// mutatedHolders are lies about what becomes of a job that was handed out.
func mutatedHolders() []mutation {
	return []mutation{
		{"handed out again while leased", 17, func(s *story) {
			j := s.job("reserve late")
			j.LeaseUntil = later(j.LeaseUntil, time.Minute)
		}},
		{"handed out again without a cause", 20, func(s *story) {
			j := s.job("reserve late")
			j.LeaseUntil = later(j.LeaseUntil, time.Minute)
		}},
		{"a node released what a client holds", 17, func(s *story) {
			s.takes("gone", "orders")
			s.puts("held", "orders", 0)
			s.takes("held", "orders")
			ref, _ := wire.ParseLease(s.leases["held"])
			s.log(s.shardOf("orders"), []*fsm.Request{{Commands: []fsm.Command{&fsm.Release{Ref: ref}}}})
		}},
		{"handed out after the ack", 19, func(s *story) {
			nacked := s.ops["nack poor"]
			nacked.Response = &belfryv1.AckResponse{Witness: response[*belfryv1.NackResponse](s, "nack poor").GetWitness()}
			nacked.Request = &belfryv1.AckRequest{Lease: s.leases["poor"], RequestId: "n1"}
		}},
		{"an attempt was skipped", 21, func(s *story) { s.job("reserve poor again").Attempt++ }},
		{"a dead job was handed out", 22, func(s *story) {
			s.adds("reserve none again", s.job("reserve poor again"))
			added := response[*belfryv1.ReserveResponse](s, "reserve none again").Jobs[0]
			added.Fence += 100
			added.Lease, added.Attempt = forge(added.Lease, 0, added.Fence), 3
		}},
		{"more attempts than allowed", 22, func(s *story) { s.job("reserve poor again").Attempt = 3 }},
		{"a cancelled job was handed out", 23, func(s *story) {
			job := proto.Clone(s.job("reserve poor")).(*belfryv1.Job)
			r, ok := s.serial("mail", "unwanted")
			if !ok {
				s.t.Fatal("the cancelled job is not known")
			}
			job.Id, job.Fence, job.Attempt = "unwanted", job.Fence+1000, 1
			job.Lease = forge(job.Lease, r, job.Fence)
			s.adds("reserve nothing", job)
		}},
		{"a job crossed queues", 37, func(s *story) { s.job("reserve a").Queue = "mail" }},
		{"more jobs than were asked for", 37, func(s *story) {
			s.adds("reserve first", s.job("reserve second"))
			s.ops["reserve first"].Request.(*belfryv1.ReserveRequest).MaxJobs = 1
		}},
	}
}

// serial finds the job of an id in what was logged.
func (s *story) serial(queue, id string) (uint64, bool) {
	shard := s.shardOf(queue)
	twin := machine.New(fsm.Config{Seed: 3})
	for _, e := range shard.entries {
		results, err := twin.Apply(e.Index, e.Entry)
		if err != nil {
			s.t.Fatal(err)
		}
		_, requests, _ := codec.DecodeEntry(e.Entry)
		at := 0
		for _, r := range requests {
			for _, c := range r.Commands {
				if put, ok := c.(*fsm.Put); ok && put.ID == id && results[at].Created {
					return results[at].Serial, true
				}
				at++
			}
		}
	}
	return 0, false
}
