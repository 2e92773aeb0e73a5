package cli

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
)

// TestOutcomeUnknown: what was never sent was not done; what may have been sent may have been done.
func TestOutcomeUnknown(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	read := &net.OpError{Op: "read", Err: errors.New("reset")}
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"nobody answered the dial", connect.NewError(connect.CodeUnavailable, dial), false},
		{"the connection broke", connect.NewError(connect.CodeUnavailable, read), true},
		{"the connection was reset", connect.NewError(connect.CodeCanceled, read), true},
		{"the time was up", connect.NewError(connect.CodeDeadlineExceeded, errors.New("late")), true},
		{"the time was up before connect saw it", context.DeadlineExceeded, true},
		{"the message could not be written", connect.NewError(connect.CodeInvalidArgument, errors.New("no UTF-8")), false},
		{"something else", errors.New("something else"), false},
		{"the server knows", refusalOf(connect.CodeUnavailable, "SHUTTING_DOWN", ""), false},
		{"the server does not know", refusalOf(connect.CodeUnavailable, "UNKNOWN_OUTCOME", ""), true},
	} {
		if got := OutcomeUnknown(test.err); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestNoLeaderPointsToTheStatus, unless it is a node that waits for its cluster: its status would
// say the same.
func TestNoLeaderPointsToTheStatus(t *testing.T) {
	const hint = "; see 'belfry cluster status'"
	for shard, hinted := range map[string]bool{"3": true, "": false} {
		err := connect.NewError(connect.CodeUnavailable, errors.New("nobody leads"))
		info := &errdetails.ErrorInfo{Reason: "NO_LEADER", Domain: "belfry"}
		if shard != "" {
			info.Metadata = map[string]string{"shard": shard}
		}
		detail, detailErr := connect.NewErrorDetail(info)
		if detailErr != nil {
			t.Fatal(detailErr)
		}
		err.AddDetail(detail)
		if got := Explain(err); !strings.HasPrefix(got, "NO_LEADER: nobody leads") || strings.HasSuffix(got, hint) != hinted {
			t.Errorf("shard %q: %s", shard, got)
		}
	}
}

// refusalOf returns an error as a server writes it.
func refusalOf(code connect.Code, reason, message string) error {
	err := connect.NewError(code, errors.New(message))
	detail, detailErr := connect.NewErrorDetail(&errdetails.ErrorInfo{Reason: reason, Domain: "belfry"})
	if detailErr != nil {
		return detailErr
	}
	err.AddDetail(detail)
	return err
}
