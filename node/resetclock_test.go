package node

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/clock/clocktest"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
)

// A node alone that first started in 2099: when its clock is put right, it says so, it refuses to
// start until the clock is accepted, and a reset brings it back.
func TestFirstStartInTheWrongYear(t *testing.T) {
	dir := t.TempDir()
	wrong := time.Until(time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC))
	clock := shiftedClock(wrong)
	cfg := testConfig(t, dir)
	cfg.Clock, cfg.Shards = clock, 1
	var said bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
	n := openNode(t, cfg)
	put := &fsm.Request{Commands: []fsm.Command{&fsm.Put{Queue: "q", Partitions: 1, Given: fsm.GivenDelay,
		Delay: time.Hour}}}
	reply, err := n.Do(t.Context(), 0, put)
	if err != nil {
		t.Fatal(err)
	}
	if year := instant(reply.Witness.Time).Year(); year != 2099 {
		t.Fatalf("the job was put in %d", year)
	}
	if st := n.Status().Shards[0]; st.ClockAhead {
		t.Errorf("there is nobody to say that the time is wrong: %+v", st)
	}
	clock.off.Store(0)
	if st := n.Status().Shards[0]; !st.ClockAhead || st.ClockAheadBy < wrong-time.Hour {
		t.Errorf("the clock was put right, and the status says %+v", st)
	}
	closeNode(t, n)
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "--accept-clock") {
		t.Fatalf("the restart says %v", err)
	}
	cfg.AcceptClock = true
	n = openNode(t, cfg)
	if st := n.Status().Shards[0]; !st.ClockAhead {
		t.Errorf("time was accepted, and the status says %+v", st)
	}
	reset, err := n.ResetClock(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if instant(reset.From).Year() != 2099 || time.Since(instant(reset.To)).Abs() > time.Minute {
		t.Errorf("the reset says %v to %v", instant(reset.From), instant(reset.To))
	}
	reply, err = n.Do(t.Context(), 0, put)
	if err != nil || time.Since(instant(reply.Witness.Time)).Abs() > time.Minute {
		t.Errorf("after it a job is put at %v, %v", instant(reply.Witness.Time), err)
	}
	if st := n.Status().Shards[0]; st.ClockAhead {
		t.Errorf("and the status says %+v", st)
	}
	closeNode(t, n)
	if !strings.Contains(said.String(), "CLOCK_AHEAD") {
		t.Error("the log does not say that time is ahead")
	}
	cfg.AcceptClock = false
	openNode(t, cfg)
}

func TestResetClockOfAClockThatIsRight(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	before := n.Status().Shards[0].AppliedIndex
	reset, err := n.ResetClock(t.Context(), 0)
	if err != nil || reset.From != reset.To || n.Status().Shards[0].AppliedIndex != before {
		t.Errorf("a reset of what is right says %+v, %v", reset, err)
	}
	if _, err := n.ResetClock(t.Context(), 99); !errors.Is(err, outcome.ErrUnknownShard) {
		t.Errorf("an unknown shard gives %v", err)
	}
}

// An entry that is stamped right behind a reset is stamped with the new time, also while the reset
// is in flight.
func TestNoStampOfTheOldTimeFollowsAReset(t *testing.T) {
	hand := clocktest.NewHand()
	s := &shard{clock: clock.NewShard(hand, clock.DefaultBound)}
	s.clock.Begin(hand.Wall().Add(time.Hour))
	to := hand.Wall()
	old := s.clock.Stamp()
	s.stamped([]*propose.Proposal{{Request: &fsm.Request{}},
		{Request: &fsm.Request{Commands: []fsm.Command{&fsm.ResetClock{To: to}}}}})
	if now := s.clock.Stamp(); now >= old || now < to {
		t.Errorf("after %d the stamp is %d, want one from %d on", old, now, to)
	}
	// A replica that has not stamped it follows when it is applied.
	other := &shard{clock: clock.NewShard(hand, clock.DefaultBound)}
	other.clock.Begin(old)
	other.followClock(old)
	other.followClock(to)
	if now := other.clock.Stamp(); now >= old {
		t.Errorf("a replica stamps %d after it applied a reset to %d", now, to)
	}
	other.followClock(to.Add(time.Second))
	if now := other.clock.Stamp(); now >= old {
		t.Errorf("and %d after the next entry", now)
	}
}
