package ui

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	g "maragu.dev/gomponents"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/fallback"
	"github.com/belfrydb/belfry/rpc/ui/recent"
)

// reads are values that pages share, with their age.
type reads[T any] = *recent.Reads[fallback.Dated[T]]

func newReads[T any](fresh, old time.Duration) reads[T] {
	return recent.New[fallback.Dated[T]](fresh, old)
}

// shared returns what pages read together for the token of a person. A page that shows what replicas
// gave is marked. ctx is that of the page, or of another read that pages share.
func shared[T any](ctx context.Context, token string, from reads[T], read func(context.Context) (T, error)) (T, error) {
	got, err := from.Get(ctx, token, func(ctx context.Context) (fallback.Dated[T], error) {
		return fallback.Read(ctx, read)
	})
	if err == nil {
		fallback.Join(ctx, got.Age())
	}
	return got.Value, err
}

// catalogAge says how old it is what this node knows of tokens, namespaces and tasks, if it is old. It
// says nothing to a person whose token does not show the cluster.
func (v *visit) catalogAge() g.Node {
	cluster, err := v.pages.admin.GetCluster(v.ctx, &belfryv1.GetClusterRequest{})
	if err != nil {
		return nil
	}
	return fallback.MarkCatalog(cluster, v.clock)
}

// forbidden reports whether the person's token does not allow a call.
func forbidden(err error) bool {
	var failure *connect.Error
	return errors.As(err, &failure) && failure.Code() == connect.CodePermissionDenied
}
