package cluster

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

const pathAttempt = "/shard/attempt"

// attemptCall asks for the turn of an attempt at a request. Its answer begins when it is the attempt's turn, has a byte when a newer one comes, and
// ends with the call.
type attemptCall struct {
	Shard       uint32 `json:"shard"`
	RequestID   string `json:"requestId"`
	BudgetNanos int64  `json:"patienceNanos"`
}

// Attempt takes the turn of an attempt at a request that reserves from several shards, at the leader of one of them: see node.Attempts. If that leader ends
// meanwhile, the attempt goes on, and one that comes to the next leader then is not kept apart from it.
func (r *Router) Attempt(ctx context.Context, shard uint32, requestID string, wait time.Duration) (newer <-chan struct{}, end func(), err error) {
	p := newRetryBudget(ctx, leaderWait, nil)
	err = r.routing.route(ctx, shard, p, func() error {
		if !r.Node.Serves(shard) {
			return fmt.Errorf("shard %d: %w", shard, node.ErrNotLeader)
		}
		newer, end, err = r.attempts.Lock(ctx, requestID, wait)
		return err
	}, func(server string) error {
		return r.forward(ctx, p.target(server, shard), oldLeaderGrace, func(ctx context.Context) error {
			newer, end, err = r.peers.attempt(ctx, server, attemptCall{Shard: shard, RequestID: requestID, BudgetNanos: int64(wait)})
			return err
		})
	})
	if err != nil {
		return nil, nil, err
	}
	return newer, end, nil
}

// answerAttempts registers the calls of attempts.
func answerAttempts(p *peers, host shardHost, attempts *node.RequestMutex) {
	p.mux.HandleFunc("POST "+pathAttempt, func(w http.ResponseWriter, r *http.Request) {
		var call attemptCall
		if err := json.NewDecoder(inbound(w, r)).Decode(&call); err != nil {
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
		// A caller that does not hear of this has gone, and its context ends.
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

// attempt takes the turn of an attempt at another node.
func (p *peers) attempt(ctx context.Context, server string, call attemptCall) (newer <-chan struct{}, end func(), err error) {
	body, err := json.Marshal(call)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a call of %s: %w", pathAttempt, err)
	}
	url, err := p.url(server, pathAttempt)
	if err != nil {
		return nil, nil, err
	}
	// What ends the caller's context does not end the turn: there may be jobs to give back.
	holding, leave := context.WithCancel(context.WithoutCancel(ctx))
	waits := context.AfterFunc(ctx, leave)
	request, err := http.NewRequestWithContext(holding, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		leave()
		return nil, nil, fmt.Errorf("%w: %w", node.ErrNoLeader, err)
	}
	orderBody(request)
	response, err := p.client.Do(request)
	if err == nil && response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		_, err = readAnswer(holding, response)
	} else if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w: %w", node.ErrNoLeader, errAgain, err) // it changed nothing
	} else if err != nil {
		err = fmt.Errorf("%w: %w", node.ErrCanceled, err)
	}
	if err == nil && !waits() {
		err = fmt.Errorf("%w: %w", node.ErrCanceled, errors.Join(context.Cause(ctx), response.Body.Close()))
	}
	if err != nil {
		leave()
		return nil, nil, fmt.Errorf("taking a turn at %s: %w", server, err)
	}
	came := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		if n, _ := response.Body.Read(make([]byte, 1)); n > 0 {
			close(came)
		}
	})
	return came, func() {
		leave()
		reading.Wait()
		_ = response.Body.Close() // it was given up
	}, nil
}
