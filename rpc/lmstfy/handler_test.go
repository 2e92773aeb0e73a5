package lmstfy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// services has one job, and notes the calls that reach it. With an error it returns that instead.
type services struct {
	calls    []any
	err      error
	job      *belfryv1.Job
	released []*belfryv1.Job
	// token is the header of the last authenticated request. authFault refuses it.
	token     string
	authFault *fault.Error
	registry  *prometheus.Registry
}

// deletes returns the counted deletes by the state of the job.
func (s *services) deletes(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			counts[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return counts
}

// now is the time of every witness.
func now() *timestamppb.Timestamp { return timestamppb.New(time.Unix(1000, 0)) }

// newServices returns services whose job is in whichever state is asked for.
func newServices() *services {
	return &services{registry: prometheus.NewRegistry(), job: &belfryv1.Job{
		Queue: "ns/q", Id: "0-1", Body: &belfryv1.Job_Data{Data: []byte("hello")}, MaxAttempts: 3, Attempt: 1,
		CreatedAt: timestamppb.New(time.Unix(998, 0)), ExpiresAt: timestamppb.New(time.Unix(1059, 600e6)),
		Witness: &belfryv1.Witness{Time: now()},
	}}
}

// answering returns a method that notes its requests and returns an answer.
func answering[Q, A any](s *services, answer func() *A) method[Q, A] {
	return func(_ context.Context, req *Q) (*A, error) {
		s.calls = append(s.calls, req)
		if s.err != nil {
			return nil, s.err
		}
		return answer(), nil
	}
}

// handler returns a handler of the services.
func (s *services) handler(t testing.TB) *Handler {
	t.Helper()
	h, err := New(Config{
		Queues: Queues{
			Put: answering[belfryv1.PutRequest](s, func() *belfryv1.PutResponse { return &belfryv1.PutResponse{Id: "0-7"} }),
			PutBatch: func(_ context.Context, req *belfryv1.PutBatchRequest) (*belfryv1.PutBatchResponse, error) {
				s.calls = append(s.calls, req)
				out := &belfryv1.PutBatchResponse{}
				for range req.GetJobs() {
					out.Results = append(out.Results, &belfryv1.PutBatchResult{
						Result: &belfryv1.PutBatchResult_Put{Put: &belfryv1.PutResponse{Id: "0-7"}},
					})
				}
				return out, s.err
			},
			Reserve: answering[belfryv1.ReserveRequest](s, func() *belfryv1.ReserveResponse {
				return &belfryv1.ReserveResponse{Jobs: []*belfryv1.Job{s.job}}
			}),
			Cancel: answering[belfryv1.CancelRequest](s, func() *belfryv1.CancelResponse {
				return &belfryv1.CancelResponse{State: belfryv1.JobState_JOB_STATE_RESERVED}
			}),
			Get: answering[belfryv1.GetRequest](s, func() *belfryv1.GetResponse {
				return &belfryv1.GetResponse{Job: s.job, Witness: s.job.GetWitness()}
			}),
			List: answering[belfryv1.ListRequest](s, func() *belfryv1.ListResponse {
				return &belfryv1.ListResponse{Jobs: []*belfryv1.Job{s.job}}
			}),
			Redrive: answering[belfryv1.RedriveRequest](s, func() *belfryv1.RedriveResponse {
				return &belfryv1.RedriveResponse{Moved: 1}
			}),
		},
		Administration: s.administration(),
		Authenticate: func(r *http.Request) (*http.Request, *fault.Error) {
			s.token = r.Header.Get("Authorization")
			return r, s.authFault
		},
		ReleaseUnsent: func(_ context.Context, jobs []*belfryv1.Job) { s.released = jobs },
		WaitMax:       time.Minute, Version: "v1.2.3", Registry: s.registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// administration returns AdminService.
func (s *services) administration() Administration {
	return Administration{
		GetQueue: answering[belfryv1.GetQueueRequest](s, func() *belfryv1.GetQueueResponse {
			return &belfryv1.GetQueueResponse{Queue: &belfryv1.Queue{Counts: &belfryv1.JobCounts{Ready: 4, Dead: 2}}}
		}),
		ListQueues: answering[belfryv1.ListQueuesRequest](s, func() *belfryv1.ListQueuesResponse {
			return &belfryv1.ListQueuesResponse{Queues: []*belfryv1.Queue{
				{Name: "ns/a"}, {Name: "ns/b"}, {Name: "alone"}, {Name: "ns/not.here"},
			}}
		}),
		PurgeQueue: answering[belfryv1.PurgeQueueRequest](s, func() *belfryv1.PurgeQueueResponse {
			return &belfryv1.PurgeQueueResponse{Purged: 1}
		}),
		CreateToken: answering[belfryv1.CreateTokenRequest](s, func() *belfryv1.CreateTokenResponse {
			return &belfryv1.CreateTokenResponse{Token: "secret"}
		}),
		ListTokens: answering[belfryv1.ListTokensRequest](s, func() *belfryv1.ListTokensResponse {
			return &belfryv1.ListTokensResponse{Tokens: []*belfryv1.Token{
				{Id: "aaaa", About: "mine", Scopes: []string{"put:ns/q", "admin:ns/*"}},
				{Id: "bbbb", About: "wider", Scopes: []string{"put:ns/q", "admin:ns*"}},
				{Id: "cccc", About: "all", Scopes: []string{"admin:*"}},
			}}
		}),
		DeleteToken: answering[belfryv1.DeleteTokenRequest](s, func() *belfryv1.DeleteTokenResponse {
			return &belfryv1.DeleteTokenResponse{Found: true}
		}),
	}
}

// send makes a request of a handler.
func send(t testing.TB, h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// want checks an answer.
func want(t testing.TB, request string, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	if got := strings.Join(strings.Fields(w.Body.String()), " "); w.Code != status || got != body {
		t.Errorf("%s: %d %s, want %d %s", request, w.Code, got, status, body)
	}
}

// shown is the job of the services as lmstfy shows it.
const shown = `{"attributes":null,"data":"aGVsbG8=","elapsed_ms":2000,"job_id":"0-1","msg":"new job",` +
	`"namespace":"ns","queue":"q","remain_tries":2,"ttl":60}`

// TestAnswers has the answer of each route.
func TestAnswers(t *testing.T) {
	h := newServices().handler(t)
	peeked := strings.Replace(shown, `"msg":"new job",`, "", 1)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/api/ns/q", "x", 201, `{"job_id":"0-7","msg":"published"}`},
		{"PUT", "/api/ns/q/job/0-1", "x", 201, `{"job_id":"0-7","msg":"published"}`},
		{"PUT", "/api/ns/q/bulk", `[1, "b"]`, 201, `{"job_ids":["0-7","0-7"],"msg":"published"}`},
		{"GET", "/api/ns/q", "", 200, shown},
		{"GET", "/api/ns/q?count=2", "", 200, "[" + shown + "]"},
		{"GET", "/api/ns/q/peek", "", 200, peeked},
		{"GET", "/api/ns/q/job/0-1", "", 200, peeked},
		{"DELETE", "/api/ns/q/job/0-1", "", 204, ""},
		{"DELETE", "/api/ns/q", "", 204, ""},
		{"GET", "/api/ns/q/size", "", 200, `{"namespace":"ns","queue":"q","size":4}`},
		{"GET", "/api/ns/q/deadletter/size", "", 200, `{"namespace":"ns","queue":"q","size":2}`},
		{
			"GET", "/api/ns/q/deadletter", "", 200,
			`{"deadletter_head":"0-1","deadletter_size":2,"namespace":"ns","queue":"q"}`,
		},
		{"PUT", "/api/ns/q/deadletter?limit=1", "", 200, `{"count":1,"msg":"respawned"}`},
		{"DELETE", "/api/ns/q/deadletter?limit=3", "", 204, ""},
		{"GET", "/version", "", 200, `{ "build_commit": "", "build_date": "", "version": "v1.2.3" }`},
		{"GET", "/pools", "", 200, `[ "default" ]`},
		{"GET", "/info", "", 200, `{ "ns": [ "a", "b" ] }`},
		{"GET", "/limits", "", 200, `{}`},
		{"GET", "/token/ns", "", 200, `{ "tokens": { "aaaa": "mine" } }`},
		{"POST", "/token/ns?description=a+b", "", 201, `{ "token": "secret" }`},
		{"DELETE", "/token/ns/aaaa", "", 204, ""},
		{"GET", "/token/ns/aaaa/limit", "", 404, `{}`},
		{"HEAD", "/api/ns/q", "", 404, `{"error":"api not found"}`},
		{"POST", "/api/ns/q", "", 404, `{"error":"api not found"}`},
		{"GET", "/api/ns", "", 404, `{"error":"api not found"}`},
		{"GET", "/metrics", "", 404, `{"error":"api not found"}`},
	} {
		want(t, c.method+" "+c.path, send(t, h, c.method, c.path, c.body), c.status, c.want)
	}
}

// TestCalls has the calls that requests become.
func TestCalls(t *testing.T) {
	const queue = "ns/q"
	second := durationpb.New(time.Second)
	for _, c := range []struct {
		method, path, body string
		want               []any
	}{
		{"PUT", "/api/ns/q", "x", []any{&belfryv1.PutRequest{
			Queue: queue, Body: &belfryv1.PutRequest_Data{Data: []byte("x")}, MaxAttempts: new(uint32(1)),
			RetryDelays: []*durationpb.Duration{{}}, Ttl: durationpb.New(24 * time.Hour),
		}}},
		{"PUT", "/api/ns/q/job/0-1?delay=1&ttl=0&tries=65535", "", []any{&belfryv1.PutRequest{
			Queue: queue, Body: &belfryv1.PutRequest_Data{Data: []byte{}}, MaxAttempts: new(uint32(65535)),
			RetryDelays: []*durationpb.Duration{{}}, When: &belfryv1.PutRequest_Delay{Delay: second},
		}, &belfryv1.CancelRequest{Queue: queue, Id: "0-1", Force: true}}},
		{"GET", "/api/ns/q", "", []any{&belfryv1.ReserveRequest{
			Queues: []string{queue}, MaxJobs: 1, Wait: &durationpb.Duration{}, Ttr: durationpb.New(2 * time.Minute),
		}}},
		{"GET", "/api/ns/b,,a,?ttr=0&timeout=1&count=100&freeze_tries=true", "", []any{&belfryv1.ReserveRequest{
			Queues: []string{"ns/b", "ns/a"}, MaxJobs: 100, Wait: second, Ttr: second,
		}}},
		{"DELETE", "/api/ns/q/job/a%2Fb", "", []any{&belfryv1.CancelRequest{Queue: queue, Id: "a/b", Force: true}}},
		{"DELETE", "/api/ns/q", "", []any{&belfryv1.PurgeQueueRequest{
			Queue: queue, States: []belfryv1.JobState{belfryv1.JobState_JOB_STATE_READY},
		}}},
		{"DELETE", "/api/ns/q/deadletter?limit=9223372036854775807", "", []any{&belfryv1.PurgeQueueRequest{
			Queue: queue, States: []belfryv1.JobState{belfryv1.JobState_JOB_STATE_DEAD}, Max: 1<<32 - 1,
		}}},
		{"PUT", "/api/ns/q/deadletter?limit=100001", "", []any{&belfryv1.RedriveRequest{Queue: queue, Max: 100_000}}},
		{"POST", "/token/ns", "description=of+a+form", []any{
			&belfryv1.CreateTokenRequest{Scopes: []string{"admin:ns/*"}, About: "of a form"},
		}},
		{"DELETE", "/token/ns/default:aaaa", "", []any{
			&belfryv1.ListTokensRequest{PageSize: 1000}, &belfryv1.DeleteTokenRequest{Id: "aaaa"},
		}},
		{"DELETE", "/token/ns/cccc", "", []any{&belfryv1.ListTokensRequest{PageSize: 1000}}},
	} {
		s := newServices()
		h := s.handler(t)
		send(t, h, c.method, c.path, c.body, "Content-Type", "application/x-www-form-urlencoded")
		if diff := cmp.Diff(c.want, s.calls, protocmp.Transform()); diff != "" {
			t.Errorf("%s %s: the calls (-want +got):\n%s", c.method, c.path, diff)
		}
	}
}

// TestRefusals has requests that are refused without a call.
func TestRefusals(t *testing.T) {
	long := strings.Repeat("n", 256)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/api/ns/q?delay=x", "", 400, "invalid delay"},
		{"PUT", "/api/ns/q?delay=4294967296", "", 400, "invalid delay"},
		{"PUT", "/api/ns/q?ttl=-1", "", 400, "invalid ttl"},
		{"PUT", "/api/ns/q?ttl=", "", 400, "invalid ttl"},
		{"PUT", "/api/ns/q?ttl=1&delay=2", "", 400, "ttl is shorter than delay"},
		{"PUT", "/api/ns/q?tries=0", "", 400, "tries shouldn't be zero"},
		{"PUT", "/api/ns/q?tries=65536", "", 400, "invalid tries"},
		{"PUT", "/api/ns/q/job/0-1?tries=0", "", 400, "tries shouldn't be zero"},
		{"PUT", "/api/ns/q", strings.Repeat("x", 1<<20+1), 413, "body too large"},
		{"PUT", "/api/ns/q/bulk", "{}", 400, "request body should be an array of objects"},
		{"PUT", "/api/ns/q/bulk", "[]", 400, "no jobs"},
		{"PUT", "/api/ns/q/bulk", "null", 400, "no jobs"},
		{"PUT", "/api/ns/q/bulk", "[" + strings.Repeat("1,", 64) + "1]", 400, "too many jobs"},
		{"PUT", "/api/ns/q/bulk", `["` + strings.Repeat("x", 1<<20) + `"]`, 413, "job too large"},
		{"PUT", "/api/ns/q/bulk?tries=x", "[1]", 400, "invalid tries"},
		{"PUT", "/api/ns/_q", "", 400, "queue name contains forbidden characters"},
		{"PUT", "/api/ns/a.b", "", 400, "queue name contains forbidden characters"},
		{"PUT", "/api/ns/a,b", "", 400, "queue name contains forbidden characters"},
		{"PUT", "/api/n%20s/a", "", 400, "namespace name contains forbidden characters"},
		{"PUT", "/api/ns/" + long, "", 400, "namespace or queue name too long"},
		{"GET", "/api/n.s/q", "", 400, "namespace name contains forbidden characters"},
		{"GET", "/api/ns/a.b,c", "", 400, "queue name contains forbidden characters"},
		{"GET", "/api/ns/,,", "", 400, "invalid queue name(s)"},
		{"GET", "/api/ns/q?ttr=x", "", 400, "invalid ttr"},
		{"GET", "/api/ns/q?timeout=x", "", 400, "invalid timeout"},
		{"GET", "/api/ns/q?count=0", "", 400, "invalid count"},
		{"GET", "/api/ns/q?count=101", "", 400, "invalid count"},
		{"PUT", "/api/ns/q/deadletter?limit=0", "", 400, "invalid limit"},
		{"PUT", "/api/ns/q/deadletter?ttl=-1", "", 400, "invalid ttl"},
		{"DELETE", "/api/ns/q/deadletter?limit=x", "", 400, "invalid limit"},
		{"GET", "/api/ns/q?token=other:x", "", 404, "pool not found"},
		{"POST", "/token/ns", "", 400, "invalid description"},
		{"POST", "/token/ns?description=%zz", "", 400, "invalid description"},
		{"POST", "/token/n.s?description=x", "", 400, "namespace name contains forbidden characters"},
		{"POST", "/token/" + long + "?description=x", "", 400, "the namespace name was too long"},
		{"POST", "/token/ns?description=x&pool=p", "", 400, "the pool was not exists"},
		{"GET", "/token/ns?pool=p", "", 400, "the pool was not exists"},
		{"DELETE", "/token/ns/p:x", "", 400, "the pool was not exists"},
		{
			"POST", "/token/ns?description=x&token=01234567890123456789", "", 400,
			"Belfry makes the token, and keeps only a hash of it: call this without the parameter token",
		},
		{
			"PUT", "/token/ns/x/limit", "", 501,
			"a token has no limits of its own here: set the rate of its queues or the quota of its namespace",
		},
	} {
		s := newServices()
		w := send(t, s.handler(t), c.method, c.path, c.body)
		want(t, c.method+" "+c.path, w, c.status, `{"error":"`+c.want+`"}`)
		if len(s.calls) > 0 {
			t.Errorf("%s %s: calls %v", c.method, c.path, s.calls)
		}
	}
}

// TestFailures has the statuses and texts of faults.
func TestFailures(t *testing.T) {
	quota := fault.New(belfryv1.Reason_REASON_QUOTA)
	quota.Message, quota.RetryAfter = "too much", 1500*time.Millisecond
	forbidden := fault.New(belfryv1.Reason_REASON_FORBIDDEN)
	forbidden.Message = "it takes more"
	for _, c := range []struct {
		err    error
		status int
		want   string
		reason string
	}{
		{fault.Invalid("ttr", "too long"), 400, `{"error":"ttr: too long"}`, "INVALID"},
		{fault.TooLarge("jobs", 2, 1), 413, `{"error":"jobs: 2 bytes; the limit is 1"}`, "TOO_LARGE"},
		{fault.New(belfryv1.Reason_REASON_UNAUTHENTICATED), 401, `{"error":"invalid token"}`, "UNAUTHENTICATED"},
		{forbidden.Wire(), 401, `{"error":"invalid token: it takes more"}`, "FORBIDDEN"},
		{quota.Wire(), 429, `{"error":"too much","msg":"too much"}`, "QUOTA"},
		{errors.New("broken"), 500, `{"error":"internal error"}`, "INTERNAL"},
	} {
		s := newServices()
		s.err = c.err
		w := send(t, s.handler(t), "PUT", "/api/ns/q", "x")
		want(t, c.err.Error(), w, c.status, c.want)
		if got := w.Header().Get("Belfry-Reason"); got != c.reason {
			t.Errorf("%v: reason %q, want %s", c.err, got, c.reason)
		}
		if wait := w.Header().Get("Retry-After"); (wait == "2") != (c.reason == "QUOTA") {
			t.Errorf("%v: Retry-After is %q", c.err, wait)
		}
	}
	s := newServices()
	s.err = fault.New(belfryv1.Reason_REASON_NO_LEADER)
	if w := send(t, s.handler(t), "GET", "/api/ns/q", ""); w.Code != 503 {
		t.Errorf("without a leader: %d %s", w.Code, w.Body)
	}
}
