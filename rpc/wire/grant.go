package wire

import (
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Grant is a job that was granted, with the witness of its grant.
type Grant struct {
	*fsm.Job
	Witness *belfryv1.Witness
}

// Granted converts jobs that were granted to jobs with a lease token and a witness. It does not
// copy their bodies.
func Granted(jobs []Grant) []*belfryv1.Job {
	var tokens leaseWriter
	slots, out := make([]jobSlot, len(jobs)), make([]*belfryv1.Job, len(jobs))
	for i, job := range jobs {
		out[i] = slots[i].fill(job.Job)
		out[i].Lease, out[i].Witness = tokens.format(Ref(job.Job)), job.Witness
	}
	return out
}

// Refs returns the reservations of jobs, in their order.
func Refs(jobs []Grant) []fsm.Ref {
	refs := make([]fsm.Ref, len(jobs))
	for i, job := range jobs {
		refs[i] = Ref(job.Job)
	}
	return refs
}

// JobRefs returns the reservations that the lease tokens of jobs name. It leaves out a job without
// a valid token.
func JobRefs(jobs []*belfryv1.Job) []fsm.Ref {
	refs := make([]fsm.Ref, 0, len(jobs))
	for _, job := range jobs {
		if ref, err := ParseLease(job.GetLease()); err == nil {
			refs = append(refs, ref)
		}
	}
	return refs
}

// Ref returns the reservation under which a job was granted.
func Ref(job *fsm.Job) fsm.Ref {
	return fsm.Ref{Queue: job.Queue, Partition: job.Partition, Serial: job.Serial, Fence: job.Fence}
}
