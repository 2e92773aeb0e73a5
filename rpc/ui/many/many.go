// Package many reads, groups and changes many jobs by calls of the API. Each of its functions is
// bounded by a number of jobs.
package many

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/selection"
)

// pageJobs is how many jobs a call lists.
const pageJobs = 1000

// Lister lists jobs, as the client of QueueService does.
type Lister interface {
	List(context.Context, *belfryv1.ListRequest) (*belfryv1.ListResponse, error)
}

// errLost is returned if leaders gave a part of a list and did not answer after that.
var errLost = connect.NewError(connect.CodeUnavailable,
	errors.New("a shard lost its leader while its jobs were listed; try again"))

// Each passes the jobs of a queue in one state to see, in due order and at most so many.
func Each(ctx context.Context, from Lister, of selection.Selection, most uint64, see func(*belfryv1.Job)) error {
	req, stale := of.List(pageJobs, ""), false
	for read := uint64(0); read < most; {
		res, err := from.List(ctx, req)
		switch {
		case err != nil:
			return err
		case read == 0:
			stale = res.Stale
		case res.Stale != stale: // the replica could show jobs a second time
			return errLost
		}
		for _, j := range res.Jobs[:min(uint64(len(res.Jobs)), most-read)] {
			see(j)
			read++
		}
		if req.PageToken = res.NextPageToken; req.PageToken == "" {
			return nil
		}
	}
	return nil
}

// eachIn is Each for all queues that have jobs in a state, those with most first and at most so many
// jobs together. It returns how many jobs there are, and how many of them it read.
func eachIn(ctx context.Context, from Lister, queues []*belfryv1.Queue, state belfryv1.JobState, most uint64,
	see func(*belfryv1.Job)) (read, all uint64, err error) {
	count := func(q *belfryv1.Queue) uint64 { return selection.CountOf(q.Counts, state) }
	queues = slices.DeleteFunc(slices.Clone(queues), func(q *belfryv1.Queue) bool { return count(q) == 0 })
	slices.SortStableFunc(queues, func(a, b *belfryv1.Queue) int { return cmp.Compare(count(b), count(a)) })
	for _, q := range queues {
		all += count(q)
		if read == most {
			continue
		}
		err := Each(ctx, from, selection.Selection{Queue: q.Name, State: state}, most-read, func(j *belfryv1.Job) {
			read++
			see(j)
		})
		if err != nil {
			return read, all, err
		}
	}
	return read, all, nil
}

// DeadGroup are dead jobs of a queue that died of the same.
type DeadGroup struct {
	Queue, Cause string
	// Sample is the last error of one of them, and ID and Key are its.
	Sample, ID, Key string
	Jobs            uint64
	// First and Last are when the first and the last of them failed.
	First, Last time.Time
}

// Selection selects the jobs of the group, also those that were not read.
func (d *DeadGroup) Selection() selection.Selection {
	return selection.Selection{Queue: d.Queue, State: belfryv1.JobState_JOB_STATE_DEAD, Cause: d.Cause}
}

// Dead has groups of dead jobs, the largest first.
type Dead struct {
	Groups []*DeadGroup
	// Read of All dead jobs were read.
	Read, All uint64
}

// ReadDead reads the dead jobs of queues, those of all together at most so many, and groups them.
func ReadDead(ctx context.Context, from Lister, queues []*belfryv1.Queue, most uint64) (*Dead, error) {
	out, known := &Dead{}, map[[2]string]*DeadGroup{}
	var err error
	out.Read, out.All, err = eachIn(ctx, from, queues, belfryv1.JobState_JOB_STATE_DEAD, most, func(j *belfryv1.Job) {
		key, failed := [2]string{j.Queue, j.Cause}, failedAt(j)
		group := known[key]
		if group == nil {
			group = &DeadGroup{Queue: j.Queue, Cause: j.Cause, Sample: j.LastError, ID: j.Id, Key: j.Key, First: failed,
				Last: failed}
			known[key], out.Groups = group, append(out.Groups, group)
		}
		group.Jobs++
		if failed.Before(group.First) {
			group.First = failed
		}
		if failed.After(group.Last) {
			group.Last = failed
		}
	})
	slices.SortStableFunc(out.Groups, func(a, b *DeadGroup) int { return cmp.Compare(b.Jobs, a.Jobs) })
	return out, err
}

// failedAt returns when a dead job failed last; its due time if no attempt is known, as of one that
// expired.
func failedAt(j *belfryv1.Job) time.Time {
	if n := len(j.Attempts); n > 0 {
		return j.Attempts[n-1].EndedAt.AsTime()
	}
	return j.DueAt.AsTime()
}

// Consumer holds jobs.
type Consumer struct {
	// Client is as in Job: `name@address`, an address, or empty if it is not known.
	Client string
	// Queues has how many jobs it holds of each queue.
	Queues map[string]uint64
	Jobs   uint64
	// Oldest is the job that it holds longest, Latest when it reserved another last; nil if that is not
	// known.
	Oldest *belfryv1.Job
	Latest *timestamppb.Timestamp
}

// Held has the consumers that hold jobs, those with most first.
type Held struct {
	Consumers []*Consumer
	// Read of All held jobs were read.
	Read, All uint64
}

// Since is when a job was reserved, as far as that is known; else when its lease was given or extended.
func Since(j *belfryv1.Job) *timestamppb.Timestamp { return cmp.Or(j.ReservedAt, j.LeaseSince) }

// ReadHeld reads the held jobs of queues, those of all together at most so many, and groups them by
// who holds them.
func ReadHeld(ctx context.Context, from Lister, queues []*belfryv1.Queue, most uint64) (*Held, error) {
	out, known := &Held{}, map[string]*Consumer{}
	var err error
	out.Read, out.All, err = eachIn(ctx, from, queues, belfryv1.JobState_JOB_STATE_RESERVED, most, func(j *belfryv1.Job) {
		c := known[j.Client]
		if c == nil {
			c = &Consumer{Client: j.Client, Queues: map[string]uint64{}, Oldest: j}
			known[j.Client], out.Consumers = c, append(out.Consumers, c)
		}
		c.Jobs++
		c.Queues[j.Queue]++
		if at := j.ReservedAt; at != nil && (c.Latest == nil || at.AsTime().After(c.Latest.AsTime())) {
			c.Latest = at
		}
		if Since(j).AsTime().Before(Since(c.Oldest).AsTime()) {
			c.Oldest = j
		}
	})
	slices.SortStableFunc(out.Consumers, func(a, b *Consumer) int { return cmp.Compare(b.Jobs, a.Jobs) })
	return out, err
}
