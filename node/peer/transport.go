package peer

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/node/outcome"
	"github.com/hashicorp/raft"
)

// Pre-vote keeps a node that was cut off from unseating a healthy leader. If the transport does not
// offer it, the library silently does without. The library closes only a transport that implements
// raft.WithClose. So the compiler checks both.
var (
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// aliveWithin is how recently a follower must have answered to count as alive: a few heartbeats.
const aliveWithin = 500 * time.Millisecond

// Transport is the transport of one group. It keeps messages below the size at which the
// receiver closes the connection, and records the progress of each follower.
type Transport struct {
	*raft.NetworkTransport
	// inbox is the channel from which Raft's main loop takes messages.
	inbox chan raft.RPC
	done  chan struct{} // closed by Close
	once  sync.Once
	raft  atomic.Pointer[raft.Raft] // nil until Attach
	// unwritten returns the index of the first entry that is not durable here.
	unwritten func() uint64
	stream    *stream
	// leave closes left, which ends the waits for servers.
	left    chan struct{}
	leaving sync.Once
	// standing says whether this node stands for election.
	standing abstention

	mu        sync.Mutex
	followers map[raft.ServerID]Progress
}

// Progress is what a leader knows of a follower.
type Progress struct {
	Index uint64    // the last entry that it confirmed in term
	Term  uint64    // of its last answer
	At    time.Time // time of its last answer
}

// newTransport returns a transport that takes its messages from inner, which uses s.
func newTransport(inner *raft.NetworkTransport, s *stream) *Transport {
	t := &Transport{
		NetworkTransport: inner, inbox: make(chan raft.RPC), done: make(chan struct{}),
		followers: map[raft.ServerID]Progress{}, unwritten: func() uint64 { return math.MaxUint64 },
		stream: s, left: make(chan struct{}),
	}
	go t.forward()
	return t
}

// Attach tells the transport which Raft uses it, and from which entry on the log of this node is not
// durable yet. Before, the transport treats every heartbeat as one that may change the term, waits
// for no follower, and takes all entries for durable.
func (t *Transport) Attach(r *raft.Raft, unwritten func() uint64) {
	t.unwritten = unwritten
	t.raft.Store(r)
}

// committed returns how far followers may know the log to be committed: Raft counts entries that
// are not durable here.
func (t *Transport) committed(index uint64) uint64 {
	if t.raft.Load() == nil {
		return index
	}
	return min(index, t.unwritten()-1)
}

// Reach returns nil if a server can be reached and runs the group. It opens a connection and closes
// it.
func (t *Transport) Reach(ctx context.Context, id raft.ServerID) error {
	return t.stream.reach(ctx, id)
}

// forward passes the messages of peers to Raft until Close. It answers those that Raft must not
// see.
func (t *Transport) forward() {
	for {
		select {
		case rpc := <-t.NetworkTransport.Consumer():
			if outdated(rpc) {
				rpc.Respond(nil, errOutdated)
				continue
			}
			if _, ok := rpc.Command.(*raft.TimeoutNowRequest); ok && t.standing.abstains() {
				rpc.Respond(nil, errAbstains)
				continue
			}
			if t.stream.mux.cfg.Full() && carriesEntries(rpc) {
				rpc.Respond(nil, outcome.ErrDiskFull)
				continue
			}
			t.queue(rpc)
		case <-t.done:
			return
		}
	}
}

// errOutdated is the answer to entries of a later term than the message that carries them.
var errOutdated = errors.New("the entries are of a later term than the message")

// outdated reports whether entries are of a later term than the message that carries them. A leader
// may lose its leadership while it waits for this follower, and be elected again. It may then send
// its new entries in a message of its earlier term, because the library chooses at random between
// ending the old leadership and sending the next message. A follower that accepted the entries
// would have a term in its log that it never made durable. At the next start, storage would take
// its term and vote for an old copy.
func outdated(rpc raft.RPC) bool {
	req, ok := rpc.Command.(*raft.AppendEntriesRequest)
	return ok && len(req.Entries) > 0 && req.Entries[len(req.Entries)-1].Term > req.Term
}

// carriesEntries reports whether a message carries entries. On a disk without room, writing them
// would fail and end the process. A replica that takes no entries lags, but it still votes, follows
// its leader and directs its callers to it.
func carriesEntries(rpc raft.RPC) bool {
	req, ok := rpc.Command.(*raft.AppendEntriesRequest)
	return ok && len(req.Entries) > 0
}

// queue gives a message to Raft's main loop. After Close the message gets no answer; the library
// stops waiting for one then.
func (t *Transport) queue(rpc raft.RPC) {
	select {
	case t.inbox <- rpc:
	case <-t.done:
	}
}

// Consumer implements raft.Transport.
func (t *Transport) Consumer() <-chan raft.RPC { return t.inbox }

// SetHeartbeatHandler takes the function with which Raft answers heartbeats outside its main loop,
// so that they do not wait for its disk. That function also adopts the term of a heartbeat and
// steps down. It is not synchronised with the main loop, which may be about to log, vote or lead in
// another term. Then entries of two leaders carry one term (hashicorp/raft issue 695), or a term
// that was promised to a candidate is taken back. So only a heartbeat of the current term to a
// follower is answered that way: it changes neither the term nor the role. All others wait for the
// main loop. If the role changes in between, the stable store refuses a lower term.
func (t *Transport) SetHeartbeatHandler(beside func(raft.RPC)) {
	t.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) {
		if req, ok := rpc.Command.(*raft.AppendEntriesRequest); ok && t.follows(req.Term) {
			beside(rpc)
			return
		}
		t.queue(rpc)
	})
}

// follows reports whether this node is a follower in a term.
func (t *Transport) follows(term uint64) bool {
	r := t.raft.Load()
	return r != nil && r.State() == raft.Follower && r.CurrentTerm() == term
}

// Close implements raft.WithClose.
func (t *Transport) Close() error {
	t.Leave()
	t.once.Do(func() { close(t.done) })
	return t.NetworkTransport.Close()
}

// RequestVote implements raft.Transport. A candidate asks each voter once, and again only after an
// election timeout, so a question that a broken connection lost is sent again. While this node
// abstains, it asks no voter, and the answer is no.
func (t *Transport) RequestVote(id raft.ServerID, target raft.ServerAddress, req *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	if t.standing.abstains() {
		resp.Term = req.Term
		return nil
	}
	return overBroken(func() error { return t.NetworkTransport.RequestVote(id, target, req, resp) })
}

// RequestPreVote implements raft.WithPreVote. It abstains as RequestVote does.
func (t *Transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, req *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse) error {
	if t.standing.abstains() {
		resp.Term = req.Term
		return nil
	}
	return overBroken(func() error { return t.NetworkTransport.RequestPreVote(id, target, req, resp) })
}

// TimeoutNow implements raft.Transport. If the receiver gets the message twice, that costs another
// election.
func (t *Transport) TimeoutNow(id raft.ServerID, target raft.ServerAddress, req *raft.TimeoutNowRequest,
	resp *raft.TimeoutNowResponse) error {
	return overBroken(func() error { return t.NetworkTransport.TimeoutNow(id, target, req, resp) })
}

// overBroken sends a message again while the connection for it turns out to be broken, so the
// receiver may get it twice. The library keeps connections to a server that has restarted since,
// and notices only when it uses them.
func overBroken(send func() error) error {
	for range connsPooled {
		if err := send(); !broken(err) {
			return err
		}
	}
	return send() // on a new connection
}

// broken reports whether a connection was ended by the other side, or from here.
func broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// AppendEntries sends entries, or a heartbeat. If the entries are too large together, it sends the
// first ones and removes the others from the request. Raft counts what is in the request as sent,
// and sends the others next. While the follower is not reached, it retries, except for a heartbeat:
// Raft has to know that a heartbeat failed.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	req.Entries, req.LeaderCommitIndex = firstEntries(req.Entries), t.committed(req.LeaderCommitIndex)
	heartbeat := req.PrevLogEntry == 0 && len(req.Entries) == 0 // a leader has at least one entry
	err := t.NetworkTransport.AppendEntries(id, target, req, resp)
	for !heartbeat && unreached(err) {
		// The wait may be long; after an answer, Raft sends the entries that it has then. Without
		// entries, the message asks only whether the follower has the previous entry. What the
		// follower holds after that entry may differ, so it must not take more for committed.
		req.Entries, req.LeaderCommitIndex = nil, min(req.LeaderCommitIndex, req.PrevLogEntry)
		if !t.await(id, req.Term, err) {
			return err
		}
		err = t.NetworkTransport.AppendEntries(id, target, req, resp)
	}
	if err == nil && resp.Success {
		t.confirmed(id, req)
	}
	return err
}

// entryHeadBytes is about the size of an entry in a message besides its data.
const entryHeadBytes = 64

// firstEntries returns as many entries as fit into appendBytesMax, at least one.
func firstEntries(entries []*raft.Log) []*raft.Log {
	var size int
	for i, e := range entries {
		if size += len(e.Data) + len(e.Extensions) + entryHeadBytes; i > 0 && size > appendBytesMax {
			return entries[:i]
		}
	}
	return entries
}

// confirmed records that a follower holds what was sent.
func (t *Transport) confirmed(id raft.ServerID, req *raft.AppendEntriesRequest) {
	index := req.PrevLogEntry // 0 in a heartbeat
	if n := len(req.Entries); n > 0 {
		index = req.Entries[n-1].Index
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.followers[id]; known.Term == req.Term {
		index = max(index, known.Index)
	}
	t.followers[id] = Progress{Index: index, Term: req.Term, At: time.Now()}
}

// Follower returns what is known of a follower; the zero value if it has not answered.
func (t *Transport) Follower(server string) Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.followers[raft.ServerID(server)]
}

// Furthest returns the candidate with the highest confirmed index, among those that answered
// recently in a term.
func (t *Transport) Furthest(candidates []raft.ServerID, term uint64) (furthest raft.ServerID, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var most uint64
	for _, id := range candidates {
		f := t.followers[id]
		if f.Term != term || time.Since(f.At) > aliveWithin {
			continue
		}
		if !ok || f.Index > most {
			furthest, most, ok = id, f.Index, true
		}
	}
	return furthest, ok
}
