package rpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
)

// errorDomain is the domain of every google.rpc.ErrorInfo that Belfry sends.
const errorDomain = "belfry"

// Fault is an error of the public contract. It has a reason of the closed list, and details for the
// caller. The reason decides the Connect code and the outcome.
type Fault struct {
	Reason belfryv1.Reason
	// Message is for people. For INVALID and TOO_LARGE it starts with the field and names the limit.
	Message string
	// Field is the path of the field with the error, as JSON names it; empty if there is none.
	Field string
	// Shard is the shard concerned; nil if the call reached none.
	Shard *uint32
	// Leader is the address of the shard's leader if it is another node and known.
	Leader string
	// RetryAfter is how long to wait before a retry makes sense; 0 means that waiting does not help.
	RetryAfter time.Duration
	// State is how a job that was not found ended, if the shard remembers it.
	State fsm.State
	// Witness says where a shard's log decided the error; nil if no log decided it.
	Witness *belfryv1.Witness
	// Ended is the code of a call that its client ended; 0 for other calls. Such an end is no refusal
	// by the server.
	Ended connect.Code
	// Voters says how many voters a shard has, and how many it must have, if it has too few.
	Voters *node.VotersError
	// Count is how many jobs were done before the rest failed; nil if none was.
	Count *uint64
	// Memory says how much of its memory the refusing node uses; nil if memory was not the reason of
	// the refusal.
	Memory *node.MemoryError
}

// Error returns the reason and the message.
func (f *Fault) Error() string { return reasonName(f.Reason) + ": " + f.Message }

// Code returns the Connect code of the fault's reason. For a call that its client ended before
// anything was logged, it returns Connect's code for a canceled call or an exceeded deadline.
func (f *Fault) Code() connect.Code {
	if f.Ended != 0 {
		return f.Ended
	}
	return contractRow(f.Reason).code
}

// Outcome returns whether the call was applied.
func (f *Fault) Outcome() belfryv1.Outcome { return contractRow(f.Reason).outcome }

// row is one line of the error contract.
type row struct {
	reason  belfryv1.Reason
	code    connect.Code
	outcome belfryv1.Outcome
	// machine is the state machine's code for this reason, OK if it has none. cause is the error of
	// package node for it, nil if there is none.
	machine fsm.Code
	cause   error
	// retry is the default wait before a retry.
	retry   time.Duration
	message string
}

// contract returns the only table that maps the state machine's codes and the errors of package
// node to the wire.
func contract() [34]row {
	const (
		none    = belfryv1.Outcome_OUTCOME_NOT_APPLIED
		unknown = belfryv1.Outcome_OUTCOME_UNKNOWN
	)
	return [...]row{
		{belfryv1.Reason_REASON_INVALID, connect.CodeInvalidArgument, none, fsm.Invalid, nil, 0, "requestId: it was used before with other content"},
		{belfryv1.Reason_REASON_TOO_LARGE, connect.CodeInvalidArgument, none, fsm.OK, node.ErrTooLarge, 0, "request: larger than a log entry may be"},
		{belfryv1.Reason_REASON_JOB_EXISTS, connect.CodeAlreadyExists, none, fsm.JobExists, nil, 0, "a job with this id exists, or ended within the dedup window, with other content"},
		{belfryv1.Reason_REASON_JOB_NOT_FOUND, connect.CodeNotFound, none, fsm.JobNotFound, nil, 0, "there is no such job"},
		{belfryv1.Reason_REASON_JOB_RESERVED, connect.CodeFailedPrecondition, none, fsm.JobReserved, nil, 0, "the job is reserved"},
		{belfryv1.Reason_REASON_STALE_LEASE, connect.CodeFailedPrecondition, none, fsm.StaleLease, nil, 0, "the lease lapsed, was given back, or never was"},
		{belfryv1.Reason_REASON_QUEUE_EXISTS, connect.CodeAlreadyExists, none, fsm.QueueExists, nil, 0, "the queue exists already"},
		{belfryv1.Reason_REASON_QUEUE_NOT_FOUND, connect.CodeNotFound, none, fsm.QueueNotFound, node.ErrNoQueue, 0, "there is no such queue"},
		{belfryv1.Reason_REASON_QUEUE_CHANGED, connect.CodeAborted, none, fsm.QueueChanged, nil, 50 * time.Millisecond, "the queue has another number of partitions than this node knew; try again"},
		{belfryv1.Reason_REASON_QUEUE_FULL, connect.CodeResourceExhausted, none, fsm.QueueFull, nil, time.Second, "the queue holds as many jobs or bytes as its settings allow"},
		{belfryv1.Reason_REASON_QUOTA, connect.CodeResourceExhausted, none, fsm.Quota, nil, 0, "the shard holds as many queues as it may; delete some"},
		{belfryv1.Reason_REASON_RATE_LIMITED, connect.CodeResourceExhausted, none, fsm.RateLimited, nil, 100 * time.Millisecond, "the queue takes no more puts this second"},
		{belfryv1.Reason_REASON_QUOTA, connect.CodeResourceExhausted, none, fsm.OK, node.ErrQuota, time.Second, "the namespace has used up its quota"},
		{belfryv1.Reason_REASON_RATE_LIMITED, connect.CodeResourceExhausted, none, fsm.OK, node.ErrRateLimited, 100 * time.Millisecond, "the namespace takes no more puts for the moment"},
		{belfryv1.Reason_REASON_OVERLOADED, connect.CodeResourceExhausted, none, fsm.OK, node.ErrOverloaded, 100 * time.Millisecond, "the server has more requests waiting than it takes"},
		{belfryv1.Reason_REASON_OVERLOADED, connect.CodeResourceExhausted, none, fsm.OK, node.ErrShareUnknown, 200 * time.Millisecond, "the shard's leader does not know yet what it may use of the namespace's quota; nothing was done, and a retry is safe"},
		{belfryv1.Reason_REASON_OVERLOADED, connect.CodeResourceExhausted, none, fsm.Restoring, node.ErrRestoring, time.Second, "a restore of the cluster is under way or was interrupted: nothing else is done until it has ended; repeat it with the same backup if nobody does"},
		{belfryv1.Reason_REASON_OVERLOADED, connect.CodeResourceExhausted, none, fsm.OK, node.ErrCanceled, 0, "the call ended before it was logged"},
		{belfryv1.Reason_REASON_DISK_FULL, connect.CodeResourceExhausted, none, fsm.OK, node.ErrDiskFull, 5 * time.Second, "the server's disk is nearly full"},
		{belfryv1.Reason_REASON_MEMORY_FULL, connect.CodeResourceExhausted, none, fsm.OK, node.ErrMemoryFull, 5 * time.Second, "the memory of a node that holds the shard is nearly full"},
		{belfryv1.Reason_REASON_REQUEST_EXPIRED, connect.CodeFailedPrecondition, unknown, fsm.RequestExpired, nil, 0, "requestId: it is older than what is remembered; nothing was done now, the earlier outcome is unknown"},
		{belfryv1.Reason_REASON_NOT_LEADER, connect.CodeUnavailable, none, fsm.OK, node.ErrNotLeader, 50 * time.Millisecond, "another node leads the shard"},
		{belfryv1.Reason_REASON_NOT_LEADER, connect.CodeUnavailable, none, fsm.OK, node.ErrNotHere, 50 * time.Millisecond, "no replica of the shard is on the node that was asked, or it is getting its state again"},
		{belfryv1.Reason_REASON_NO_LEADER, connect.CodeUnavailable, none, fsm.OK, node.ErrNoLeader, 200 * time.Millisecond, "the shard has no leader that serves"},
		{belfryv1.Reason_REASON_NO_LEADER, connect.CodeUnavailable, none, fsm.OK, node.ErrSilent, time.Second, "the node that should take over has not answered lately"},
		{belfryv1.Reason_REASON_SHUTTING_DOWN, connect.CodeUnavailable, none, fsm.OK, node.ErrShuttingDown, time.Second, "the server is stopping"},
		{belfryv1.Reason_REASON_CLOCK_AHEAD, connect.CodeUnavailable, none, fsm.OK, node.ErrClockAhead, time.Second, "the clock of the shard's leader does not agree with the other voters'"},
		{belfryv1.Reason_REASON_TOO_FEW_VOTERS, connect.CodeUnavailable, none, fsm.OK, node.ErrTooFewVoters, time.Second, "the shard has fewer voters than min-voters asks for"},
		{belfryv1.Reason_REASON_UNKNOWN_OUTCOME, connect.CodeUnavailable, unknown, fsm.OK, node.ErrUnknownOutcome, 100 * time.Millisecond, "the call may have been applied; repeat it with the same requestId to find out"},
		{belfryv1.Reason_REASON_UNAUTHENTICATED, connect.CodeUnauthenticated, none, fsm.OK, nil, 0, "the call carries no valid credentials"},
		{belfryv1.Reason_REASON_FORBIDDEN, connect.CodePermissionDenied, none, fsm.OK, nil, 0, "the call is not allowed"},
		{belfryv1.Reason_REASON_UNIMPLEMENTED, connect.CodeUnimplemented, none, fsm.OK, nil, 0, "there is no such method"},
		{belfryv1.Reason_REASON_INTERNAL, connect.CodeInternal, unknown, fsm.OK, node.ErrUnknownShard, 0, "the server broke"},
		{belfryv1.Reason_REASON_UNSPECIFIED, connect.CodeInternal, unknown, fsm.OK, nil, 0, "the server broke"},
	}
}

// contractRow returns the first row of a reason.
func contractRow(reason belfryv1.Reason) row {
	table := contract()
	for _, r := range table {
		if r.reason == reason {
			return r
		}
	}
	return table[len(table)-1]
}

// reasonName returns the reason as ErrorInfo and JSON write it: without the prefix.
func reasonName(reason belfryv1.Reason) string {
	return strings.TrimPrefix(reason.String(), "REASON_")
}

// invalid returns a fault about a field. The format says what is wrong and names the limit.
func invalid(field, format string, args ...any) *Fault {
	return &Fault{Reason: belfryv1.Reason_REASON_INVALID, Field: field, Message: field + ": " + fmt.Sprintf(format, args...)}
}

// tooMany returns a fault about the number of entries of a field.
func tooMany(field string, is, limit int) *Fault {
	return &Fault{
		Reason: belfryv1.Reason_REASON_TOO_LARGE, Field: field,
		Message: field + ": " + strconv.Itoa(is) + " entries; the limit is " + strconv.Itoa(limit),
	}
}

// tooLarge returns a fault about the size of a field.
func tooLarge(field string, is, limit int) *Fault {
	return &Fault{
		Reason: belfryv1.Reason_REASON_TOO_LARGE, Field: field,
		Message: fmt.Sprintf("%s: %d bytes; the limit is %d", field, is, limit),
	}
}

// fault returns the fault of a reason, with the message and the wait of its row.
func fault(reason belfryv1.Reason) *Fault {
	r := contractRow(reason)
	return &Fault{Reason: reason, Message: r.message, RetryAfter: r.retry}
}

// faultOfResult returns the fault of a result whose code is not OK.
func faultOfResult(shard uint32, result *fsm.Result) *Fault {
	f := fault(belfryv1.Reason_REASON_INTERNAL)
	for _, r := range contract() {
		if r.machine == result.Code && r.machine != fsm.OK {
			f = &Fault{Reason: r.reason, Message: r.message, RetryAfter: r.retry}
			break
		}
	}
	f.Shard = &shard
	if result.Wait > 0 {
		f.RetryAfter = result.Wait
	}
	if result.Code == fsm.JobNotFound && result.State != fsm.StateNone {
		f.State = result.State
		f.Message = "the job has ended: it is " + stateName(result.State)
	}
	return f
}

// faultOfError returns the fault for err. An error that is neither a fault, nor of package node,
// nor of a context is INTERNAL: its text is for the log, not for the caller.
func faultOfError(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	if errors.Is(err, node.ErrUnknownOutcome) && node.OutcomeOf(err) == node.Unknown {
		err = node.ErrUnknownOutcome // other errors in the chain do not count
	}
	for _, r := range contract() {
		if r.cause != nil && errors.Is(err, r.cause) {
			f := &Fault{Reason: r.reason, Message: r.message, RetryAfter: r.retry}
			if errors.Is(r.cause, node.ErrCanceled) {
				f.Ended = endedBy(err)
			}
			if quota, ok := errors.AsType[*node.QuotaError](err); ok {
				f.Message, f.RetryAfter = quota.Error(), quota.Wait
			}
			if voters, ok := errors.AsType[*node.VotersError](err); ok {
				f.Message, f.Voters = voters.Error()+"; what frees space is taken all the same", voters
			}
			if queues, ok := errors.AsType[*node.QueuesError](err); ok {
				f.Message, f.RetryAfter = queues.Error(), 0 // waiting does not help
			}
			if none, ok := errors.AsType[*node.NoQueueError](err); ok {
				f.Message = none.Error()
			}
			if memory, ok := errors.AsType[*node.MemoryError](err); ok {
				f.Message, f.Memory = memory.Error(), memory
			}
			return f
		}
	}
	if other := (interface{ OtherContent() string })(nil); errors.As(err, &other) {
		f := fault(belfryv1.Reason_REASON_INVALID)
		f.Field = "requestId"
		return f
	}
	if code := endedBy(err); code != 0 {
		f := faultOfError(node.ErrCanceled)
		f.Ended = code
		return f
	}
	return fault(belfryv1.Reason_REASON_INTERNAL)
}

// endedBy returns Connect's code for the end of a context, 0 for other errors.
func endedBy(err error) connect.Code {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	default:
		return 0
	}
}

// faultOfShard is faultOfError for an error of one shard.
func faultOfShard(shard uint32, err error) *Fault {
	f := *faultOfError(err)
	if f.Shard == nil {
		f.Shard = &shard
	}
	return &f
}

// wire returns the fault as a Connect error with its ErrorInfo and, where waiting helps, RetryInfo.
func (f *Fault) wire() *connect.Error {
	err := connect.NewError(f.Code(), errors.New(f.Message))
	metadata := map[string]string{"outcome": outcomeName(f.Outcome())}
	if f.Shard != nil {
		metadata["shard"] = strconv.FormatUint(uint64(*f.Shard), 10)
	}
	if f.Leader != "" {
		metadata["leader"] = f.Leader
	}
	if f.Field != "" {
		metadata["field"] = f.Field
	}
	if f.State != fsm.StateNone {
		metadata["state"] = stateName(f.State)
	}
	if f.Voters != nil {
		metadata["have"], metadata["want"] = strconv.Itoa(f.Voters.Have), strconv.Itoa(f.Voters.Want)
	}
	if f.Count != nil {
		metadata["count"] = strconv.FormatUint(*f.Count, 10)
	}
	if m := f.Memory; m != nil {
		metadata["used"], metadata["limit"] = strconv.FormatUint(m.Used, 10), strconv.FormatUint(m.Limit, 10)
	}
	if w := f.Witness; w != nil {
		metadata["term"], metadata["index"] = strconv.FormatUint(w.GetTerm(), 10), strconv.FormatUint(w.GetIndex(), 10)
		metadata["entry"] = strconv.FormatUint(uint64(w.GetEntry()), 10)
		metadata["time"] = w.GetTime().AsTime().Format(time.RFC3339Nano)
	}
	info := &errdetails.ErrorInfo{Reason: reasonName(f.Reason), Domain: errorDomain, Metadata: metadata}
	if detail, detailErr := connect.NewErrorDetail(info); detailErr == nil {
		err.AddDetail(detail)
	}
	if f.RetryAfter > 0 {
		if detail, detailErr := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(f.RetryAfter)}); detailErr == nil {
			err.AddDetail(detail)
		}
	}
	return err
}

// entry returns the fault as the error of one entry of a batch.
func (f *Fault) entry() *belfryv1.EntryError {
	e := &belfryv1.EntryError{
		Code: f.Code().String(), Reason: f.Reason, Message: f.Message, Outcome: f.Outcome(), Shard: f.Shard, Leader: f.Leader,
		Witness: f.Witness,
	}
	if f.RetryAfter > 0 {
		e.RetryAfter = durationpb.New(f.RetryAfter)
	}
	return e
}

// FaultOf returns the fault in a Connect error of a Belfry server. It returns false if there is
// none.
func FaultOf(err error) (*Fault, bool) {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return nil, false
	}
	var f *Fault
	var retry time.Duration
	for _, detail := range wire.Details() {
		message, err := detail.Value()
		if err != nil {
			continue
		}
		switch m := message.(type) {
		case *errdetails.ErrorInfo:
			if m.GetDomain() == errorDomain {
				f = faultOfInfo(m)
			}
		case *errdetails.RetryInfo:
			retry = m.GetRetryDelay().AsDuration()
		}
	}
	if f == nil {
		return nil, false
	}
	f.Message, f.RetryAfter = wire.Message(), retry
	return f, true
}

// faultOfInfo reads a fault from an ErrorInfo. A reason that this version does not know stays
// UNSPECIFIED.
func faultOfInfo(info *errdetails.ErrorInfo) *Fault {
	metadata := info.GetMetadata()
	f := &Fault{
		Reason: belfryv1.Reason(belfryv1.Reason_value["REASON_"+info.GetReason()]),
		Field:  metadata["field"],
		Leader: metadata["leader"],
	}
	for state := fsm.Delayed; state <= fsm.Expired; state++ {
		if stateName(state) == metadata["state"] {
			f.State = state
		}
	}
	if shard, err := strconv.ParseUint(metadata["shard"], 10, 32); err == nil {
		n := uint32(shard)
		f.Shard, f.Witness = &n, witnessOfInfo(n, metadata)
	}
	if count, err := strconv.ParseUint(metadata["count"], 10, 64); err == nil {
		f.Count = &count
	}
	return f
}

// witnessOfInfo reads the witness of an error that a shard's log decided. It returns nil for other
// errors.
func witnessOfInfo(shard uint32, metadata map[string]string) *belfryv1.Witness {
	term, termErr := strconv.ParseUint(metadata["term"], 10, 64)
	index, indexErr := strconv.ParseUint(metadata["index"], 10, 64)
	entry, entryErr := strconv.ParseUint(metadata["entry"], 10, 32)
	at, timeErr := time.Parse(time.RFC3339Nano, metadata["time"])
	if errors.Join(termErr, indexErr, entryErr, timeErr) != nil {
		return nil
	}
	return &belfryv1.Witness{Shard: shard, Term: term, Index: index, Entry: uint32(entry), Time: timestamppb.New(at)}
}

// outcomeName returns the outcome without the prefix.
func outcomeName(o belfryv1.Outcome) string { return strings.TrimPrefix(o.String(), "OUTCOME_") }

// stateName returns the wire name of a job's state, without the prefix.
func stateName(s fsm.State) string {
	return strings.TrimPrefix(wire.State(s).String(), "JOB_STATE_")
}
