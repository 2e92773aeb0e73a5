package rpc

import (
	"testing"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// TestErrorsOfTheLogCarryTheirWitness: where an error was decided, in unary answers and in entries
// of a batch.
func TestErrorsOfTheLogCarryTheirWitness(t *testing.T) {
	s := serve(t)
	home := s.queueIn(1, "a")
	for name, c := range s.clients() {
		_, err := c.Cancel(t.Context(), &belfryv1.CancelRequest{Queue: home, Id: "x"})
		f, ok := fault.FromConnect(err)
		if !ok || f.Witness.GetShard() != 1 || f.Witness.GetTerm() != 2 || f.Witness.GetIndex() == 0 ||
			f.Witness.GetTime().AsTime().IsZero() {
			t.Errorf("%s: %v: %v", name, err, f.Witness)
		}
		res, err := c.AckBatch(t.Context(),
			&belfryv1.AckBatchRequest{Leases: []string{"x", wire.FormatLease(fsm.Ref{Queue: home}),
				wire.FormatLease(fsm.Ref{Queue: home})}})
		if err != nil {
			t.Fatal(err)
		}
		results := res.GetResults()
		if results[0].GetError().GetWitness() != nil {
			t.Errorf("%s: a lease that is none has the witness %v", name, results[0].GetError().GetWitness())
		}
		if w := results[2].GetError().GetWitness(); w.GetIndex() != f.Witness.GetIndex()+1 || w.GetEntry() != 1 {
			t.Errorf("%s: the last entry has the witness %v after %v", name, w, f.Witness)
		}
	}
	_, err := s.clients()["gRPC"].Put(t.Context(), &belfryv1.PutRequest{})
	if f, _ := fault.FromConnect(err); f.Witness != nil {
		t.Errorf("a malformed put has the witness %v", f.Witness)
	}
}
