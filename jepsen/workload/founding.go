package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// Founding is the name in the history of the calls that are made while a cluster is founded, and of
// their queue.
const Founding = "founding"

const (
	// foundingClients is how many clients put through each node, foundingPause the time between two
	// puts of one, foundingCallMax how long one may take.
	foundingClients = 2
	foundingPause   = 30 * time.Millisecond
	foundingCallMax = 2 * time.Second
)

// PutWhileFounded puts jobs through every node, from before it runs, until ctx ends.
func PutWhileFounded(ctx context.Context, target Target, seed uint64) error {
	var putting sync.WaitGroup
	var clients []*Client
	var failed error
	for _, node := range target.Nodes() {
		for i := range foundingClients {
			c, err := NewClient(target, Founding, fmt.Sprintf("%s-%s-%d", Founding, node, i+1), seed)
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			clients = append(clients, c)
			putting.Go(func() {
				defer c.Close()
				for c.err == nil && pause(ctx, foundingPause) {
					c.Ask(node)
					limited, cancel := context.WithTimeout(ctx, foundingCallMax)
					c.put(limited, &belfryv1.PutRequest{Queue: Founding, Body: &belfryv1.PutRequest_Data{Data: c.body(32)},
						RequestId: c.requestID()})
					cancel()
				}
			})
		}
	}
	putting.Wait()
	for _, c := range clients {
		failed = errors.Join(failed, c.err)
	}
	return failed
}
