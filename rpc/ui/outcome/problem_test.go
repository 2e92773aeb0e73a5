package outcome

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/ui/form"
)

// TestOf: each error has the status of what it means, also one that no server has given.
func TestOf(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
		reason string
		text   string
	}{
		{fault.New(belfryv1.Reason_REASON_NO_LEADER).Wire(), http.StatusServiceUnavailable, "NO_LEADER",
			"the shard has no leader that serves"},
		{fault.New(belfryv1.Reason_REASON_UNIMPLEMENTED).Wire(), http.StatusNotImplemented, "UNIMPLEMENTED",
			"there is no such method"},
		{fmt.Errorf("x: %w", connect.NewError(connect.CodeUnavailable, errors.New("try again"))),
			http.StatusServiceUnavailable, "", "try again"},
		{connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded), http.StatusServiceUnavailable, "",
			"context deadline exceeded"},
		{Upgrading(fault.New(belfryv1.Reason_REASON_UNIMPLEMENTED).Wire(), "Keys", 4), http.StatusNotImplemented,
			"UNIMPLEMENTED", "Keys need format 4, which the cluster writes once every node runs a version that knows it. " +
				"Upgrade all nodes; the page Cluster shows the version of each. Then this page works by itself"},
		{Upgrading(fault.New(belfryv1.Reason_REASON_NO_LEADER).Wire(), "Keys", 4), http.StatusServiceUnavailable,
			"NO_LEADER", "the shard has no leader that serves"},
		{form.Errorf("due", "no time"), http.StatusBadRequest, "", "due: no time"},
		{fmt.Errorf("%w: a node", ErrAbsent), http.StatusNotFound, "", "not found: a node"},
		{ErrReadOnly, http.StatusForbidden, "", ErrReadOnly.Error()},
		{errors.New("broken"), http.StatusInternalServerError, "", "broken"},
	} {
		if got := Of(tt.err); got.Status != tt.status || got.Reason != tt.reason || got.Text != tt.text {
			t.Errorf("%v: %+v, want %d %s %q", tt.err, got, tt.status, tt.reason, tt.text)
		}
	}
}
