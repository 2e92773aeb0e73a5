package fault

import (
	"iter"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

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

// These are short names for the rows of the contract.
const (
	none      = belfryv1.Outcome_OUTCOME_NOT_APPLIED
	unknown   = belfryv1.Outcome_OUTCOME_UNKNOWN
	exhausted = connect.CodeResourceExhausted
)

// contract yields the rows of the only table that maps the state machine's codes and the errors of
// package node to the wire.
func contract() iter.Seq[row] {
	return func(yield func(row) bool) {
		for _, r := range jobRows() {
			if !yield(r) {
				return
			}
		}
		for _, r := range nodeRows() {
			if !yield(r) {
				return
			}
		}
	}
}

// jobRows are the rows about jobs, queues and what they may use.
func jobRows() [17]row {
	return [...]row{
		{belfryv1.Reason_REASON_INVALID, connect.CodeInvalidArgument, none, fsm.Invalid, nil, 0,
			"requestId: it was used before with other content"},
		{belfryv1.Reason_REASON_TOO_LARGE, connect.CodeInvalidArgument, none, fsm.OK, node.ErrTooLarge, 0,
			"request: larger than a log entry may be"},
		{belfryv1.Reason_REASON_JOB_EXISTS, connect.CodeAlreadyExists, none, fsm.JobExists, nil, 0,
			"a job with this id exists, or ended within the dedup window, with other content"},
		{belfryv1.Reason_REASON_JOB_NOT_FOUND, connect.CodeNotFound, none, fsm.JobNotFound, nil, 0, "there is no such job"},
		{belfryv1.Reason_REASON_JOB_RESERVED, connect.CodeFailedPrecondition, none, fsm.JobReserved, nil, 0,
			"the job is reserved"},
		{belfryv1.Reason_REASON_VERSION_CHANGED, connect.CodeFailedPrecondition, none, fsm.VersionChanged, nil, 0,
			"no job with this id is held"},
		{belfryv1.Reason_REASON_INVALID, connect.CodeInvalidArgument, none, fsm.KeyRefused, nil, 0,
			"key: the queue takes no jobs with a key, as its setting noKeys says"},
		{belfryv1.Reason_REASON_STALE_LEASE, connect.CodeFailedPrecondition, none, fsm.StaleLease, nil, 0,
			"the lease lapsed, was given back, or never was"},
		{belfryv1.Reason_REASON_QUEUE_EXISTS, connect.CodeAlreadyExists, none, fsm.QueueExists, nil, 0,
			"the queue exists already"},
		{belfryv1.Reason_REASON_QUEUE_NOT_FOUND, connect.CodeNotFound, none, fsm.QueueNotFound, node.ErrNoQueue, 0,
			"there is no such queue"},
		{belfryv1.Reason_REASON_QUEUE_CHANGED, connect.CodeAborted, none, fsm.QueueChanged, nil, 50 * time.Millisecond,
			"the queue has another number of partitions than this node knew; try again"},
		{belfryv1.Reason_REASON_QUEUE_FULL, exhausted, none, fsm.QueueFull, nil, time.Second,
			"the queue holds as many jobs or bytes as its settings allow"},
		{belfryv1.Reason_REASON_SCHEDULE_NOT_FOUND, connect.CodeNotFound, none, fsm.ScheduleNotFound, nil, 0,
			"the queue has no schedule of this name"},
		{belfryv1.Reason_REASON_QUOTA, exhausted, none, fsm.Quota, nil, 0,
			"the shard holds as many queues as it may; delete some"},
		{belfryv1.Reason_REASON_RATE_LIMITED, exhausted, none, fsm.RateLimited, nil, 100 * time.Millisecond,
			"the queue takes no more puts this second"},
		{belfryv1.Reason_REASON_QUOTA, exhausted, none, fsm.OK, node.ErrQuota, time.Second,
			"the namespace has used up its quota"},
		{belfryv1.Reason_REASON_RATE_LIMITED, exhausted, none, fsm.OK, node.ErrRateLimited,
			100 * time.Millisecond, "the namespace takes no more puts for the moment"},
	}
}

// nodeRows are the rows about servers, requests and callers.
func nodeRows() [21]row {
	return [...]row{
		{belfryv1.Reason_REASON_OVERLOADED, exhausted, none, fsm.OK, node.ErrOverloaded,
			100 * time.Millisecond, "the server has more requests waiting than it takes"},
		{belfryv1.Reason_REASON_OVERLOADED, exhausted, none, fsm.OK, node.ErrQuotaUnknown, 200 * time.Millisecond,
			"the shard's leader does not know yet what it may use of the namespace's quota; nothing was done, and a retry is " +
				"safe"},
		{belfryv1.Reason_REASON_OVERLOADED, exhausted, none, fsm.Restoring, node.ErrRestoring, time.Second,
			"a restore of the cluster is under way or was interrupted: nothing else is done until it has ended; " +
				"repeat it with the same backup if nobody does"},
		{belfryv1.Reason_REASON_OVERLOADED, exhausted, none, fsm.OK, node.ErrCanceled, 0,
			"the call ended before it was logged"},
		{belfryv1.Reason_REASON_DISK_FULL, exhausted, none, fsm.OK, node.ErrDiskFull, 5 * time.Second,
			"the server's disk is nearly full"},
		{belfryv1.Reason_REASON_MEMORY_FULL, exhausted, none, fsm.OK, node.ErrMemoryFull, 5 * time.Second,
			"the memory of a node that holds the shard is nearly full"},
		{belfryv1.Reason_REASON_REQUEST_EXPIRED, connect.CodeFailedPrecondition, unknown, fsm.RequestExpired, nil, 0,
			"requestId: it is older than what is remembered; nothing was done now, the earlier outcome is unknown"},
		{belfryv1.Reason_REASON_NOT_LEADER, connect.CodeUnavailable, none, fsm.OK, node.ErrNotLeader,
			50 * time.Millisecond, "another node leads the shard"},
		{belfryv1.Reason_REASON_NOT_LEADER, connect.CodeUnavailable, none, fsm.OK, node.ErrNotHere,
			50 * time.Millisecond,
			"no replica of the shard is on the node that was asked, or it is getting its state again"},
		{belfryv1.Reason_REASON_NO_LEADER, connect.CodeUnavailable, none, fsm.OK, node.ErrNoLeader,
			200 * time.Millisecond, "the shard has no leader that serves"},
		{belfryv1.Reason_REASON_NO_LEADER, connect.CodeUnavailable, none, fsm.OK, node.ErrSilent, time.Second,
			"the node that should take over has not answered lately"},
		{belfryv1.Reason_REASON_SHUTTING_DOWN, connect.CodeUnavailable, none, fsm.OK, node.ErrShuttingDown, time.Second,
			"the server is stopping"},
		{belfryv1.Reason_REASON_CLOCK_AHEAD, connect.CodeUnavailable, none, fsm.OK, node.ErrClockAhead, time.Second,
			"the clock of the shard's leader does not agree with the other voters'"},
		{belfryv1.Reason_REASON_TOO_FEW_VOTERS, connect.CodeUnavailable, none, fsm.OK, node.ErrTooFewVoters,
			time.Second, "the shard has fewer voters than min-voters asks for"},
		{belfryv1.Reason_REASON_UNKNOWN_OUTCOME, connect.CodeUnavailable, unknown, fsm.OK, node.ErrUnknownOutcome,
			100 * time.Millisecond, "the call may have been applied; repeat it with the same requestId to find out"},
		{belfryv1.Reason_REASON_UNAUTHENTICATED, connect.CodeUnauthenticated, none, fsm.OK, nil, 0,
			"the call carries no valid credentials"},
		{belfryv1.Reason_REASON_FORBIDDEN, connect.CodePermissionDenied, none, fsm.OK, nil, 0, "the call is not allowed"},
		{belfryv1.Reason_REASON_UNIMPLEMENTED, connect.CodeUnimplemented, none, fsm.OK, nil, 0, "there is no such method"},
		{belfryv1.Reason_REASON_UNIMPLEMENTED, connect.CodeUnimplemented, none, fsm.OK, node.ErrUnsupported, 0,
			"not all nodes run a version that knows this call; it works once they do"},
		{belfryv1.Reason_REASON_INTERNAL, connect.CodeInternal, unknown, fsm.OK, node.ErrUnknownShard, 0, "the server broke"},
		{belfryv1.Reason_REASON_UNSPECIFIED, connect.CodeInternal, unknown, fsm.OK, nil, 0, "the server broke"},
	}
}

// contractRow returns the first row of a reason, and the last of all for one without a row.
func contractRow(reason belfryv1.Reason) row {
	var last row
	for last = range contract() {
		if last.reason == reason {
			break
		}
	}
	return last
}

// ReasonName returns the reason as ErrorInfo and JSON write it: without the prefix.
func ReasonName(reason belfryv1.Reason) string {
	return strings.TrimPrefix(reason.String(), "REASON_")
}
