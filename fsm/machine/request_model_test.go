package machine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// uuidAt returns the UUIDv7 of a time.
func uuidAt(t fsm.Time) string {
	ms := uint64(t) / uint64(time.Millisecond)
	return fmt.Sprintf("%08x-%04x-7abc-8def-0123456789ab", ms>>16, ms&0xffff)
}

func TestModelScenarioRequest(t *testing.T) {
	t.Parallel()
	replayed := func(r fsm.Result) fsm.Result { r.Replayed = true; return r }
	invalid := code(fsm.Invalid)
	minute := time.Minute
	runScenarios(t, []scenario{
		{name: "a repeated request gets its first answer for five minutes", steps: []step{
			{
				id: "r", do: do(put(""), put("a"), put("a", body("x"))),
				want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0), code(fsm.JobExists)),
			},
			{
				id: "r", do: do(put(""), put("a"), put("a", body("x"))),
				want: results(replayed(created(1, fsm.Ready, 0)), replayed(created(2, fsm.Ready, 0)),
					replayed(code(fsm.JobExists))),
			},
			{at: 5 * minute, id: "r", do: do(put("")), want: results(invalid)},
			{at: 5*minute + 1, id: "r", do: do(put("")), want: results(created(3, fsm.Ready, 5*minute))},
		}},
		{name: "a request that changed nothing is not remembered", steps: []step{
			{id: "r", do: do(cancel("a")), want: results(code(fsm.JobNotFound))},
			{do: do(put("a")), want: results(created(1, fsm.Ready, 0))},
			{id: "s", do: do(put("a"), &fsm.Redrive{Queue: "q"}, &fsm.Purge{Queue: "q"}, configure(0, fsm.Settings{}),
				reserve(0)),
				want: results(met(1, fsm.Ready, 0), count(0), count(0), okay(), okay())},
			{id: "s", do: do(put("b")), want: results(created(2, fsm.Ready, 0))},
			{id: "r", do: do(cancel("a")), want: results(ended(fsm.Ready))},
			{id: "r", do: do(cancel("a")), want: results(replayed(ended(fsm.Ready)))},
		}},
		{name: "a repeated request settles nothing", steps: []step{
			{id: "r", do: do(put("a", delay(ms))), want: results(created(1, fsm.Delayed, ms))},
			{
				at: ms, id: "r", do: do(put("a", delay(ms))), want: results(replayed(created(1, fsm.Delayed, ms))),
				look: deadlineIs(after(ms)),
			},
		}},
		{name: "a repeated reserve collects what is still held, and reserves anew if nothing is", steps: []step{
			{do: do(put("a"), put("b")), want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0))},
			{id: "r", do: do(reserve(2)), want: results(granted(lease(1, 3, 0, leaseEnd), lease(2, 4, 0, leaseEnd)))},
			{do: do(&fsm.Extend{Ref: ref(2, 4), TTR: time.Hour}), want: results(fsm.Result{Until: after(time.Hour)})},
			{
				at: 1, id: "r", do: do(reserve(2)),
				want: results(replayed(granted(lease(1, 3, 0, leaseEnd), lease(2, 4, 0, leaseEnd)))),
			},
			{at: leaseEnd, id: "r", do: do(reserve(2)), want: results(replayed(granted(lease(2, 4, 0, leaseEnd))))},
			{at: leaseEnd, do: do(ack(2, 4)), want: results(acked())},
			{at: leaseEnd, id: "r", do: do(reserve(2)), want: results(granted(attempt(2, lease(1, 5, leaseEnd, 2*leaseEnd))))},
			{
				at: leaseEnd, id: "r", do: do(reserve(2)),
				want: results(replayed(granted(attempt(2, lease(1, 5, leaseEnd, 2*leaseEnd))))),
			},
			{at: leaseEnd, id: "r", do: do(reserve(1)), want: results(invalid)},
		}},
	})
}

func TestModelScenarioRequestTooOld(t *testing.T) {
	t.Parallel()
	replayed := func(r fsm.Result) fsm.Result { r.Replayed = true; return r }
	expired := code(fsm.RequestExpired)
	minute := time.Minute
	runScenarios(t, []scenario{
		{name: "an id that tells its age is refused when it is too old", steps: []step{
			{id: uuidAt(start - fsm.Time(5*minute)), do: do(put("")), want: results(created(1, fsm.Ready, 0))},
			{id: uuidAt(start - fsm.Time(5*minute+time.Millisecond)), do: do(put(""), put("")), want: results(expired, expired)},
			// A part of a request has the age of the whole.
			{id: uuidAt(start-fsm.Time(5*minute+time.Millisecond)) + "#1#2", do: do(put("")), want: results(expired)},
			{id: uuidAt(fsm.TimeMax), do: do(put("")), want: results(created(2, fsm.Ready, 0))},
			{id: "ffffffff-ffff-7000-bfff-ffffffffffff", do: do(put("")), want: results(created(3, fsm.Ready, 0))},
			// Neither version 4 nor the wrong variant nor another form tells an age.
			{id: "00000000-0000-4000-8000-000000000000", do: do(put("")), want: results(created(4, fsm.Ready, 0))},
			{id: "00000000-0000-7000-0000-000000000000", do: do(put("")), want: results(created(5, fsm.Ready, 0))},
			{id: "00000000-0000-7000-8000-00000000000", do: do(put("")), want: results(created(6, fsm.Ready, 0))},
			{id: "00000000-0000-7000-8000-00000000000G", do: do(put("")), want: results(created(7, fsm.Ready, 0))},
			{id: "ABCDEF00-0000-7000-8000-000000000000", do: do(put("")), want: results(created(8, fsm.Ready, 0))},
			{id: "0000000A-0000-7000-8000-000000000000", do: do(put("")), want: results(expired)},
		}},
		{name: "want of room evicts the oldest and raises the low-water time", cfg: fsm.Config{AnswersBytesMax: 300},
			steps: []step{
				{id: uuidAt(start), do: do(put("")), want: results(created(1, fsm.Ready, 0))},
				{id: uuidAt(start), do: do(put("")), want: results(replayed(created(1, fsm.Ready, 0)))},
				{at: time.Second, id: "x", do: puts(60), want: createdReady(2, 60, time.Second)},
				// That answer was larger than all the room there is: it evicted the first one and itself.
				{at: time.Second, id: uuidAt(start), do: do(put("")), want: results(expired)},
				{at: time.Second, id: uuidAt(after(time.Second)), do: do(put("")), want: results(expired)},
				{at: time.Second, id: "x", do: do(put("")), want: results(created(62, fsm.Ready, time.Second))},
				{
					at: time.Second, id: uuidAt(after(time.Second + time.Millisecond)), do: do(put("")),
					want: results(created(63, fsm.Ready, time.Second)),
				},
			}},
	})
}

func TestModelScenarioRecall(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	runScenarios(t, []scenario{
		{name: "a recall tells what a repeat would be answered", steps: []step{
			{
				do: do(put("a"), put("b")), want: results(created(1, fsm.Ready, 0), created(2, fsm.Ready, 0)),
				look: recallIs(0, do(reserve(2)), fsm.OK),
			},
			{id: "r", do: do(reserve(2)), want: results(granted(lease(1, 3, 0, leaseEnd), lease(2, 4, 0, leaseEnd))),
				look: recallIs(0, do(reserve(2)), fsm.OK, lease(1, 3, 0, leaseEnd), lease(2, 4, 0, leaseEnd))},
			{do: do(ack(1, 3)), want: results(acked()), look: recallIs(0, do(reserve(2)), fsm.OK, lease(2, 4, 0, leaseEnd))},
			{want: results(), look: recallIs(leaseEnd, do(reserve(2)), fsm.OK)},
			{want: results(), look: recallIs(0, do(reserve(1)), fsm.Invalid)},
			{want: results(), look: recallIs(0, do(reserve(2), reserve(2)), fsm.Invalid)},
			{want: results(), look: recallIs(5*minute, do(reserve(1)), fsm.Invalid)},
			{want: results(), look: recallIs(5*minute+1, do(reserve(1)), fsm.OK)},
		}},
	})
}

// recallIs checks what is remembered, at a distance from the start, of a request that is called
// "r".
func recallIs(at time.Duration, commands []fsm.Command, code fsm.Code, want ...fsm.Grant) func(*testing.T, shard) {
	return func(t *testing.T, s shard) {
		t.Helper()
		got, gotCode := s.Recall(&fsm.Request{Caller: "test", ID: "r", Commands: commands}, after(at))
		if !slices.Equal(got, want) || gotCode != code {
			t.Errorf("recalled are %+v, code %d; want %+v, code %d", got, gotCode, want, code)
		}
		if other, otherCode := s.Recall(&fsm.Request{
			Caller: "else", ID: "r", Commands: commands,
		}, after(at)); other != nil || otherCode != fsm.OK {
			t.Errorf("of another caller, recalled are %+v, code %d", other, otherCode)
		}
	}
}
