package mirror

import (
	"context"
	"errors"

	"github.com/belfrydb/belfry/client"
)

// putAll puts jobs until Belfry has answered for each: done is called for those that it has, with [client.ErrJobExists] in the result if it had the id with other content, and refused for those that it will never
// take, both with the place in puts. What it refuses for the time being is put again. The error is that of ctx, or says that the client lacks a right.
func (l *link) putAll(ctx context.Context, puts []client.Put, done func(n int, r client.PutResult), refused func(n int, why error)) error {
	places := make([]int, len(puts))
	for n := range places {
		places[n] = n
	}
	for retry := (backoff{}); len(places) > 0; {
		batch := make([]client.Put, len(places))
		for n, place := range places {
			batch[n] = puts[place]
		}
		results, _ := l.belfry.PutBatch(ctx, batch) // the results have the errors
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
				l.notice(r.Err)
				again = append(again, places[n])
			}
		}
		if places = again; len(places) > 0 {
			if err := retry.wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
