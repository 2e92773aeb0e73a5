package routing

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/stream"
)

const (
	// peerBytesMax bounds the body of a call between nodes, and of its answer.
	peerBytesMax = 64 << 20
	// peerHeaderWait bounds how long a peer may take to send the header of a call.
	peerHeaderWait = 10 * time.Second
	// peerPingAfter is the silence after which a connection is pinged. peerPingWait is how long the
	// answer may take. A call that waits for a job must notice that the other node is gone.
	peerPingAfter = 5 * time.Second
	peerPingWait  = 5 * time.Second
	// peerDialWait bounds one attempt to reach a node. Calls that could go to the next leader wait
	// for it.
	peerDialWait = 2 * time.Second
	// peerCloseWait is how long calls under way may take when a node stops. Calls that wait for
	// jobs are sent elsewhere.
	peerCloseWait = time.Second
	// peerCallsMax bounds the calls on one connection. Each poll that waits at another node is one
	// call. Calls beyond the bound need another connection, and a node accepts few from each peer.
	peerCallsMax = 1 << 16
	// peerConnsMax bounds the connections to a node. Calls that arrive while the first connection
	// is being made must not each make one.
	peerConnsMax = 4
)

// JoinPath is the one call that a server may make which is no node of the cluster. It is not
// relayed.
const JoinPath = "/join"

// Link makes and accepts the connections between nodes. The peer at the other end of a connection
// is the server that its handshake named. *node.Node implements it.
type Link interface {
	// PeerListener accepts connections of peers that call. Each has a method Peer that returns the
	// server id.
	PeerListener() net.Listener
	// DialPeer connects to the server with the given id.
	DialPeer(ctx context.Context, serverID string) (net.Conn, error)
}

// Peers makes calls to other nodes and answers theirs, on the one peer port: calls of shards in
// streams, which are connections upgraded from HTTP/1.1, and all other calls over HTTP/2. A server
// id is the host of a URL.
type Peers struct {
	link    Link
	client  http.Client
	server  http.Server
	mux     *http.ServeMux
	streams peerStreams
	serving *stream.Server // streams of other nodes
	// reachability knows which nodes are reached, and which nodes relay calls to the others. It is
	// nil if no call is relayed.
	reachability *Reachability
	// member reports whether a server may call; nil allows every server.
	member func(serverID string) bool
	// format returns the format in which requests are written; nil for the first.
	format func() fsm.Format
	// closing is closed when no more calls are accepted.
	closing chan struct{}
}

// OpenPeers returns the calls of a node. It answers no node before Serve.
func OpenPeers(n *node.Node, logger *slog.Logger) *Peers {
	p := newPeers(n, logger)
	p.format = n.Format
	p.reachability = newReachability(n.Status().ServerID, p.askReachOf(n))
	return p
}

// AdmitOnly makes p answer only the servers that member reports to be nodes of the cluster, and the
// call JoinPath of others. Call it before Serve.
func (p *Peers) AdmitOnly(member func(serverID string) bool) { p.member = member }

// Reachability returns what this node knows of which nodes it reaches.
func (p *Peers) Reachability() *Reachability { return p.reachability }

// peerKey is the context key of the server id at the other end of a connection.
type peerKey struct{}

func newPeers(link Link, logger *slog.Logger) *Peers {
	p := &Peers{link: link, mux: http.NewServeMux(), closing: make(chan struct{})}
	p.serving = p.newStreamServer()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	http2 := &http.HTTP2Config{
		SendPingTimeout: peerPingAfter, PingTimeout: peerPingWait, MaxConcurrentStreams: peerCallsMax,
	}
	p.client.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			server, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, fmt.Errorf("no server id in %q: %w", address, err)
			}
			return p.dial(ctx, server)
		},
		Protocols: protocols, HTTP2: http2, DisableCompression: true, MaxConnsPerHost: peerConnsMax,
	}
	served := new(http.Protocols)
	served.SetUnencryptedHTTP2(true)
	served.SetHTTP1(true) // only requests for streams use it
	p.server = http.Server{
		Handler: http.HandlerFunc(p.admit), Protocols: served, HTTP2: http2, ReadHeaderTimeout: peerHeaderWait,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			if peer, ok := conn.(interface{ Peer() string }); ok {
				ctx = context.WithValue(ctx, peerKey{}, peer.Peer())
			}
			return ctx
		},
	}
	return p
}

// admit answers calls of members. Other servers may only ask to become members: a server that was
// removed, or never admitted, must not change anything.
func (p *Peers) admit(w http.ResponseWriter, r *http.Request) {
	from, _ := r.Context().Value(peerKey{}).(string)
	if r.ProtoMajor == 1 && r.URL.Path != pathStream {
		http.Error(w, "nodes call each other over HTTP/2", http.StatusHTTPVersionNotSupported)
		return
	}
	if r.URL.Path != JoinPath {
		if err := p.admits(from); err != nil {
			writePeerError(w, err)
			return
		}
	}
	p.mux.ServeHTTP(w, r)
}

// admits returns nil if a server may call.
func (p *Peers) admits(server string) error {
	if p.member == nil || p.member(server) {
		return nil
	}
	return fmt.Errorf("%w: %s is not a node of the cluster, or not yet as far as this node knows", node.ErrNoLeader,
		server)
}

// Serve answers calls until the listener or the server is closed.
func (p *Peers) Serve(listener net.Listener) error {
	err := p.server.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("answering the calls of other nodes: %w", err)
}

// Close accepts no more calls and sends calls that wait for jobs elsewhere. It gives the other
// calls a moment for their answers, since their callers would not know the outcome. Then it ends
// all calls.
func (p *Peers) Close(ctx context.Context) error {
	close(p.closing)
	ctx, cancel := context.WithTimeout(ctx, peerCloseWait)
	defer cancel()
	p.streams.Retire()
	err := errors.Join(p.server.Shutdown(ctx), p.serving.Wait(ctx))
	p.streams.Wait(ctx)
	p.client.CloseIdleConnections()
	if ctx.Err() == nil {
		return err
	}
	return p.server.Close()
}

// Handle answers calls of a path with what f returns.
func Handle[Q, R any](p *Peers, path string, f func(ctx context.Context, from string, request Q) (R, error)) {
	p.Handle(path, func() any { return new(Q) }, func(ctx context.Context, request any) (any, error) {
		from, _ := ctx.Value(peerKey{}).(string)
		return f(ctx, from, *request.(*Q))
	})
}

// Handle answers calls of a path with what answer returns. newRequest returns a pointer to decode a
// request into, which answer gets.
func (p *Peers) Handle(
	path string, newRequest func() any, answer func(ctx context.Context, request any) (any, error),
) {
	p.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		request := newRequest()
		err := json.NewDecoder(requestBody(w, r)).Decode(request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		response, err := answer(r.Context(), request)
		if err != nil {
			writePeerError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(response) // the caller is gone, or gets it
	})
}

// Call makes a call. An error of the node package comes back as the same error. If it is
// unknown whether the call was carried out, the error is node.ErrUnknownOutcome.
func Call[R, Q any](ctx context.Context, p *Peers, server, path string, request Q) (R, error) {
	var response R
	err := p.Call(ctx, server, path, request, &response)
	return response, err
}

// Call makes a call and decodes the answer into response, a pointer.
func (p *Peers) Call(ctx context.Context, server, path string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding a call of %s: %w", path, err)
	}
	answer, err := p.post(ctx, server, path, body)
	if err != nil {
		return fmt.Errorf("calling %s of %s: %w", path, server, err)
	}
	if err := json.Unmarshal(answer, response); err != nil {
		return fmt.Errorf("decoding the answer of %s to %s: %w: %w", server, path, node.ErrUnknownOutcome, err)
	}
	return nil
}

// post sends a request and returns the answer.
func (p *Peers) post(ctx context.Context, server, path string, body []byte) ([]byte, error) {
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	url, err := p.url(server, path)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", node.ErrNoLeader, err)
	}
	orderBody(request)
	response, err := p.client.Do(request)
	if err != nil {
		return nil, unreached(ctx, sent.Load(), err)
	}
	defer response.Body.Close()
	return readAnswer(ctx, response)
}

// orderBody orders a finished read of a request's body before the next call of GetBody. net/http
// repeats a call that the other end did not accept because it closed the connection just then. It
// then checks whether the body was read. Its own goroutine that reads may still run, and nothing
// else orders the two (golang/go#25009, golang/go#41234). A read that begins later is still a race
// of net/http with itself: orderBody makes it rare, and does not remove it.
func orderBody(request *http.Request) {
	if request.GetBody == nil || request.Body == http.NoBody {
		return
	}
	body := &orderedBody{ReadCloser: request.Body}
	again := request.GetBody
	request.Body = body
	request.GetBody = func() (io.ReadCloser, error) {
		body.mu.Lock()
		defer body.mu.Unlock()
		return again()
	}
}

// orderedBody is a request body whose reads hold a lock. See orderBody.
type orderedBody struct {
	mu sync.Mutex
	io.ReadCloser
}

// Read implements io.Reader.
func (b *orderedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ReadCloser.Read(p)
}

// readAnswer returns the body of an answer, or the error that it is.
func readAnswer(ctx context.Context, response *http.Response) ([]byte, error) {
	answer, err := readBody(response.Body, peerBytesMax+1)
	switch {
	case err != nil:
		return nil, unreached(ctx, true, err)
	case len(answer) > peerBytesMax:
		return nil, fmt.Errorf("%w: the answer is larger than %d bytes", node.ErrUnknownOutcome, peerBytesMax)
	case response.StatusCode != http.StatusOK:
		return nil, readPeerError(response.StatusCode, answer)
	}
	return answer, nil
}

// unreached returns the error of a call that failed in transport.
func unreached(ctx context.Context, sent bool, err error) error {
	switch {
	case sent:
		return fmt.Errorf("%w: %w", node.ErrUnknownOutcome, err)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", node.ErrCanceled, err)
	default:
		return fmt.Errorf("%w: %w: %w", node.ErrNoLeader, errAgain, err)
	}
}

// The names of errors that concern the called node itself. To the caller they only mean that
// another node may accept the call.
const (
	nameStopping   = "shutting_down"
	nameBehind     = "behind"
	nameNotRelayed = "not_relayed"
)

// peerErrors returns the errors that nodes send each other, by name. All but those about the node
// itself keep their identity.
func peerErrors() map[string]error {
	return map[string]error{
		"not_leader": node.ErrNotLeader, "no_leader": node.ErrNoLeader, "overloaded": node.ErrOverloaded,
		nameStopping: node.ErrShuttingDown,
		"quota":      node.ErrQuota, "share_unknown": node.ErrQuotaUnknown, "rate_limited": node.ErrRateLimited,
		"disk_full": node.ErrDiskFull, "memory_full": node.ErrMemoryFull, "too_few_voters": node.ErrTooFewVoters,
		"no_queue": node.ErrNoQueue, "clock_ahead": node.ErrClockAhead, "canceled": node.ErrCanceled,
		"too_large": node.ErrTooLarge, "unsupported": node.ErrUnsupported,
		"unknown_shard": node.ErrUnknownShard, "restoring": node.ErrRestoring, "disproved": node.ErrDisproved,
		"not_here":  node.ErrNotHere,
		"overtaken": node.ErrOvertaken, "silent": node.ErrSilent, "unknown_outcome": node.ErrUnknownOutcome,
		"queue_exists": catalog.ErrQueueExists, "queue_gone": catalog.ErrQueueGone, "name_taken": catalog.ErrNameTaken,
		"format": catalog.ErrFormat, nameBehind: errBehind, nameNotRelayed: errNotRelayed,
	}
}

// saysMore reports whether the name of an error is more specific than another one. Of any two
// different names one is.
func saysMore(name, than string) bool {
	vague := []string{"unknown_outcome", "canceled", "no_leader", "not_leader"} // the vaguest first
	telling := []string{nameBehind, nameStopping, nameNotRelayed}               // the most telling last
	rank := func(name string) int {
		if i := slices.Index(vague, name); i >= 0 {
			return i - len(vague)
		}
		return slices.Index(telling, name) + 1
	}
	return cmp.Or(cmp.Compare(rank(name), rank(than)), strings.Compare(name, than)) > 0
}

// olderNames returns names that the first programs know for errors that were added later, with the
// same outcome. To those programs an unknown name is an unknown outcome.
func olderNames() map[string]string {
	return map[string]string{"memory_full": "disk_full", "too_few_voters": "overloaded", "no_queue": "quota"}
}

// peerError is the encoding of an error between nodes.
type peerError struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// Precise is the name of an error that was added after the first programs. Name is then one
	// that they know.
	Precise string `json:"precise,omitempty"`
	// Quota has the details of an error about a namespace's quota.
	Quota *node.QuotaError `json:"quota,omitempty"`
	// Voters has the details of an error about too few voters.
	Voters *node.VotersError `json:"voters,omitempty"`
	// Queues has the details of an error about too many queues of a namespace.
	Queues *node.QueuesError `json:"queues,omitempty"`
	// NoQueue has the details of an error about a queue that does not exist.
	NoQueue *node.NoQueueError `json:"noQueue,omitempty"`
	// Memory has the details of an error about a full memory.
	Memory *node.MemoryError `json:"memory,omitempty"`
}

// writePeerError answers with an error.
func writePeerError(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusConflict)
	_, _ = w.Write(namePeerError(err)) // the caller is gone, or gets it
}

// namePeerError encodes an error for the other node. An error without a name has an unknown
// outcome.
func namePeerError(err error) []byte {
	out := peerError{Name: "unknown_outcome", Text: err.Error()}
	for name, known := range peerErrors() {
		// An error that wraps several has the worst outcome, else the name that says most.
		if errors.Is(err, known) && !errors.Is(err, node.ErrUnknownOutcome) && saysMore(name, out.Name) {
			out.Name = name
		}
	}
	if older, ok := olderNames()[out.Name]; ok {
		out.Name, out.Precise = older, out.Name
	}
	if quota, ok := errors.AsType[*node.QuotaError](err); ok {
		out.Quota = quota
	}
	if queues, ok := errors.AsType[*node.QueuesError](err); ok {
		out.Queues = queues
	}
	if none, ok := errors.AsType[*node.NoQueueError](err); ok {
		out.NoQueue = none
	}
	if memory, ok := errors.AsType[*node.MemoryError](err); ok {
		out.Memory = memory
	}
	if voters, ok := errors.AsType[*node.VotersError](err); ok {
		out.Voters = voters
	}
	b, _ := json.Marshal(out) // strings and numbers
	return b
}

// readPeerError returns the error of an answer.
func readPeerError(status int, body []byte) error {
	var in peerError
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return &misunderstoodError{fmt.Sprintf("status %d: %s", status, firstOf(body))}
	}
	if status != http.StatusConflict || json.Unmarshal(body, &in) != nil {
		return fmt.Errorf("%w: status %d: %s", node.ErrUnknownOutcome, status, firstOf(body))
	}
	if in.Name == nameStopping || in.Name == nameBehind || in.Name == nameNotRelayed {
		// The reason concerns the called node, not the node that the caller talks to. Another node
		// may accept the call, or the same one in a moment.
		return fmt.Errorf("%w: %w: %s", node.ErrNoLeader, errAgain, in.Text)
	}
	if in.Quota != nil {
		return in.Quota
	}
	if in.NoQueue != nil {
		return in.NoQueue
	}
	if in.Queues != nil {
		return in.Queues
	}
	if in.Memory != nil {
		return in.Memory
	}
	if in.Voters != nil {
		return in.Voters
	}
	known := peerErrors()[in.Precise]
	if known == nil {
		known = peerErrors()[in.Name]
	}
	if known == nil {
		known = node.ErrUnknownOutcome
	}
	return fmt.Errorf("%w: %s", known, in.Text)
}

// misunderstoodError means that the other node did not understand a call, so it did not carry it out.
type misunderstoodError struct{ answer string }

// Error returns what the other node answered.
func (e *misunderstoodError) Error() string { return "the call was not understood: " + e.answer }

// Unwrap returns node.ErrCanceled.
func (e *misunderstoodError) Unwrap() error { return node.ErrCanceled }

// firstOf returns the beginning of an answer in plain text.
func firstOf(body []byte) string { return strings.TrimSpace(string(body[:min(len(body), 200)])) }
