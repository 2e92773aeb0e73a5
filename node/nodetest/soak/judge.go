package soak

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/clock"
)

// stampSlack is what a stamp may be ahead of the true time at which its entry was applied, beside
// what the clocks were set wrong by: slewing.
const stampSlack = 5 * time.Millisecond

// place is where a request is in the log.
type place struct {
	index uint64
	entry uint32
}

// logged is a request in the log, with what it was answered when the log was carried out again.
type logged struct {
	place   place
	request fsm.Request
	results []fsm.Result
	clock   fsm.Time
}

// judge holds what the clients were told against the log, and the log against the rules.
func (w *World) judge() {
	entries := w.history.sorted(shardGroup)
	byPlace, byName := w.replay(entries)
	h := w.history
	h.mu.Lock()
	operations := slices.Clone(h.operations)
	h.mu.Unlock()
	for _, o := range operations {
		w.judgeOperation(o, byPlace, byName)
	}
	w.judgeOrder(operations)
	h.counts["operations"] = len(operations)
	h.counts["entries"] = len(entries)
}

// name is what makes two requests attempts at the same one.
type name struct{ caller, id string }

// ledgerReport takes what the ledger finds.
type ledgerReport struct{ history *history }

// Look implements ledger.Report.
func (ledgerReport) Look(ledger.Rule) {}

// Violated implements ledger.Report.
func (r ledgerReport) Violated(rule ledger.Rule, _ fsm.Time, text string) {
	r.history.violated(fmt.Sprintf("I%d", rule), "%s", text)
}

// Count implements ledger.Report.
func (r ledgerReport) Count(what string, n int64) {
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	r.history.counts[what] += int(n)
}

// replay carries out the log again on a machine of its own. The ledger judges each result.
func (w *World) replay(entries []*entry) (map[place]*logged, map[name][]*logged) {
	machine := machine.New(fsm.Config{Seed: 1})
	shard := ledger.New(ledger.Config{Report: ledgerReport{w.history}, Nominal: nominal})
	byPlace, byName := map[place]*logged{}, map[name][]*logged{}
	var clock fsm.Time
	for _, e := range entries {
		results, err := machine.Apply(e.index, e.data)
		if err != nil {
			w.history.violated("replay", "entry %d cannot be applied: %v", e.index, err)
			return byPlace, byName
		}
		if machine.Digest() != e.digest {
			w.history.violated("replay gives the same state", "after entry %d the digest is %016x, it was %016x on %s", e.index,
				machine.Digest(), e.digest, e.who)
			return byPlace, byName
		}
		stamp, requests, err := codec.DecodeEntry(e.data)
		if err != nil {
			w.history.violated("replay", "entry %d cannot be decoded: %v", e.index, err)
			return byPlace, byName
		}
		if machine.Clock() < clock {
			w.history.violated("shard time never decreases", "it is %d after entry %d, it was %d", machine.Clock(), e.index,
				clock)
		}
		clock = machine.Clock()
		if ahead := clock.Sub(fsm.Time(w.history.start.Add(e.at).UnixNano())); ahead > w.aheadMax(e.at) {
			w.history.violated("shard time is not ahead of true time", "at entry %d (stamp %d) by %v", e.index, stamp, ahead)
		}
		judged := &ledger.Entry{Index: e.index, Format: fsm.FormatOf(e.data), Clock: clock,
			At: fsm.Time(w.history.start.Add(e.at).UnixNano())}
		at := 0
		for _, r := range requests {
			one := &logged{
				place: place{e.index, uint32(at)}, request: r, results: results[at : at+len(r.Commands)], clock: clock,
			}
			at += len(r.Commands)
			byPlace[one.place] = one
			if r.ID == "" && !own(r.Commands) {
				w.history.violated("nothing from nowhere", "entry %d has a %T that no client sent", e.index, r.Commands[0])
			}
			if r.ID != "" {
				byName[name{r.Caller, r.ID}] = append(byName[name{r.Caller, r.ID}], one)
			}
			if put, ok := r.Commands[0].(*fsm.PutSchedule); ok && took(put, one.results[0]) &&
				put.NextAfter.Sub(clock) > fsm.CallerAheadMax {
				w.history.count("schedules put by a clock that is ahead")
			}
			for i, command := range r.Commands {
				judged.Commands = append(judged.Commands, ledger.Command{Entry: judged, Number: uint32(len(judged.Commands)),
					Request: &one.request, Command: command, Result: one.results[i]})
			}
		}
		shard.Enter(judged)
	}
	if len(entries) > 0 {
		shard.Audit(machine)
	}
	w.judgeLeft(shard, clock)
	return byPlace, byName
}

// aheadMax is what shard time may be ahead of true time when an entry is applied. While no clock is
// wildly wrong, none is ahead by more than skewMax. One that is draws the stamps of its node along,
// slewed; the node leads until they are half the bound away from the median.
func (w *World) aheadMax(at time.Duration) time.Duration {
	if wild := time.Duration(w.wild.Load()); wild == 0 || at < wild {
		return skewMax + stampSlack
	}
	return skewMax + clock.DefaultBound/2 + stampSlack
}

// own reports whether commands are such as nodes log by themselves.
func own(commands []fsm.Command) bool {
	for _, c := range commands {
		switch c.(type) {
		case *fsm.Lead, *fsm.Expire, *fsm.Release, *fsm.Fire:
		default:
			return false
		}
	}
	return true
}

// judgeOperation checks that a client was told what the log says.
func (w *World) judgeOperation(o *operation, byPlace map[place]*logged, byName map[name][]*logged) {
	attempts := byName[name{o.request.Caller, o.request.ID}]
	_, reserves := o.request.Commands[0].(*fsm.Reserve)
	what := fmt.Sprintf("%s (%T)", o.request.ID, o.request.Commands[0])
	switch o.outcome {
	case node.NotApplied:
		for _, a := range attempts {
			// A call that waits may have looked in vain, which changes nothing, before it was refused.
			if !reserves || len(a.results[0].Grants) > 0 {
				w.history.violated("a refusal is one", "%s was refused at %v and is entry %d: %+v", what, o.returned, a.place.index,
					a.results)
				break
			}
		}
	case node.Applied:
		if o.reply.Witness == (node.Witness{}) {
			if !reserves || len(o.reply.Results[0].Grants) > 0 {
				w.history.violated("every answer has a witness", "%s has none", what)
			}
			break
		}
		at := byPlace[place{o.reply.Witness.Index, o.reply.Witness.Entry}]
		if at == nil || at.request.Caller != o.request.Caller || at.request.ID != o.request.ID {
			w.history.violated("what was acknowledged is in the log", "%s was answered at %v with index %d, where it is not",
				what, o.returned, o.reply.Witness.Index)
			break
		}
		if !reflect.DeepEqual(at.request.Commands, o.request.Commands) && !equalRequests(&at.request, o.request) {
			w.history.violated("the log has what was sent", "%s is another request at index %d", what, at.place.index)
		}
		if !reflect.DeepEqual(at.results, o.reply.Results) {
			w.history.violated("an answer is what the log gives", "%s was answered %+v, the log gives %+v", what,
				o.reply.Results, at.results)
		}
		if o.reply.Witness.Time != at.clock {
			w.history.violated("a witness tells the time", "%s has time %d, entry %d has %d", what, o.reply.Witness.Time,
				at.place.index, at.clock)
		}
	case node.Unknown:
		w.history.count("operations with an unknown outcome")
	}
	effects := 0
	for _, a := range attempts {
		if took(a.request.Commands[0], a.results[0]) {
			effects++
		}
	}
	// A Reserve that is repeated may reserve anew when the first leases have lapsed.
	if effects > 1 && !reserves {
		w.history.violated("applied once", "%s took effect %d times", what, effects)
	}
}

// took reports whether a command took effect, as far as its result tells. A repeated ack, a put that
// meets its first, and a run of a schedule whose job was there are OK and change nothing.
func took(command fsm.Command, r fsm.Result) bool {
	if r.Replayed || r.Code != fsm.OK {
		return false
	}
	switch command.(type) {
	case *fsm.Put, *fsm.PutSchedule:
		return r.Created || r.Replaced
	case *fsm.PauseSchedules, *fsm.RunSchedule, *fsm.PurgeKey:
		return r.Count > 0
	case *fsm.Ack, *fsm.PauseKey, *fsm.Configure:
		return false // the ledger judges it
	default:
		return true
	}
}

// equalRequests compares two requests by content, in which nil and empty are the same.
func equalRequests(a, b *fsm.Request) bool { return codec.RequestHash(a) == codec.RequestHash(b) }

// judgeOrder checks that the log's order agrees with that of the calls: what was answered before
// another was asked comes before it.
func (w *World) judgeOrder(operations []*operation) {
	var applied []*operation
	for _, o := range operations {
		if o.outcome == node.Applied && o.reply.Witness.Index > 0 {
			applied = append(applied, o)
		}
	}
	slices.SortFunc(applied, func(a, b *operation) int {
		if c := compare(a.reply.Witness.Index, b.reply.Witness.Index); c != 0 {
			return c
		}
		return compare(uint64(a.reply.Witness.Entry), uint64(b.reply.Witness.Entry))
	})
	var latest *operation
	for _, o := range applied {
		if latest != nil && o.returned < latest.invoked {
			w.history.violated("the log's order is that of the calls",
				"%s returned at %v with index %d, %s was only sent at %v and has index %d",
				o.request.ID, o.returned, o.reply.Witness.Index, latest.request.ID, latest.invoked, latest.reply.Witness.Index)
		}
		if latest == nil || o.invoked > latest.invoked {
			latest = o
		}
	}
}

// judgeTokens checks what a node's catalog holds in the end: each token that was acknowledged,
// once, and none that was refused.
func (w *World) judgeTokens(who string, tokens []uint64) {
	held := map[uint64]int{}
	for _, t := range tokens {
		held[t]++
	}
	w.history.mu.Lock()
	proposed := slices.Clone(w.history.tokens)
	w.history.mu.Unlock()
	for _, t := range proposed {
		n := held[t.value]
		switch {
		case t.outcome == node.Applied && n != 1:
			w.history.violated("the catalog keeps what was acknowledged", "%s has token %d of entry %d %d times", who, t.value,
				t.index, n)
		case t.outcome == node.NotApplied && n != 0:
			w.history.violated("a refusal is one", "%s has token %d, which was refused", who, t.value)
		case n > 1:
			w.history.violated("applied once", "%s has token %d %d times", who, t.value, n)
		}
	}
}

// judgeLeft checks that every node holds in the end what the ledger has.
func (w *World) judgeLeft(shard *ledger.Shard, clock fsm.Time) {
	for who, held := range w.left {
		for serial, job := range held {
			if b := shard.Job(serial); b == nil || !b.State.Held() {
				w.history.violated("nothing from nowhere", "%s holds job %d (%v), which ended or never was", who, serial,
					job.State)
			}
		}
		for _, b := range shard.Jobs() {
			_, there := held[b.Serial]
			if b.State.Held() && !there && (b.TTL == 0 || b.TTL > clock) {
				w.history.violated("no job is lost", "%s does not hold job %d, which was put at index %d and never ended", who,
					b.Serial, b.Index)
			}
			if there && held[b.Serial].State != fsm.Dead {
				w.history.violated("the drain takes all", "%s still holds job %d as %v", who, b.Serial, held[b.Serial].State)
			}
		}
	}
}
