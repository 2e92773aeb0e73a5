package many

import (
	"context"

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

// Release gives back the jobs of queues that a consumer holds, at most so many. It returns how many were
// given back. of has what the calls have in common. After an error others may have been given back; a
// repeat goes on.
func Release(ctx context.Context, by Releaser, of *belfryv1.ReleaseLeasesRequest, queues []string,
	most uint64) (done uint64, err error) {
	for _, queue := range queues {
		req := proto.CloneOf(of)
		req.Queue = queue
		n, err := releaseIn(ctx, by, req, most-min(most, done))
		done += n
		if err != nil && connect.CodeOf(err) != connect.CodeNotFound { // a queue that is deleted has no jobs
			return done, err
		}
	}
	return done, nil
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
