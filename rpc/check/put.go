package check

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// Entry is put for a job of a batch. f is the fault of this job alone.
func (c *Request) Entry(req *belfryv1.PutRequest, put *fsm.Put) (bodyBytes int, f *fault.Error) {
	entry := c.Another()
	bodyBytes = entry.Put(req, put)
	if req.GetRequestId() != "" {
		entry.Fail(fault.Invalid("requestId", "in a batch only the batch itself has a requestId"))
	}
	return bodyBytes, entry.Err
}

// Put converts a put without its partition, into the zero put. bodyBytes is what it adds to the
// size of a batch.
func (c *Request) Put(req *belfryv1.PutRequest, put *fsm.Put) (bodyBytes int) {
	put.Queue, put.ID = c.Queue("queue", req.GetQueue()), c.newID("id", req.GetId())
	put.Again, put.TTR = req.GetAgain(), c.TTR("ttr", req.GetTtr())
	if put.Again && put.ID == "" {
		c.Fail(fault.Invalid("again", "it needs an id"))
	}
	put.Key = c.Key("key", req.GetKey())
	c.existing(req, put)
	if req.GetTtr() != nil {
		put.Given |= fsm.GivenTTR
	}
	put.Delay, put.DueAt, put.Given = c.When(req.GetDelay(), req.GetDueAt(), put.Given)
	if req.Priority != nil {
		put.Priority, put.Given = c.priority("priority", req.GetPriority()), put.Given|fsm.GivenPriority
	}
	if req.MaxAttempts != nil {
		put.MaxAttempts, put.Given = c.attempts("maxAttempts", req.GetMaxAttempts()), put.Given|fsm.GivenMaxAttempts
	}
	if len(req.GetRetryDelays()) > 0 {
		put.RetryDelays, put.Given = c.retryDelays("retryDelays", req.GetRetryDelays()), put.Given|fsm.GivenRetryDelays
	}
	if req.GetTtl() != nil {
		put.TTL, _ = c.Span("ttl", req.GetTtl(), time.Millisecond, c.Limits.DelayMax)
		put.Given |= fsm.GivenTTL
	}
	put.Headers = c.headers("headers", req.GetHeaders())
	switch body := req.GetBody().(type) {
	case *belfryv1.PutRequest_Text:
		put.Body = c.body("text", []byte(body.Text))
	case *belfryv1.PutRequest_Data:
		put.Body = c.body("data", body.Data)
	}
	bodyBytes = len(put.Body) + len(put.ID) + len(put.Key)
	for _, h := range put.Headers {
		bodyBytes += len(h.Name) + len(h.Value)
	}
	return bodyBytes
}

// existing converts what a put does if a job has its id.
func (c *Request) existing(req *belfryv1.PutRequest, put *fsm.Put) {
	var known bool
	if put.OnExisting, known = wire.OnExisting(req.GetOnExisting()); !known {
		c.Fail(fault.Invalid("onExisting", "want one of RETURN, KEEP, REPLACE, NEXT, not %d", req.GetOnExisting()))
	}
	if put.OnExisting != fsm.ReturnExisting && put.ID == "" {
		choice := strings.TrimPrefix(req.GetOnExisting().String(), "ON_EXISTING_")
		c.Fail(fault.Invalid("onExisting", "%s needs an id", choice))
	}
	if req.GetMaxWait() != nil {
		put.MaxWait, _ = c.Span("maxWait", req.GetMaxWait(), time.Millisecond, c.Limits.DelayMax)
	}
	put.IfVersion = req.GetIfVersion()
	if put.OnExisting == fsm.ReplaceExisting || put.OnExisting == fsm.NextExisting {
		return
	}
	if req.GetMaxWait() != nil {
		c.Fail(fault.Invalid("maxWait", "it needs onExisting REPLACE or NEXT"))
	}
	if put.IfVersion != 0 {
		c.Fail(fault.Invalid("ifVersion", "it needs onExisting REPLACE or NEXT"))
	}
}

// When converts the two ways to give a due time; at most one of them is set. Both are rounded up to
// the precision of the wire, so that the due time that is shown is the one that applies.
func (c *Request) When(delay *durationpb.Duration, dueAt *timestamppb.Timestamp,
	given fsm.Given) (time.Duration, fsm.Time, fsm.Given) {
	switch {
	case delay != nil:
		d, _ := c.delay("delay", delay)
		return wire.CeilMillis(d), 0, given | fsm.GivenDelay
	case dueAt != nil:
		return 0, wire.WholeMillis(c.dueAt("dueAt", dueAt)), given | fsm.GivenDueAt
	default:
		return 0, 0, given
	}
}
