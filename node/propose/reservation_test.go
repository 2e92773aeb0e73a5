package propose

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/storage/disk"
)

// TestReservedUntilApplied: what a request has taken stays so when its callers were given up or it
// was withdrawn too late, until its entry is applied or can never be.
func TestReservedUntilApplied(t *testing.T) {
	for name, end := range map[string]func(*fakeFuture){
		"applied": func(f *fakeFuture) { f.apply(t, 1) },
		"lost":    func(f *fakeFuture) { f.fail(errors.New("lost")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startProposer(t, Config{EntriesInFlight: 1})
				m := machine.New(fsm.Config{})
				a := admit.New(admit.Config{
					Leads: func() bool { return true }, Idle: func() bool { return true }, Voters: func() *admit.VotersError {
						return nil
					},
					View:  func(f func(*machine.Machine, fsm.Time)) { f(m, m.Clock()) },
					Space: &disk.Space{}, Memory: admit.NewMemory(0, nil, nil), NodeLimited: new(atomic.Bool),
					AskForMore: func() {},
				})
				var jobs admit.ShardQuota
				jobs.Quota[admit.JobsLimit], jobs.Granted[admit.JobsLimit] = 10, 10
				a.Quotas.Reset(1)
				a.Quotas.SetShardQuotas(1, map[string]admit.ShardQuota{"t": jobs})
				pending := func() uint64 {
					_, all := a.Quotas.Use()
					return all["t"].Use[admit.JobsLimit]
				}
				take := func() (pr *Proposal, ended chan error) {
					req := &fsm.Request{Commands: []fsm.Command{&fsm.Put{Queue: "t/q", Partitions: 1}}}
					admitted, err := a.Admit(t.Context(), req, nil)
					if err != nil {
						t.Fatal(err)
					}
					ended = make(chan error, 1)
					return &Proposal{
						Request: req, Encoded: codec.AppendRequest(nil, req), Format: b.format, Complete: func(_ Reply, err error) {
							ended <- err
						},
						Reservation: admitted.Reservation,
					}, ended
				}
				pr, ended := take()
				if err := b.Enqueue(pr); err != nil {
					t.Fatal(err)
				}
				entry := b.next(t)
				if err := <-ended; !errors.Is(err, outcome.ErrUnknownOutcome) || b.Withdraw(pr) {
					t.Errorf("given up as %v, want unknown", err)
				}
				pr.Reservation = nil // its caller uses it again
				if got := pending(); got != 1 {
					t.Errorf("%d are on their way while the entry may yet be applied, want 1", got)
				}
				end(entry)
				synctest.Wait()
				if got := pending(); got != 0 {
					t.Errorf("%d are pending after it was applied", got)
				}
				waits, refused := take()
				b.Close(outcome.ErrNoLeader)
				if err := b.Enqueue(waits); err == nil {
					t.Error("a closed proposer took a request")
				}
				waits.Reservation.Release()
				if got := pending(); got != 0 || len(refused) != 0 {
					t.Errorf("%d are on their way of what was refused", got)
				}
			})
		})
	}
}
