package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"

	"github.com/belfrydb/belfry/node"
)

// pathRelay starts the path of a relayed call. A node that cannot reach the callee sends the call
// to a third node. The callee's server id and the call's path follow. A call is relayed once.
const pathRelay = "/relay/"

// errNotUnderstood is the answer of an older program to pathReach.
var errNotUnderstood = errors.New("the node does not know this call")

// errNotRelayed says that a call was not relayed. No part of it was sent.
var errNotRelayed = errors.New("the call was not relayed")

// url returns the URL of a call to a server. It leads through a relay if this node cannot reach
// the server.
func (p *Peers) url(server, path string) (string, error) {
	via := ""
	if p.reachability != nil && path != JoinPath {
		var err error
		if via, err = p.reachability.relayFor(server); err != nil {
			return "", err
		}
	}
	if via == "" {
		return "http://" + server + path, nil
	}
	return "http://" + via + pathRelay + server + path, nil
}

// direct reports whether calls go to a server without a relay, if they go there at all.
func (p *Peers) direct(server string) bool {
	if p.reachability == nil {
		return true
	}
	via, err := p.reachability.relayFor(server)
	return via == "" && err == nil
}

// answerRelay relays calls of other nodes, and their answers.
func (p *Peers) answerRelay() {
	p.mux.HandleFunc("POST "+pathRelay+"{server}/{path...}", func(w http.ResponseWriter, r *http.Request) {
		server, path := r.PathValue("server"), "/"+r.PathValue("path")
		if strings.HasPrefix(path, pathRelay) || path == JoinPath {
			http.Error(w, "a call of "+path+" is not relayed", http.StatusBadRequest)
			return
		}
		if p.reachability.isSuspect(server) {
			writePeerError(w, fmt.Errorf("%w: it does not reach %s either", errNotRelayed, server))
			return
		}
		if r.URL.RawQuery != "" {
			path += "?" + r.URL.RawQuery
		}
		var sent atomic.Bool
		ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+server+path, r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		response, err := p.client.Do(request)
		if err != nil {
			if err = unreached(ctx, sent.Load(), err); errors.Is(err, errAgain) {
				err = fmt.Errorf("%w: %w", errNotRelayed, err)
			}
			writePeerError(w, err)
			return
		}
		defer response.Body.Close()
		w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
		w.WriteHeader(response.StatusCode)
		if err := copyFlushed(w, response.Body); err != nil {
			panic(http.ErrAbortHandler) // the caller must not treat the received part as the whole answer
		}
	})
}

// copyFlushed copies an answer and flushes each part as it arrives.
func copyFlushed(w http.ResponseWriter, from io.Reader) error {
	answer := http.NewResponseController(w)
	room := make([]byte, 32<<10)
	for {
		if err := answer.Flush(); err != nil {
			return fmt.Errorf("passing an answer on: %w", err)
		}
		n, err := from.Read(room)
		if _, failed := w.Write(room[:n]); failed != nil {
			return fmt.Errorf("passing an answer on: %w", failed)
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading an answer to be passed on: %w", err)
		}
	}
}

// askReachOf returns askReach for a node. The node learns how full the memory of the answering
// peers is.
func (p *Peers) askReachOf(n *node.Node) func(context.Context, string) (reachAnswer, error) {
	return func(ctx context.Context, server string) (reachAnswer, error) {
		a, err := p.askReach(ctx, server)
		n.NotePeerMemory(server, a.Memory, err)
		return a, err
	}
}

// askReach asks a node which other nodes it cannot reach. Any complete answer shows that this node
// reaches it.
func (p *Peers) askReach(ctx context.Context, server string) (a reachAnswer, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+server+pathReach, strings.NewReader("{}"))
	if err != nil {
		return a, fmt.Errorf("%w: %w", node.ErrNoLeader, err)
	}
	orderBody(request)
	response, err := p.client.Do(request)
	if err != nil {
		return a, fmt.Errorf("asking %s whom it reaches: %w", server, err)
	}
	defer response.Body.Close()
	body, err := readBody(response.Body, peerBytesMax)
	if err != nil { // the answer was cut off
		return a, fmt.Errorf("asking %s whom it reaches: %w", server, err)
	}
	if response.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%w: status %d", errNotUnderstood, response.StatusCode)
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return a, fmt.Errorf("%w: %w", errNotUnderstood, err)
	}
	return a, nil
}
