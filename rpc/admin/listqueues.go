package admin

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/auth"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// ListQueues implements AdminService.
func (s *Service) ListQueues(ctx context.Context,
	req *belfryv1.ListQueuesRequest) (*belfryv1.ListQueuesResponse, error) {
	c := s.rules.Request(ctx, tokens.View)
	most := c.Page("pageSize", req.GetPageSize())
	if len(req.GetPrefix()) > s.rules.Limits.QueueBytesMax {
		c.Fail(fault.TooLarge("prefix", len(req.GetPrefix()), s.rules.Limits.QueueBytesMax))
	}
	after := c.QueueToken("pageToken", req.GetPageToken())
	if c.Err != nil {
		return nil, c.Err
	}
	from := shardcall.Reader{Router: s.router, Stale: req.GetStale()}
	out := &belfryv1.ListQueuesResponse{Stale: req.GetStale()}
	var due fsm.Due
	for _, names := range c.Permissions.NamesUnder(req.GetPrefix()) {
		parts, err := readQueues(ctx, from, names, after, most+1-len(out.Queues))
		if err != nil {
			return nil, err
		}
		for len(parts) > 0 {
			n := sameName(parts)
			if len(out.Queues) == most {
				out.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(out.Queues[most-1].GetName()))
				out.Due = wire.DueHistogram(&due)
				return out, nil
			}
			out.Queues = append(out.Queues, s.listed(parts[:n], &due))
			parts = parts[n:]
		}
	}
	out.Due = wire.DueHistogram(&due)
	return out, nil
}

// sameName returns how many parts at the beginning of a list are of one queue.
func sameName(parts []queuePart) int {
	n := 1
	for n < len(parts) && parts[n].Name == parts[0].Name {
		n++
	}
	return n
}

// A queueScan reads the queues of one shard in the order of their names.
type queueScan struct {
	shard uint32
	// after is the last name that was read, and more says that there are later ones.
	after string
	more  bool
}

// readQueues returns the parts of the queues in a range of names, in the order of the names. It
// returns those of at least so many queues, if there are so many after the given name. It asks each
// shard for the queues that it holds if all hold about as many, and again if that is too few: asked
// for all at once, the shards would count as many queues for a page as they hold together.
func readQueues(ctx context.Context, from shardcall.Reader, names auth.NameRange, after string,
	wanted int) ([]queuePart, error) {
	scans := make([]*queueScan, from.Node.ShardCount())
	for i := range scans {
		scans[i] = &queueScan{shard: uint32(i), after: after}
	}
	atOnce := min(wanted, wanted*5/4/len(scans)+16)
	if names.One {
		atOnce = 1 // the queue comes first, if it exists
	}
	var all []queuePart
	for pending := scans; ; atOnce = min(wanted, 2*atOnce) {
		parts, err := readOn(ctx, from, pending, names.Prefix, atOnce)
		if err != nil {
			return nil, err
		}
		all = append(all, parts...)
		slices.SortStableFunc(all, func(a, b queuePart) int { return cmp.Compare(a.Name, b.Name) })
		if names.One {
			return slices.DeleteFunc(all, func(p queuePart) bool { return p.Name != names.Prefix }), nil
		}
		n := partsOf(all, wanted)
		// Every shard must have shown all that it has up to the last of these queues.
		pending = slices.DeleteFunc(slices.Clone(scans), func(s *queueScan) bool {
			return !s.more || n > 0 && s.after >= all[n-1].Name
		})
		switch {
		case len(pending) > 0:
		case n > 0:
			return all[:n], nil
		default:
			return all, nil
		}
	}
}

// readOn reads the next queues of some shards, at most so many of each.
func readOn(ctx context.Context, from shardcall.Reader, scans []*queueScan, prefix string,
	atOnce int) ([]queuePart, error) {
	shards := make([]uint32, len(scans))
	for i, s := range scans {
		shards[i] = s.shard
	}
	readings, _, err := from.ReadAll(ctx, shards, func(i int) fsm.Query {
		return &fsm.QueuesQuery{Prefix: prefix, After: scans[i].after, Max: atOnce}
	})
	if err != nil {
		return nil, err
	}
	for i, s := range scans {
		if read := readings[i].Queues; len(read) > 0 {
			s.after = read[len(read)-1].Name
		}
		s.more = readings[i].More
	}
	return queueParts(readings), nil
}

// partsOf returns how many parts at the beginning of a list are of its first queues, so many as are
// wanted; 0 if the list has fewer queues.
func partsOf(parts []queuePart, wanted int) (n int) {
	for ; wanted > 0; wanted-- {
		if n == len(parts) {
			return 0
		}
		n += sameName(parts[n:])
	}
	return n
}

// listed sums up the parts of a queue for a list. It adds the due times of the queue's jobs to all,
// which has those of all queues in the list.
func (s *Service) listed(parts []queuePart, all *fsm.Due) *belfryv1.Queue {
	var due fsm.Due
	for i := range parts {
		wire.AddDueSums(&due, &parts[i].Due)
		wire.AddDue(all, &parts[i].Due)
	}
	out := s.wireQueue(parts)
	out.Due = wire.DueSums(&due)
	return out
}
