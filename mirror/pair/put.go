package pair

import (
	"context"
	"errors"

	"github.com/belfrydb/belfry/client"
	"golang.org/x/sync/errgroup"
)

// PutAll puts jobs until Belfry has answered for each. It calls done for each job that Belfry has,
// with [client.ErrJobExists] in the result if Belfry had the id with other content. It calls
// refused for each job that Belfry will never take; n is the position in puts. It retries temporary
// refusals. It returns an error if ctx ends or the client lacks a right.
func (l *Link) PutAll(ctx context.Context, puts []client.Put, done func(n int, r client.PutResult),
	refused func(n int, why error)) error {
	places := make([]int, len(puts))
	for n := range places {
		places[n] = n
	}
	for retry := (Backoff{}); len(places) > 0; {
		batch := make([]client.Put, len(places))
		for n, place := range places {
			batch[n] = puts[place]
		}
		results, _ := l.Belfry.PutBatch(ctx, batch) // the results have the errors
		again := places[:0]
		for n, r := range results {
			switch {
			case r.Err == nil || errors.Is(r.Err, client.ErrJobExists):
				done(places[n], r)
			case errors.Is(r.Err, client.Reason("INVALID")), errors.Is(r.Err, client.Reason("TOO_LARGE")):
				refused(places[n], r.Err)
			case errors.Is(r.Err, client.Reason("UNAUTHENTICATED")), errors.Is(r.Err, client.Reason("FORBIDDEN")):
				return r.Err
			default:
				l.Notice(r.Err)
				again = append(again, places[n])
			}
		}
		if places = again; len(places) > 0 {
			if err := retry.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// IsGone reports whether an error of Belfry says that there is no such job or queue.
func IsGone(err error) bool {
	return errors.Is(err, client.ErrJobNotFound) || errors.Is(err, client.Reason("QUEUE_NOT_FOUND"))
}

// atOnce is how many calls of Each are under way at a time.
const atOnce = 64

// Each calls f for all elements of a list, up to 64 at a time, and returns the first error. The
// context of the others ends then. The SDK makes batches of calls that are made at the same time.
func Each[T any](ctx context.Context, all []T, f func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, one := range all {
		group.Go(func() error { return f(ctx, one) })
	}
	return group.Wait()
}
