package routing

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node"
)

// The calls of shards between nodes. Requests are sent as log entries of one request, which have a
// version and a checksum. Queries and answers are sent in the encodings of fsm.
const (
	pathDo      = "/shard/do"
	pathReserve = "/shard/reserve"
	pathQuery   = "/shard/query"
	pathLeader  = "/shard/leader"
	pathOffers  = "/shard/offers"
	pathPeek    = "/shard/peek"
)

// errBehind is the answer to a node that forwards a request in a format which this node does not
// write yet: it learns of a raise of the format a moment later than others. Logged in the earlier
// format, the request might contain what that format cannot express.
var errBehind = errors.New("the node does not write the request's format yet")

// shardHost is the part of a node that other nodes call. *node.Node implements it.
type shardHost interface {
	Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error)
	Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait) (node.Reply, error)
	Query(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error)
	Peek(shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error)
	// Leader returns the server id of the shard's leader as far as this node knows.
	Leader(shard uint32) (string, error)
	// Serves reports whether this node leads a shard and serves.
	Serves(shard uint32) bool
	// Offers reports whether a Reserve that does not wait would find a job.
	Offers(shard uint32, queues []string) (bool, error)
	// Format returns the format in which this node writes requests.
	Format() fsm.Format
}

// offersCall asks for Offers.
type offersCall struct {
	Shard  uint32   `json:"shard"`
	Queues []string `json:"queues"`
}

// answerShards registers the calls of shards. This node answers or refuses them: a call is
// forwarded once.
func answerShards(p *Peers, n shardHost, self string) {
	host := waitingHost{n, self, LeaderWait}
	p.mux.HandleFunc("POST "+pathDo, func(w http.ResponseWriter, r *http.Request) {
		shard, body, err := readShardCall(w, r)
		var req *fsm.Request
		if err == nil {
			req, err = parseForwarded(body, n.Format())
		}
		if err != nil {
			refuseForwarded(w, err)
			return
		}
		reply, err := host.withBudget(r).Do(r.Context(), shard, req)
		if err != nil {
			writePeerError(w, err)
			return
		}
		writeReply(w, &reply, heldBy(&reply), fsm.FormatOf(body))
	})
	answerQueries(p, pathQuery, func(r *http.Request, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
		return host.withBudget(r).Query(r.Context(), shard, q)
	})
	answerQueries(p, pathPeek, func(_ *http.Request, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
		return n.Peek(shard, q)
	})
	p.mux.HandleFunc("POST "+pathReserve, func(w http.ResponseWriter, r *http.Request) { p.answerReserve(w, r, host) })
	p.mux.HandleFunc("GET "+pathStream, func(w http.ResponseWriter, r *http.Request) { p.serveStream(w, r, host) })
	Handle(p, pathOffers, func(_ context.Context, _ string, c offersCall) (bool, error) {
		return host.Offers(c.Shard, c.Queues)
	})
	Handle(p, pathLeader, func(_ context.Context, _ string, shard uint32) (string, error) { return host.Leader(shard) })
}

// waitingHost makes calls wait that arrive before this node serves, because it was elected a moment
// ago.
type waitingHost struct {
	shardHost
	self string
	// most bounds the wait.
	most time.Duration
}

// withBudget returns the host for a call that may carry its caller's retry budget.
func (h waitingHost) withBudget(r *http.Request) waitingHost {
	if most, err := time.ParseDuration(r.URL.Query().Get("patience")); err == nil {
		h.most = min(most, LeaderWait)
	}
	return h
}

// Do implements shardHost.
func (h waitingHost) Do(ctx context.Context, shard uint32, req *fsm.Request) (reply node.Reply, err error) {
	err = h.wait(ctx, shard, newRetryBudget(ctx, h.most, nil), func() error {
		reply, err = h.shardHost.Do(ctx, shard, req)
		return err
	})
	return reply, err
}

// Reserve implements shardHost.
func (h waitingHost) Reserve(ctx context.Context, shard uint32, req *fsm.Request,
	wait node.Wait) (reply node.Reply, err error) {
	most := h.most
	if wait.For > 0 {
		most = wait.For
	}
	err = h.wait(ctx, shard, newRetryBudget(ctx, most, wait.Stop), func() error {
		reply, err = h.shardHost.Reserve(ctx, shard, req, wait)
		return err
	})
	return reply, err
}

// Query implements shardHost.
func (h waitingHost) Query(ctx context.Context, shard uint32,
	q fsm.Query) (reading fsm.Reading, witness node.Witness, err error) {
	err = h.wait(ctx, shard, newRetryBudget(ctx, h.most, nil), func() error {
		reading, witness, err = h.shardHost.Query(ctx, shard, q)
		return err
	})
	return reading, witness, err
}

// wait runs a call, and repeats it while it is refused only because this node does not serve yet,
// or because this node transfers its leadership with a nearly full disk. After a transfer it
// returns ErrShuttingDown, so that the caller's node goes on to the next leader.
func (h waitingHost) wait(ctx context.Context, shard uint32, p *retryBudget, call func() error) (err error) {
	yields := false
	defer func() {
		if yields && servedElsewhere(err) {
			err = fmt.Errorf("%w: shard %d is handed over", node.ErrShuttingDown, shard)
		}
	}()
	for {
		if err = call(); !servedElsewhere(err) {
			return err
		}
		yields = yields || errors.Is(err, node.ErrDiskFull)
		for elected := true; elected && !h.Serves(shard); {
			leader, unknown := h.Leader(shard)
			if elected = unknown == nil && leader == h.self; elected && !p.wait(ctx) {
				return err
			}
		}
		if !h.Serves(shard) || !p.wait(ctx) {
			return err
		}
	}
}

// answerQueries registers calls that read.
func answerQueries(p *Peers, path string,
	query func(r *http.Request, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error)) {
	p.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		shard, body, err := readShardCall(w, r)
		var q fsm.Query
		if err == nil {
			q, err = codec.ParseQuery(body)
		}
		if errors.Is(err, fsm.ErrVersion) {
			writePeerError(w, fmt.Errorf("%w: %w", node.ErrUnsupported, err))
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reading, witness, err := query(r, shard, q)
		if err != nil {
			writePeerError(w, err)
			return
		}
		writeReply(w, &node.Reply{Witness: witness}, &reading, fsm.FormatOf(body))
	})
}

// readShardCall reads the shard and the body of a call.
func readShardCall(w http.ResponseWriter, r *http.Request) (shard uint32, body []byte, err error) {
	if shard, err = shardOf(r); err != nil {
		return 0, nil, err
	}
	if body, err = io.ReadAll(requestBody(w, r)); err != nil {
		return 0, nil, fmt.Errorf("reading a call: %w", err)
	}
	return shard, body, nil
}

// answerReserve answers a call that waits. If the caller announced it, the body goes on as long as
// the caller wants to wait. When this node stops and still leads, it ends the wait itself; a grant
// under way at that moment is answered.
func (p *Peers) answerReserve(w http.ResponseWriter, r *http.Request, host waitingHost) {
	shard, err := shardOf(r)
	var req *fsm.Request
	var format fsm.Format
	var wait node.Wait
	if err == nil {
		wait.For, err = time.ParseDuration(r.URL.Query().Get("wait"))
	}
	if err == nil {
		body := requestBody(w, r)
		req, format, err = readForwarded(body, host.Format())
		body.liftDeadline() // what follows may take as long as the caller waits
	}
	if err != nil {
		refuseForwarded(w, err)
		return
	}
	// enough: the caller stops waiting; ended: the call is over.
	enough, ended := make(chan struct{}), make(chan struct{})
	defer close(ended)
	if r.URL.Query().Has("stoppable") {
		go func() {
			defer close(enough)
			_, _ = io.Copy(io.Discard, r.Body) // it is empty; it ends when the caller stops the wait, or with the call
		}()
	}
	var closing <-chan struct{}
	if wait.For > 0 {
		closing = p.closing
	}
	stop := make(chan struct{})
	wait.Stop = stop
	go func() {
		defer close(stop)
		select {
		case <-enough:
		case <-closing:
		case <-ended:
		}
	}()
	reply, err := host.withBudget(r).Reserve(r.Context(), shard, req, wait)
	if err == nil && isClosed(closing) && !isClosed(enough) && !decided(&reply) {
		err = node.ErrShuttingDown // its time was not over
	}
	if err != nil {
		writePeerError(w, err)
		return
	}
	writeReply(w, &reply, heldBy(&reply), format)
}

// decided reports whether a reply has jobs, or the reason why it has none.
func decided(reply *node.Reply) bool {
	return slices.ContainsFunc(reply.Results, func(r fsm.Result) bool { return r.Code != fsm.OK || len(r.Grants) > 0 })
}

// heldBy returns the jobs of a reply as a reading.
func heldBy(reply *node.Reply) *fsm.Reading {
	return &fsm.Reading{Kind: fsm.KindHeldQuery, Jobs: reply.Jobs}
}

func shardOf(r *http.Request) (uint32, error) {
	shard, err := strconv.ParseUint(r.URL.Query().Get("shard"), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("no shard is named: %w", err)
	}
	return uint32(shard), nil
}

// parseForwarded reads a request that another node forwarded. This node will log it in the format
// that it writes.
func parseForwarded(entry []byte, spoken fsm.Format) (*fsm.Request, error) {
	_, requests, err := codec.DecodeEntry(entry)
	switch {
	case errors.Is(err, fsm.ErrVersion):
		return nil, fmt.Errorf("%w: %w", errBehind, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", node.ErrCanceled, err)
	case fsm.FormatOf(entry) > spoken:
		return nil, fmt.Errorf("%w: it was made for format %d, this node writes %d so far", errBehind, fsm.FormatOf(entry),
			spoken)
	case len(requests) != 1:
		return nil, fmt.Errorf("%w: %d requests in one call", node.ErrCanceled, len(requests))
	}
	return &requests[0], nil
}

// readForwarded reads a request that is preceded by its length, and returns its format, too. It
// allocates no memory for announced bytes before they arrive.
func readForwarded(r io.Reader, spoken fsm.Format) (*fsm.Request, fsm.Format, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, 0, fmt.Errorf("reading the length of a request: %w", err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > peerBytesMax {
		return nil, 0, fmt.Errorf("a request of %d bytes; %d are the most", n, peerBytesMax)
	}
	entry := bytes.NewBuffer(make([]byte, 0, min(n, bufferInitialMax)+bytes.MinRead))
	if got, err := io.CopyN(entry, r, int64(n)); err != nil {
		return nil, 0, fmt.Errorf("reading a request of %d bytes, of which %d came: %w", n, got, err)
	}
	req, err := parseForwarded(entry.Bytes(), spoken)
	return req, fsm.FormatOf(entry.Bytes()), err
}

// refuseForwarded answers a request that cannot be read. A request in a later format is valid, and
// may go to another node, or be sent again.
func refuseForwarded(w http.ResponseWriter, err error) {
	if errors.Is(err, errBehind) {
		writePeerError(w, err)
		return
	}
	http.Error(w, err.Error(), http.StatusBadRequest)
}

// spoken returns the format that every node of the cluster reads.
func (p *Peers) spoken() fsm.Format {
	if p.format != nil {
		return p.format()
	}
	return fsm.FirstFormat
}

// forwarded encodes a request for another node.
func (p *Peers) forwarded(req *fsm.Request) []byte {
	format := p.spoken()
	return codec.AppendEntryIn(nil, format, 0, [][]byte{codec.AppendRequestIn(nil, format, req)})
}

// budgetStep is the precision of the retry budget that a forwarded call carries.
const budgetStep = 100 * time.Millisecond

// forwardedTo is where a call goes. budget is how long it may wait there until the leader serves; 0
// lets that node decide.
type forwardedTo struct {
	server string
	shard  uint32
	budget time.Duration
}

// target returns where a call goes next, with what is left of its budget.
func (b *retryBudget) target(server string, shard uint32) forwardedTo {
	return forwardedTo{server, shard, max(retryPauseMin, b.left())}
}

// at returns the path and the parameters of a call.
func (to forwardedTo) at(path string) string {
	path += "?shard=" + strconv.Itoa(int(to.shard))
	if to.budget > 0 {
		// Few distinct values: HTTP/2 compresses repeated paths, and a new one costs as much as the
		// rest of a call.
		path += "&patience=" + max(to.budget.Truncate(budgetStep), retryPauseMin).String()
	}
	return path
}

// writeReply writes the witness, the results and the reading. The reading is in the format of the
// question.
func writeReply(w http.ResponseWriter, reply *node.Reply, reading *fsm.Reading, format fsm.Format) {
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(appendReply(nil, reply, reading, format)) // an error means that the caller is gone
}

func appendReply(dst []byte, reply *node.Reply, reading *fsm.Reading, format fsm.Format) []byte {
	dst = appendWitness(dst, reply.Witness)
	dst = appendPart(dst, codec.AppendResults(nil, reply.Results))
	return codec.AppendReadingIn(dst, format, reading)
}

func appendPart(dst, part []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(part)))
	return append(dst, part...)
}

func appendWitness(dst []byte, w node.Witness) []byte {
	for _, v := range []uint64{uint64(w.Shard), w.Term, w.Index, uint64(w.Entry)} {
		dst = binary.AppendUvarint(dst, v)
	}
	return binary.AppendVarint(dst, int64(w.Time))
}

// readReply reads what writeReply wrote.
func readReply(body []byte) (node.Reply, fsm.Reading, error) {
	var reply node.Reply
	var fields [4]uint64
	damaged := func() error { return fmt.Errorf("%w: the answer is cut off", node.ErrUnknownOutcome) }
	for i := range fields {
		v, n := binary.Uvarint(body)
		if n <= 0 {
			return reply, fsm.Reading{}, damaged()
		}
		fields[i], body = v, body[n:]
	}
	at, n := binary.Varint(body)
	if n <= 0 {
		return reply, fsm.Reading{}, damaged()
	}
	body = body[n:]
	reply.Witness = node.Witness{
		Shard: uint32(fields[0]), Term: fields[1], Index: fields[2], Entry: uint32(fields[3]), Time: fsm.Time(at),
	} //nolint:gosec // written from such
	length, n := binary.Uvarint(body)
	if n <= 0 || length > uint64(len(body)-n) {
		return reply, fsm.Reading{}, damaged()
	}
	results, err := codec.ParseResults(body[n : n+int(length)])
	if err != nil {
		return reply, fsm.Reading{}, fmt.Errorf("%w: %w", node.ErrUnknownOutcome, err)
	}
	reading, err := codec.ParseReading(body[n+int(length):])
	if err != nil {
		return reply, fsm.Reading{}, fmt.Errorf("%w: %w", node.ErrUnknownOutcome, err)
	}
	reply.Results, reply.Jobs = results, reading.Jobs
	return reply, reading, nil
}

// do forwards a request.
func (p *Peers) do(ctx context.Context, to forwardedTo, req *fsm.Request) (node.Reply, error) {
	if err := node.CheckFormat(req, p.spoken()); err != nil {
		return node.Reply{}, err
	}
	entry := p.forwarded(req)
	body, err := p.callInStream(ctx, to, streamDo, node.Wait{}, entry)
	if errors.Is(err, errNoStream) {
		body, err = p.post(ctx, to.server, to.at(pathDo), entry)
	}
	if err != nil {
		return node.Reply{}, fmt.Errorf("forwarding to %s: %w", to.server, err)
	}
	reply, _, err := readReply(body)
	return reply, err
}

// query forwards a query, to pathQuery or pathPeek. A node of an earlier version may not know its
// kind: then the error is node.ErrUnsupported.
func (p *Peers) query(ctx context.Context, path string, to forwardedTo,
	q fsm.Query) (fsm.Reading, node.Witness, error) {
	format := p.spoken()
	body, err := p.post(ctx, to.server, to.at(path), codec.AppendQueryIn(nil, format, q))
	// Programs of the formats 1 and 2 do not name this error.
	if unread, ok := errors.AsType[*misunderstoodError](err); ok && q.Kind().Format() > format {
		err = fmt.Errorf("%w: a query of kind %d was answered with %s", node.ErrUnsupported, q.Kind(), unread.answer)
	}
	if err != nil {
		return fsm.Reading{}, node.Witness{}, fmt.Errorf("asking %s: %w", to.server, err)
	}
	reply, reading, err := readReply(body)
	if err == nil && reading.Kind != q.Kind() {
		err = fmt.Errorf("%w: %s answered a query of kind %d as one of kind %d", node.ErrUnknownOutcome, to.server, q.Kind(),
			reading.Kind)
	}
	return reading, reply.Witness, err
}

// peekAny asks the replicas of a shard on other nodes and returns the first answer.
func (p *Peers) peekAny(ctx context.Context, servers []string, shard uint32,
	q fsm.Query) (fsm.Reading, node.Witness, error) {
	type answer struct {
		reading fsm.Reading
		witness node.Witness
		err     error
	}
	answers := make(chan answer, len(servers))
	for _, server := range servers {
		go func() {
			var a answer
			a.reading, a.witness, a.err = p.query(ctx, pathPeek, forwardedTo{server: server, shard: shard}, q)
			answers <- a
		}()
	}
	err := node.ErrNotHere // no node is known to run it
	for range servers {
		a := <-answers
		switch {
		case a.err == nil:
			return a.reading, a.witness, nil
		case errors.Is(a.err, node.ErrUnsupported):
			err = a.err // says more than the silence of another node
		case !errors.Is(err, node.ErrUnsupported):
			err = fmt.Errorf("%w: %w", node.ErrNoLeader, a.err) // it changed nothing
		}
	}
	return fsm.Reading{}, node.Witness{}, err
}

// reserve forwards a Reserve.
func (p *Peers) reserve(ctx context.Context, to forwardedTo, req *fsm.Request, wait node.Wait) (node.Reply, error) {
	entry := p.forwarded(req)
	body, err := p.callInStream(ctx, to, streamReserve, wait, entry)
	if errors.Is(err, errNoStream) {
		body, err = p.reserveAlone(ctx, to, wait, entry)
	}
	if err != nil {
		return node.Reply{}, fmt.Errorf("forwarding to %s: %w", to.server, err)
	}
	reply, _, err := readReply(body)
	return reply, err
}

// reserveAlone forwards a Reserve in a call of its own. The body of the call stays open until the
// wait is stopped.
func (p *Peers) reserveAlone(ctx context.Context, to forwardedTo, wait node.Wait, entry []byte) ([]byte, error) {
	head := append(binary.BigEndian.AppendUint32(nil, uint32(len(entry))), entry...) //nolint:gosec // far less
	url, err := p.url(to.server, to.at(pathReserve)+"&wait="+wait.For.String())
	if err != nil {
		return nil, err
	}
	if wait.Stop != nil {
		url += "&stoppable"
	}
	var sent atomic.Bool
	ctx, cancel := context.WithCancel(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() {
		sent.Store(true)
	}}))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, &untilStopped{
		head: head, stop: wait.Stop, done: ctx.Done(),
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", node.ErrNoLeader, err)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, unreached(ctx, sent.Load(), err)
	}
	defer response.Body.Close()
	defer cancel() // Close waits for the body of the call, which stays open until then
	return readAnswer(ctx, response)
}

// untilStopped is a body that sends head and ends when stop is closed, or at once if stop is nil.
type untilStopped struct {
	head []byte
	stop <-chan struct{}
	done <-chan struct{}
}

// Read implements io.Reader.
func (b *untilStopped) Read(p []byte) (int, error) {
	if len(b.head) > 0 {
		n := copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	}
	if b.stop != nil {
		select {
		case <-b.stop:
		case <-b.done:
		}
	}
	return 0, io.EOF
}
