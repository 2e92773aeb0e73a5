package lmstfy

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// TestRounds: a wait that is longer than one of Reserve takes several rounds. A server that stops in
// a later one has no job; one that stops in the first refuses.
func TestRounds(t *testing.T) {
	for _, c := range []struct {
		path   string
		stops  time.Duration // after this long
		waits  []time.Duration
		status int
	}{
		{"timeout=90", time.Hour, []time.Duration{time.Minute, 30 * time.Second}, 404},
		{"timeout=4294967295", time.Hour, slices.Repeat([]time.Duration{time.Minute}, 10), 404},
		{"timeout=60", time.Hour, []time.Duration{time.Minute}, 404},
		{"timeout=0", time.Hour, []time.Duration{0}, 404},
		{"timeout=90", time.Second, []time.Duration{time.Minute, 30 * time.Second}, 404},
		{"timeout=90", 0, []time.Duration{time.Minute}, 503},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, began := newServices().handler(t), time.Now()
			var waits []time.Duration
			h.cfg.Queues.Reserve = func(_ context.Context, req *belfryv1.ReserveRequest) (*belfryv1.ReserveResponse, error) {
				waits = append(waits, req.GetWait().AsDuration())
				if time.Since(began) >= c.stops {
					return nil, fault.New(belfryv1.Reason_REASON_SHUTTING_DOWN)
				}
				time.Sleep(req.GetWait().AsDuration())
				return &belfryv1.ReserveResponse{}, nil
			}
			w := send(t, h, "GET", "/api/ns/q?"+c.path, "")
			if diff := cmp.Diff(c.waits, waits); w.Code != c.status || diff != "" {
				t.Errorf("%s: %d, waits (-want +got):\n%s", c.path, w.Code, diff)
			}
		})
	}
}

// deafWriter is the writer of a client that is gone.
type deafWriter struct{ http.ResponseWriter }

func (deafWriter) Write([]byte) (int, error) { return 0, errors.New("the client is gone") }

// TestUnsentJobsAreReleased: jobs whose answer cannot be written are given back.
func TestUnsentJobsAreReleased(t *testing.T) {
	s := newServices()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/ns/q", http.NoBody)
	s.handler(t).ServeHTTP(deafWriter{httptest.NewRecorder()}, r)
	if diff := cmp.Diff([]*belfryv1.Job{s.job}, s.released, protocmp.Transform()); diff != "" {
		t.Errorf("released (-want +got):\n%s", diff)
	}
}

// TestJobFields has the fields of jobs that lmstfy's clients would not have published.
func TestJobFields(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*belfryv1.Job)
		want   func(*job)
	}{
		"no TTL":      {func(j *belfryv1.Job) { j.ExpiresAt = nil }, func(j *job) { j.TTL = 0 }},
		"TTL at end":  {func(j *belfryv1.Job) { j.ExpiresAt = now() }, func(j *job) { j.TTL = 1 }},
		"no limit":    {func(j *belfryv1.Job) { j.MaxAttempts = 0 }, func(j *job) { j.RemainTries = 65535 }},
		"many tries":  {func(j *belfryv1.Job) { j.MaxAttempts = 1_000_000 }, func(j *job) { j.RemainTries = 65535 }},
		"lower limit": {func(j *belfryv1.Job) { j.MaxAttempts, j.Attempt = 1, 5 }, func(j *job) { j.RemainTries = 0 }},
		"no body":     {func(j *belfryv1.Job) { j.Body = nil }, func(j *job) { j.Data = []byte{} }},
		"headers": {
			func(j *belfryv1.Job) { j.Headers = map[string]string{"a": "b"} },
			func(j *job) { j.Attributes = map[string]string{"a": "b"} },
		},
		"empty headers": {func(j *belfryv1.Job) { j.Headers = map[string]string{} }, func(*job) {}},
		"put later": {
			func(j *belfryv1.Job) { j.CreatedAt = timestamppb.New(now().AsTime().Add(time.Second)) },
			func(j *job) { j.ElapsedMS = 0 },
		},
	} {
		j := newServices().job
		expected := jobOf(j, now())
		c.change(j)
		c.want(&expected)
		if diff := cmp.Diff(expected, jobOf(j, now())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestAttributes has what becomes of the headers of a publish.
func TestAttributes(t *testing.T) {
	long := strings.Repeat("v", 127) + "é"
	for name, c := range map[string]struct {
		headers []string
		want    map[string]string
	}{
		"without the version": {[]string{"Job-Attr-A", "1"}, nil},
		"none":                {[]string{"Enable-Job-Version", "YES", "Job-Attr-", "1", "Job-Attr-B", ""}, nil},
		"some": {
			[]string{"Enable-Job-Version", "yes", "Job-Attr-Trace-Id", "1", "Job-Attr-B", "two"},
			map[string]string{"trace-id": "1", "b": "two"},
		},
		"long": {
			[]string{"Enable-Job-Version", "YES", "Job-Attr-" + strings.Repeat("n", 40), long},
			map[string]string{strings.Repeat("n", 32): strings.Repeat("v", 127)},
		},
		"no text": {[]string{"Enable-Job-Version", "YES", "Job-Attr-A", "\xff"}, map[string]string{"a": "\ufffd"}},
	} {
		for path, body := range map[string]string{"/api/ns/q": "x", "/api/ns/q/bulk": "[1]"} {
			s := newServices()
			send(t, s.handler(t), "PUT", path, body, c.headers...)
			put, ok := s.calls[0].(*belfryv1.PutRequest)
			if batch, several := s.calls[0].(*belfryv1.PutBatchRequest); several {
				put, ok = batch.GetJobs()[0], true
			}
			if !ok || !maps.Equal(put.GetHeaders(), c.want) {
				t.Errorf("%s, %s: %v, want %v", name, path, put.GetHeaders(), c.want)
			}
		}
	}
	many := []string{"Enable-Job-Version", "YES"}
	for i := range 17 {
		many = append(many, "Job-Attr-"+string(rune('a'+i)), "1")
	}
	for path, body := range map[string]string{"/api/ns/q": "x", "/api/ns/q/bulk": "[1]"} {
		want(t, path, send(t, newServices().handler(t), "PUT", path, body, many...), 400,
			`{"error":"too many attributes, cannot exceed 16"}`)
	}
}

// TestBulkInPart: a bulk publish of which some jobs are refused says how many were published.
func TestBulkInPart(t *testing.T) {
	h := newServices().handler(t)
	h.cfg.Queues.PutBatch = func(context.Context, *belfryv1.PutBatchRequest) (*belfryv1.PutBatchResponse, error) {
		full := fault.New(belfryv1.Reason_REASON_QUEUE_FULL)
		full.Message = "it is full"
		refused := &belfryv1.PutBatchResult{Result: &belfryv1.PutBatchResult_Error{Error: full.Entry()}}
		return &belfryv1.PutBatchResponse{Results: []*belfryv1.PutBatchResult{
			{Result: &belfryv1.PutBatchResult_Put{Put: &belfryv1.PutResponse{Id: "0-1"}}}, refused, refused,
		}}, nil
	}
	const text = "1 of 3 jobs were published; of the others: it is full"
	want(t, "bulk", send(t, h, "PUT", "/api/ns/q/bulk", "[1,2,3]"), 429, `{"error":"`+text+`","msg":"`+text+`"}`)
}

// TestMissing: lmstfy knows no queue that is not there, and deletes what is not there.
func TestMissing(t *testing.T) {
	for _, err := range []error{
		fault.New(belfryv1.Reason_REASON_QUEUE_NOT_FOUND).Wire(), fault.New(belfryv1.Reason_REASON_JOB_NOT_FOUND),
		fault.Invalid("id", "no id"), fault.TooLarge("id", 300, 256),
	} {
		s := newServices()
		s.err = err
		h := s.handler(t)
		want(t, "DELETE", send(t, h, "DELETE", "/api/ns/q/job/x", ""), 204, "")
		if got := s.deletes(t); !maps.Equal(got, map[string]float64{"none": 1}) {
			t.Errorf("%v: deletes %v", err, got)
		}
		want(t, "GET", send(t, h, "GET", "/api/ns/q/job/x", ""), 404, `{"error":"job not found"}`)
		if !isMissing(err) {
			continue
		}
		want(t, "size", send(t, h, "GET", "/api/ns/q/size", ""), 200, `{"namespace":"ns","queue":"q","size":0}`)
		want(t, "peek", send(t, h, "GET", "/api/ns/q/peek", ""), 404, `{"error":"the queue is empty"}`)
		want(t, "dead", send(t, h, "GET", "/api/ns/q/deadletter", ""), 200,
			`{"deadletter_head":"","deadletter_size":0,"namespace":"ns","queue":"q"}`)
		want(t, "respawn", send(t, h, "PUT", "/api/ns/q/deadletter", ""), 200, `{"count":0,"msg":"respawned"}`)
		want(t, "destroy", send(t, h, "DELETE", "/api/ns/q", ""), 204, "")
	}
	s := newServices()
	h := s.handler(t)
	send(t, h, "DELETE", "/api/ns/q/job/x", "")
	send(t, h, "PUT", "/api/ns/q/job/x", "")
	if got := s.deletes(t); !maps.Equal(got, map[string]float64{"reserved": 2}) {
		t.Errorf("deletes %v", got)
	}
}

// TestARefusedPublishKeepsTheJob: a PUT of a job that is refused deletes nothing.
func TestARefusedPublishKeepsTheJob(t *testing.T) {
	s := newServices()
	s.err = fault.New(belfryv1.Reason_REASON_QUEUE_FULL)
	if w := send(t, s.handler(t), "PUT", "/api/ns/q/job/0-1", "x"); w.Code != 429 || len(s.calls) != 1 {
		t.Errorf("%d %s, calls %v", w.Code, w.Body, s.calls)
	}
}

// TestTokens: where a token is read, and how requests without one are refused.
func TestTokens(t *testing.T) {
	unknown := fault.New(belfryv1.Reason_REASON_UNAUTHENTICATED)
	for _, c := range []struct {
		path    string
		headers []string
		token   string
		refused string
	}{
		{"/api/ns/q", nil, "", "token not found"},
		{"/api/ns/q?token=t", nil, "Bearer t", "invalid token"},
		{"/api/ns/q?token=default:t", nil, "Bearer t", "invalid token"},
		{"/api/ns/q?token=other", []string{"X-Token", "t"}, "Bearer t", "invalid token"},
		{"/api/ns/q", []string{"Authorization", "Bearer own"}, "Bearer own", "token not found"},
		{"/info", []string{"X-Token", "t"}, "Bearer t", "invalid token"},
		{"/info", []string{"Authorization", "Basic YWRtaW46cGFzcw=="}, "Bearer pass", "invalid token"},
		{"/info?token=t", nil, "", "token not found"},
	} {
		s := newServices()
		s.authFault = unknown
		w := send(t, s.handler(t), "GET", c.path, "", c.headers...)
		want(t, c.path, w, 401, `{"error":"`+c.refused+`"}`)
		if s.token != c.token || len(s.calls) > 0 {
			t.Errorf("%s %v: token %q, want %q; calls %v", c.path, c.headers, s.token, c.token, s.calls)
		}
	}
	s := newServices()
	s.authFault = fault.New(belfryv1.Reason_REASON_NO_LEADER)
	if w := send(t, s.handler(t), "GET", "/api/ns/q", ""); w.Code != 503 {
		t.Errorf("while tokens are not known: %d", w.Code)
	}
}
