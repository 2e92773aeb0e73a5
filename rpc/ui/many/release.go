package many

import (
	"context"
	"maps"
	"slices"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// Releaser releases leases, as the client of AdminService does.
type Releaser interface {
	ReleaseLeases(context.Context, *belfryv1.ReleaseLeasesRequest) (*belfryv1.ReleaseLeasesResponse, error)
}

// releasedAtOnce is how many jobs a call releases at most.
const releasedAtOnce = 1000

// Release gives back the jobs of queues that a consumer holds: of each queue at most as many as it has
// there, and of all together at most so many. It returns how many were given back. of has what the
// calls have in common. After an error others may have been given back; the same call with the same
// request id goes on.
func Release(ctx context.Context, by Releaser, of *belfryv1.ReleaseLeasesRequest, queues map[string]uint64,
	most uint64) (uint64, error) {
	var mu sync.Mutex
	var calls sync.WaitGroup
	var first error
	done, slots := uint64(0), make(chan struct{}, callsAtOnce)
	for _, queue := range slices.Sorted(maps.Keys(queues)) {
		part := min(queues[queue], most)
		if most -= part; part == 0 {
			continue
		}
		req := proto.CloneOf(of)
		req.Queue = queue
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			n, err := releaseIn(ctx, by, req, part)
			mu.Lock()
			defer mu.Unlock()
			done += n
			if first == nil && connect.CodeOf(err) != connect.CodeNotFound { // a queue that is deleted has no jobs
				first = err
			}
		})
	}
	calls.Wait()
	return done, first
}

// releaseIn is Release for one queue. It changes the request.
func releaseIn(ctx context.Context, by Releaser, req *belfryv1.ReleaseLeasesRequest, most uint64) (uint64, error) {
	done := uint64(0)
	for left := most; left > 0; {
		req.Max = uint32(min(left, releasedAtOnce))
		res, err := by.ReleaseLeases(ctx, req)
		if err != nil {
			if f, ok := fault.FromConnect(err); ok && f.Count != nil {
				done += *f.Count
			}
			return done, err
		}
		done += uint64(res.Released)
		left -= min(left, uint64(res.Released)+uint64(res.Skipped))
		if req.PageToken = res.NextPageToken; req.PageToken == "" {
			break
		}
	}
	return done, nil
}
