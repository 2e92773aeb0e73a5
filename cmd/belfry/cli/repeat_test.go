package cli

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// attempt is how one attempt at a call ends: after how long, and with which reason; empty for
// success.
type attempt struct {
	after  time.Duration
	reason string
}

// TestRepeats: a call is repeated while its shard may get a leader, and its outcome is unknown only
// if an attempt may have been applied and no later answer tells.
func TestRepeats(t *testing.T) {
	const serverWaits = 5 * time.Second
	for _, test := range []struct {
		name     string
		attempts []attempt // the last one goes on for ever
		want     string
		within   time.Duration // at most
	}{
		{"at once", []attempt{{0, ""}}, "", 0},
		{"a leader comes", []attempt{{0, "NO_LEADER"}, {0, "NOT_LEADER"}, {0, ""}}, "", time.Second},
		{"the server has waited for a leader", []attempt{{serverWaits, "NO_LEADER"}}, "NO_LEADER", serverWaits},
		{"servers that do not wait", []attempt{{0, "NO_LEADER"}}, "NO_LEADER", noLeaderRetry + 2*time.Second},
		{"a repeat tells", []attempt{{time.Second, "UNKNOWN_OUTCOME"}, {0, ""}}, "", 2 * time.Second},
		{"a repeat is refused for good", []attempt{
			{time.Second, "UNKNOWN_OUTCOME"},
			{0, "JOB_EXISTS"},
		}, "JOB_EXISTS", 2 * time.Second},
		{"nobody can tell any more", []attempt{
			{time.Second, "UNKNOWN_OUTCOME"},
			{serverWaits, "NO_LEADER"},
		}, "UNKNOWN_OUTCOME", serverWaits + 2*time.Second},
		{"a late unknown outcome", []attempt{{10 * time.Second, "UNKNOWN_OUTCOME"}, {0, ""}}, "", 11 * time.Second},
		{"another trouble after an unknown outcome", []attempt{
			{0, "UNKNOWN_OUTCOME"},
			{0, "OVERLOADED"},
		}, "UNKNOWN_OUTCOME", time.Second},
		{"the time is up", []attempt{{0, "UNKNOWN_OUTCOME"}}, "UNKNOWN_OUTCOME", defaultTimeout},
		{"another trouble", []attempt{{0, "OVERLOADED"}}, "OVERLOADED", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), defaultTimeout)
				defer cancel()
				repeats := retryInterceptor(100*time.Millisecond, 2*time.Second, &serverList{urls: []*url.URL{{}}})
				call := repeats(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
					now := test.attempts[0]
					if len(test.attempts) > 1 {
						test.attempts = test.attempts[1:]
					}
					time.Sleep(now.after)
					if now.reason == "" {
						return connect.NewResponse(&belfryv1.PutResponse{}), nil
					}
					return nil, refusalOf(connect.CodeUnavailable, now.reason, "not now")
				})
				began := time.Now()
				_, err := call(ctx, connect.NewRequest(&belfryv1.PutRequest{}))
				want := belfryv1.Reason(belfryv1.Reason_value["REASON_"+test.want])
				if took := time.Since(began); reasonOf(err) != want || (err == nil) != (test.want == "") || took > test.within {
					t.Errorf("after %v: %v, want %q within %v", took, err, test.want, test.within)
				}
			})
		})
	}
}

// TestRefusalWhenTheTimeIsUp: a call of which every attempt was refused has done nothing, also when
// the time is up.
func TestRefusalWhenTheTimeIsUp(t *testing.T) {
	a := &App{Server: "127.0.0.1:1"}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 0, NoAnswer(time.Second))
	defer cancel()
	for err, want := range map[error]int{
		refusalOf(connect.CodeUnavailable, "NO_LEADER", "nobody leads"):              CodeUnavailable,
		refusalOf(connect.CodeUnavailable, "UNKNOWN_OUTCOME", "who knows"):           CodeUnknown,
		refusalOf(connect.CodeDeadlineExceeded, "OVERLOADED", "the call has ended"):  CodeUnknown,
		connect.NewError(connect.CodeDeadlineExceeded, errors.New("the time is up")): CodeUnknown,
	} {
		if code := ExitCode(ctx, a.Describe(ctx, err)); code != want {
			t.Errorf("%v: exit code %d, want %d", err, code, want)
		}
	}
}
