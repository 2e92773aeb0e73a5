package admit

import (
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// TestDemand: a request needs the bytes of its jobs, their keys among them, and those of its schedules; one
// for a job by its serial needs a lease.
func TestDemand(t *testing.T) {
	t.Parallel()
	job := fsm.Put{Queue: "tenant/q", Key: "four", Body: make([]byte, 10)}
	all := (&Quotas{}).demand(&fsm.Request{Commands: []fsm.Command{
		&job, &fsm.PutSchedule{Queue: "tenant/q", Name: "nightly", Job: job}, &fsm.Put{Queue: "q", Key: "other"},
		&fsm.ReserveJob{Queue: "tenant/q", Serial: 7},
	}})
	want := Amounts{JobsLimit: 1, BytesLimit: 14 + 21, LeasesLimit: 1, PutRate: 1000}
	if got := all["tenant"]; len(all) != 1 || got != want {
		t.Errorf("the request needs %v of %d namespaces, want %v", got, len(all), want)
	}
}
