// Package workload has the clients of a run and what they do. Everything that they ask and are told
// goes into the history.
package workload

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/jepsen/lab"
	"github.com/belfrydb/belfry/jepsen/redisson"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

const (
	// callMax is how long a client waits for an answer, beside what it said that the server may wait.
	callMax = 12 * time.Second
	// dialMax is how long it waits for a connection.
	dialMax = 2 * time.Second
	// domain is that of Belfry's errors.
	domain = "belfry"
)

// services are what a client calls at one node.
type services struct {
	queue    belfryv1connect.QueueServiceClient
	admin    belfryv1connect.AdminServiceClient
	schedule belfryv1connect.ScheduleServiceClient
}

// Client makes one call at a time and writes down each. It is for one goroutine.
type Client struct {
	Name     string
	Workload string
	Rand     *rand.Rand

	history    *history.History
	transports []*http.Transport
	target     Target
	services   map[string]services
	node       string
	grpc       bool
	options    []connect.ClientOption
	// err is why a node could not be asked at all: the harness's fault, not the server's.
	err      error
	requests uint64
	bodies   uint64
	// kept are leases of earlier rounds, see ackMixed.
	kept []string
	// credential is what calls carry; nil for the root token in use, if the target has one. carries is
	// what the call under way does.
	credential *Credential
	carries    Credential
}

// Target says what clients talk to.
type Target struct {
	History *history.History
	// Nodes returns the nodes that a client may ask now, at least one; URL where it reaches one. Both
	// are called from the clients' goroutines.
	Nodes func() []string
	URL   func(client, node string) (string, error)
	// Redisson is the other side of the workload mirror; nil without it.
	Redisson *redisson.Side
	// Secrets are what nodes and clients prove themselves with; nil if anybody may do anything.
	Secrets Secrets
}

// Secrets are what a client needs in a secured cluster. *lab.Secrets implements it.
type Secrets interface {
	// TLS returns with what a client meets a node, Root the root token in use, Roots all that there
	// ever were.
	TLS(node string) *tls.Config
	Root() lab.Token
	Roots() []lab.Root
}

// Credential is what a call carries. Without a text it carries nothing.
type Credential struct {
	lab.Token
	// Forged says that the text is not that of the token of this id.
	Forged bool
}

// NewClient returns a client, whose choices all come from the seed.
func NewClient(target Target, workload, name string, seed uint64) (*Client, error) {
	c := &Client{
		Name: name, Workload: workload, Rand: rand.New(rand.NewPCG(seed, hash(name))),
		history: target.History, target: target, services: map[string]services{},
	}
	// Half of the clients speak gRPC over HTTP/2, the others Connect over HTTP/1.1.
	c.grpc = c.Rand.IntN(2) == 0
	if c.grpc {
		c.options = append(c.options, connect.WithGRPC())
	}
	c.options = append(c.options, connect.WithInterceptors(connect.UnaryInterceptorFunc(c.carrying)))
	c.switchNode()
	return c, c.err
}

// carrying has each call carry the client's credential.
func (c *Client) carrying(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if c.carries.Text != "" {
			r.Header().Set("Authorization", "Bearer "+c.carries.Text)
		}
		return next(ctx, r)
	}
}

// carried is what the next call is to carry.
func (c *Client) carried() Credential {
	switch {
	case c.credential != nil:
		return *c.credential
	case c.target.Secrets != nil:
		return Credential{Token: c.target.Secrets.Root()}
	default:
		return Credential{}
	}
}

// transport returns the client's way to a node. In a cluster without secrets there is one way for
// all.
func (c *Client) transport(node string) *http.Transport {
	if c.target.Secrets == nil && len(c.transports) > 0 {
		return c.transports[0]
	}
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialMax}).DialContext,
		MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, DisableCompression: true, Protocols: new(http.Protocols),
	}
	switch {
	case !c.grpc:
		t.Protocols.SetHTTP1(true)
	case c.target.Secrets == nil:
		t.Protocols.SetUnencryptedHTTP2(true)
	default:
		t.Protocols.SetHTTP2(true)
	}
	if c.target.Secrets != nil {
		t.TLSClientConfig, t.TLSHandshakeTimeout = c.target.Secrets.TLS(node), dialMax
	}
	c.transports = append(c.transports, t)
	return t
}

// reach prepares to ask a node.
func (c *Client) reach(node string) error {
	if _, met := c.services[node]; met {
		return nil
	}
	url, err := c.target.URL(c.Name, node)
	if err != nil {
		return fmt.Errorf("finding the way of %s to %s: %w", c.Name, node, err)
	}
	web := &http.Client{Transport: c.transport(node)}
	c.services[node] = services{
		queue:    belfryv1connect.NewQueueServiceClient(web, url, c.options...),
		admin:    belfryv1connect.NewAdminServiceClient(web, url, c.options...),
		schedule: belfryv1connect.NewScheduleServiceClient(web, url, c.options...),
	}
	return nil
}

// hash makes a number of a name.
func hash(name string) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range []byte(name) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

// Close gives the connections back.
func (c *Client) Close() {
	for _, t := range c.transports {
		t.CloseIdleConnections()
	}
}

// switchNode has the client ask another node from now on, one of those that are there now.
func (c *Client) switchNode() {
	nodes := c.target.Nodes()
	c.Ask(nodes[c.Rand.IntN(len(nodes))])
}

// Ask has the client ask one node from now on, until a call to it fails.
func (c *Client) Ask(node string) {
	if err := c.reach(node); err != nil {
		c.err = err
		return
	}
	c.node = node
}

// requestID returns a request id that no other call has.
func (c *Client) requestID() string {
	c.requests++
	return c.Name + "-" + strconv.FormatUint(c.requests, 10)
}

// body returns a body that no other job has.
func (c *Client) body(most int) []byte {
	c.bodies++
	b := []byte(c.Name + "/" + strconv.FormatUint(c.bodies, 10) + "/")
	for range c.Rand.IntN(most) {
		b = append(b, byte(c.Rand.Uint32()))
	}
	return b
}

// call makes one call and writes it down. The end of ctx leaves its outcome unknown; after the end
// nothing is sent, and nothing written down.
func call[S any, Q, A proto.Message](ctx context.Context, c *Client, service S,
	method func(S, context.Context, Q) (A, error), request Q) (A, *history.Op) {
	limit := callMax
	if waits, ok := any(request).(*belfryv1.ReserveRequest); ok {
		limit += waits.GetWait().AsDuration()
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c.carries = c.carried()
	o := &history.Op{
		Client: c.Name, Node: c.node, Workload: c.Workload, Token: c.carries.ID, Forged: c.carries.Forged, Request: request,
		Invoked: c.history.Now(),
	}
	if err := ctx.Err(); err != nil {
		o.Outcome, o.Message = belfryv1.Outcome_OUTCOME_NOT_APPLIED, "not sent: "+err.Error()
		var none A
		return none, o
	}
	answer, err := method(service, ctx, request)
	o.Returned = c.history.Now()
	if err == nil {
		o.Outcome, o.Response = belfryv1.Outcome_OUTCOME_APPLIED, answer
	} else {
		judgeError(o, err)
		if o.Reason == belfryv1.Reason_REASON_UNSPECIFIED || transient(o.Reason) {
			c.switchNode()
		}
	}
	c.history.Add(o)
	return answer, o
}

func (c *Client) queue() belfryv1connect.QueueServiceClient { return c.services[c.node].queue }

func (c *Client) admin() belfryv1connect.AdminServiceClient { return c.services[c.node].admin }

func (c *Client) schedule() belfryv1connect.ScheduleServiceClient { return c.services[c.node].schedule }

// transient reports whether another node, or the same one later, may answer otherwise.
func transient(r belfryv1.Reason) bool {
	switch r {
	case belfryv1.Reason_REASON_NOT_LEADER, belfryv1.Reason_REASON_NO_LEADER, belfryv1.Reason_REASON_SHUTTING_DOWN,
		belfryv1.Reason_REASON_OVERLOADED,
		belfryv1.Reason_REASON_UNKNOWN_OUTCOME, belfryv1.Reason_REASON_DISK_FULL, belfryv1.Reason_REASON_MEMORY_FULL,
		belfryv1.Reason_REASON_CLOCK_AHEAD, belfryv1.Reason_REASON_TOO_FEW_VOTERS:
		return true
	default:
		return false
	}
}

// judgeError takes from an error what the caller may believe: without a word of the server that the
// contract knows the outcome is unknown, unless the call was never sent.
func judgeError(o *history.Op, err error) {
	o.Outcome, o.Message = belfryv1.Outcome_OUTCOME_UNKNOWN, err.Error()
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		o.Outcome = belfryv1.Outcome_OUTCOME_NOT_APPLIED
		return
	}
	wire, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return
	}
	for _, d := range wire.Details() {
		value, err := d.Value()
		if err != nil {
			continue
		}
		info, ok := value.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != domain {
			continue
		}
		reason, outcome := belfryv1.Reason_value["REASON_"+info.GetReason()],
			belfryv1.Outcome_value["OUTCOME_"+info.GetMetadata()["outcome"]]
		if reason == 0 || outcome == 0 {
			continue
		}
		o.Reason, o.Outcome, o.Witness = belfryv1.Reason(reason), belfryv1.Outcome(outcome), witnessOf(info.GetMetadata())
	}
}

// witnessOf returns the witness in an error; nil if it has none.
func witnessOf(metadata map[string]string) *belfryv1.Witness {
	shard, shardErr := strconv.ParseUint(metadata["shard"], 10, 32)
	term, termErr := strconv.ParseUint(metadata["term"], 10, 64)
	index, indexErr := strconv.ParseUint(metadata["index"], 10, 64)
	entry, entryErr := strconv.ParseUint(metadata["entry"], 10, 32)
	at, timeErr := time.Parse(time.RFC3339Nano, metadata["time"])
	if errors.Join(shardErr, termErr, indexErr, entryErr, timeErr) != nil {
		return nil
	}
	return &belfryv1.Witness{Shard: uint32(shard), Term: term, Index: index, Entry: uint32(entry),
		Time: timestamppb.New(at)}
}

// pause waits; false when ctx ended, also if both are so.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// between returns a random duration.
func (c *Client) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.Rand.Int64N(int64(most-least)+1))
}

// oneIn reports true once in n times.
func (c *Client) oneIn(n int) bool { return c.Rand.IntN(n) == 0 }

// random returns a text that is hard to guess, for ids.
func (c *Client) random() string {
	var b [6]byte
	for i := range b {
		b[i] = byte(c.Rand.Uint32())
	}
	return hex.EncodeToString(b[:])
}

// String names the client and the node that it asks.
func (c *Client) String() string { return fmt.Sprintf("%s at %s", c.Name, c.node) }
