package lab

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestAwait looks again until the cluster is as wanted, also when a look fails, and says what was
// seen last if it never is.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		look := func(context.Context) (*belfryv1.GetClusterResponse, error) {
			if looks++; looks == 1 {
				return nil, errors.New("deaf")
			}
			return &belfryv1.GetClusterResponse{Problems: make([]string, max(0, 3-looks))}, nil
		}
		healthy := func(s *belfryv1.GetClusterResponse) bool { return len(s.GetProblems()) == 0 }
		if err := await(t.Context(), "health", look, healthy); err != nil || looks != 3 {
			t.Errorf("after %d looks: %v", looks, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		sick := func(context.Context) (*belfryv1.GetClusterResponse, error) {
			return &belfryv1.GetClusterResponse{Problems: []string{"n3 is silent"}}, nil
		}
		if err := await(ctx, "health", sick, healthy); err == nil || !strings.Contains(err.Error(), "n3 is silent") {
			t.Errorf("have %v", err)
		}
	})
}
