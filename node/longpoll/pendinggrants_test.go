package longpoll

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/propose"
)

// reserveOrder is a request for one order, with an id.
func reserveOrder() *fsm.Request {
	return &fsm.Request{Caller: "c", ID: "r1", Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"orders"}, Max: 1,
		TTR: time.Minute}}}
}

// grantedOrder is the answer to reserveOrder with one job.
func grantedOrder() answer {
	return answer{reply: propose.Reply{Results: []fsm.Result{{
		Grants: []fsm.Grant{{Queue: "orders", Serial: 1, Fence: 2}}}}}}
}

// grantsThatPropose returns pending grants in a leadership, which add what they propose to a list.
func grantsThatPropose(proposed *[]*propose.Proposal) *pendingGrants {
	pg := &pendingGrants{
		propose: func(pr *propose.Proposal) error {
			*proposed = append(*proposed, pr)
			return nil
		},
		check: func(*fsm.Request) error { return nil }, format: func() fsm.Format { return fsm.LatestFormat },
	}
	pg.open()
	return pg
}

// TestCallerThatLeavesAfterItsRepeatReleasesNothing: the repeat gets the grants while the first
// caller, which is slow to leave, still seems to be there.
func TestCallerThatLeavesAfterItsRepeatReleasesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var proposed []*propose.Proposal
		pg := grantsThatPropose(&proposed)
		first := &grantProposal{Proposal: propose.Proposal{Request: reserveOrder()}}
		repeat := &grantProposal{Proposal: propose.Proposal{Request: reserveOrder()}}
		for _, pr := range []*grantProposal{first, repeat} {
			if err := pg.enqueue(pr); err != nil {
				t.Fatal(err)
			}
		}
		replayed := grantedOrder()
		replayed.reply.Results[0].Replayed = true
		pg.noteDelivered(repeat.pendingGrant, replayed)
		pg.noteAbandoned(first.pendingGrant, grantedOrder())
		time.Sleep(2 * RepeatWait)
		synctest.Wait()
		if len(proposed) != 2 || pg.size() != 0 {
			t.Errorf("%d requests were proposed, and %d grants are kept", len(proposed), pg.size())
		}
	})
}

// TestReleaseHasTheFormatOfNewEntries: a batch has one format, so a release in an older one would
// end it.
func TestReleaseHasTheFormatOfNewEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var proposed []*propose.Proposal
		pg := grantsThatPropose(&proposed)
		reserve := &grantProposal{Proposal: propose.Proposal{Request: reserveOrder()}}
		if err := pg.enqueue(reserve); err != nil {
			t.Fatal(err)
		}
		pg.noteAbandoned(reserve.pendingGrant, grantedOrder())
		time.Sleep(RepeatWait)
		synctest.Wait()
		if len(proposed) != 2 || proposed[1].Format != fsm.LatestFormat {
			t.Errorf("proposed %+v", proposed)
		}
	})
}
