package cluster

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

// pathRelay begins the paths of calls to another node that one which cannot reach it makes by way of a third: the server id and the path of the call
// follow. A call is relayed once.
const pathRelay = "/relay/"

// errNotUnderstood is the answer of an older program to pathReach.
var errNotUnderstood = errors.New("the node does not know the question")

// errNotRelayed says that a call that was to be passed on was not. Nothing of it was sent.
var errNotRelayed = errors.New("the call was not passed on")

// url returns where to send a call of a server, which goes by way of another node if it cannot be reached straight.
func (p *peers) url(server, path string) (string, error) {
	via := ""
	if p.contacts != nil && path != pathJoin {
		var err error
		if via, err = p.contacts.detour(server); err != nil {
			return "", err
		}
	}
	if via == "" {
		return "http://" + server + path, nil
	}
	return "http://" + via + pathRelay + server + path, nil
}

// direct reports whether calls of a server go straight to it, if they go anywhere.
func (p *peers) direct(server string) bool {
	if p.contacts == nil {
		return true
	}
	via, err := p.contacts.detour(server)
	return via == "" && err == nil
}

// answerRelay passes calls of other nodes on, and their answers back.
func (p *peers) answerRelay() {
	p.mux.HandleFunc("POST "+pathRelay+"{server}/{path...}", func(w http.ResponseWriter, r *http.Request) {
		server, path := r.PathValue("server"), "/"+r.PathValue("path")
		if strings.HasPrefix(path, pathRelay) || path == pathJoin {
			http.Error(w, "a call of "+path+" is not relayed", http.StatusBadRequest)
			return
		}
		if p.contacts.doubts(server) {
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
		if err := passOn(w, response.Body); err != nil {
			panic(http.ErrAbortHandler) // the caller must not take what it has for the whole answer
		}
	})
}

// passOn sends on what comes, as it comes.
func passOn(w http.ResponseWriter, from io.Reader) error {
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

// askReachOf returns askReach for a node, which hears how full the memory of those is that answer.
func (p *peers) askReachOf(n *node.Node) func(context.Context, string) (reachAnswer, error) {
	return func(ctx context.Context, server string) (reachAnswer, error) {
		a, err := p.askReach(ctx, server)
		n.NotePeerMemory(server, a.Memory, err)
		return a, err
	}
}

// askReach asks a node whom it cannot reach. Any whole answer shows that it was reached.
func (p *peers) askReach(ctx context.Context, server string) (a reachAnswer, err error) {
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
	body, err := readPaced(response.Body, peerBytesMax)
	if err != nil { // the answer broke off
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
