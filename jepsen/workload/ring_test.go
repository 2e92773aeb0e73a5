package workload

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestRingAllWithoutLeader: no call waits in vain for a shard that changes its leader at a try, and
// the other shards decide. A shard that never has a leader is reported.
func TestRingAllWithoutLeader(t *testing.T) {
	for _, tt := range []struct {
		refused int
		want    string
	}{
		{ringTries - 1, ""},
		{ringTries, "a put at n1: the shard had no leader"},
	} {
		f := newFake(t, "n1")
		puts := 0
		f.answer = func(context.Context, *belfryv1.PutRequest) (*belfryv1.PutResponse, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if puts++; puts <= tt.refused {
				return nil, refusal(t, &errdetails.ErrorInfo{Domain: "belfry", Reason: "NO_LEADER",
					Metadata: map[string]string{"outcome": "NOT_APPLIED"}})
			}
			f.jobs = append(f.jobs, fmt.Sprint("lease-", puts))
			return &belfryv1.PutResponse{Created: true}, nil
		}
		took, err := RingAll(t.Context(), f.target(), Due)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d of %d puts refused: %v after %v, want %q", tt.refused, ringTries, err, took, tt.want)
		}
	}
}
