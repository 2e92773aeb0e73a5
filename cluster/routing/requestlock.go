package routing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node"
)

const pathRequestLock = "/shard/attempt"

// requestLockCall asks for the lock on a request. Its answer starts when the caller has the lock,
// has a byte when a newer attempt arrives, and ends with the call.
type requestLockCall struct {
	Shard       uint32 `json:"shard"`
	RequestID   string `json:"requestId"`
	BudgetNanos int64  `json:"patienceNanos"`
}

// LockRequest locks a request that reserves from several shards, for one attempt, at the leader of
// one of them: see node.RequestMutex. If that leader ends meanwhile, the attempt goes on. The lock
// then does not exclude an attempt at the next leader.
func (r *Router) LockRequest(ctx context.Context, shard uint32, requestID string,
	wait time.Duration) (newer <-chan struct{}, end func(), err error) {
	p := newRetryBudget(ctx, LeaderWait, nil)
	err = r.routing.route(ctx, shard, p, func() error {
		if !r.Node.Serves(shard) {
			return fmt.Errorf("shard %d: %w", shard, node.ErrNotLeader)
		}
		newer, end, err = r.attempts.Lock(ctx, requestID, wait)
		return err
	}, func(server string) error {
		return r.forward(ctx, p.target(server, shard), oldLeaderGrace, func(ctx context.Context) error {
			call := requestLockCall{Shard: shard, RequestID: requestID, BudgetNanos: int64(wait)}
			newer, end, err = r.peers.lockRequest(ctx, server, call)
			return err
		})
	})
	if err != nil {
		return nil, nil, err
	}
	return newer, end, nil
}

// answerRequestLocks registers the call that locks requests.
func answerRequestLocks(p *Peers, host shardHost, attempts *node.RequestMutex) {
	p.mux.HandleFunc("POST "+pathRequestLock, func(w http.ResponseWriter, r *http.Request) {
		var call requestLockCall
		if err := json.NewDecoder(requestBody(w, r)).Decode(&call); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if !host.Serves(call.Shard) {
			writePeerError(w, fmt.Errorf("shard %d: %w", call.Shard, node.ErrNotLeader))
			return
		}
		newer, end, err := attempts.Lock(r.Context(), call.RequestID, time.Duration(call.BudgetNanos))
		if err != nil {
			writePeerError(w, err)
			return
		}
		defer end()
		// A caller that does not receive this has gone, and its context ends.
		answer := http.NewResponseController(w)
		w.WriteHeader(http.StatusOK)
		_ = answer.Flush()
		select {
		case <-newer:
			_, _ = w.Write([]byte{1})
			_ = answer.Flush()
			<-r.Context().Done()
		case <-r.Context().Done():
		}
	})
}

// lockRequest locks a request at another node.
func (p *Peers) lockRequest(
	ctx context.Context, server string, call requestLockCall,
) (newer <-chan struct{}, end func(), err error) {
	body, err := json.Marshal(call)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a call of %s: %w", pathRequestLock, err)
	}
	url, err := p.url(server, pathRequestLock)
	if err != nil {
		return nil, nil, err
	}
	// The lock outlives the caller's context: there may be jobs to give back.
	lockCtx, release := context.WithCancel(context.WithoutCancel(ctx))
	waiting := context.AfterFunc(ctx, release)
	request, err := http.NewRequestWithContext(lockCtx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		release()
		return nil, nil, fmt.Errorf("%w: %w", node.ErrNoLeader, err)
	}
	orderBody(request)
	response, err := p.client.Do(request)
	if err == nil && response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		_, err = readAnswer(lockCtx, response)
	} else if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w: %w", node.ErrNoLeader, errAgain, err) // it changed nothing
	} else if err != nil {
		err = fmt.Errorf("%w: %w", node.ErrCanceled, err)
	}
	if err == nil && !waiting() {
		err = fmt.Errorf("%w: %w", node.ErrCanceled, errors.Join(context.Cause(ctx), response.Body.Close()))
	}
	if err != nil {
		release()
		return nil, nil, fmt.Errorf("locking a request at %s: %w", server, err)
	}
	newerCh := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		if n, _ := response.Body.Read(make([]byte, 1)); n > 0 {
			close(newerCh)
		}
	})
	return newerCh, func() {
		release()
		reading.Wait()
		_ = response.Body.Close() // the lock was released
	}, nil
}
