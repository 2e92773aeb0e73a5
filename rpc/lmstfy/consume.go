package lmstfy

import (
	"math"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// consumedMax bounds the jobs of one request.
	consumedMax = 100
	// timeoutMax is the longest wait of a request. lmstfy's own clients do not ask for more.
	timeoutMax = 10 * time.Minute
	// leaseMin is the lease that a TTR of 0 asks for. In lmstfy such a job is handed out again at the
	// next tick of its timer.
	leaseMin = time.Second

	defaultTTR     = "120"
	defaultTimeout = "0"
)

// job is a job as lmstfy shows it.
type job struct {
	Attributes  map[string]string `json:"attributes"`
	Data        []byte            `json:"data"`
	ElapsedMS   int64             `json:"elapsed_ms"`
	JobID       string            `json:"job_id"`
	Msg         string            `json:"msg,omitempty"`
	Namespace   string            `json:"namespace"`
	Queue       string            `json:"queue"`
	RemainTries uint32            `json:"remain_tries"`
	TTL         int64             `json:"ttl"`
}

// jobOf returns a job as it was at a time of its shard.
func jobOf(j *belfryv1.Job, now *timestamppb.Timestamp) job {
	namespace, queue, _ := strings.Cut(j.GetQueue(), "/")
	out := job{
		Attributes: j.GetHeaders(), Data: j.GetData(), JobID: j.GetId(), Namespace: namespace, Queue: queue,
		ElapsedMS: max(0, now.AsTime().Sub(j.GetCreatedAt().AsTime()).Milliseconds()), RemainTries: math.MaxUint16,
	}
	if out.Data == nil {
		out.Data = []byte{}
	}
	if len(out.Attributes) == 0 {
		out.Attributes = nil // null in JSON
	}
	if most := j.GetMaxAttempts(); most > 0 {
		out.RemainTries = min(most-min(most, j.GetAttempt()), math.MaxUint16)
	}
	if j.GetExpiresAt() != nil { // in whole seconds, as Redis rounds them; 0 would be without end
		out.TTL = max(1, int64(j.GetExpiresAt().AsTime().Sub(now.AsTime()).Round(time.Second)/time.Second))
	}
	return out
}

// consume serves GET /api/{namespace}/{queue}[,{queue}…].
func (h *Handler) consume(c *call) answer {
	req := &belfryv1.ReserveRequest{}
	for queue := range strings.SplitSeq(c.queue, ",") {
		if queue != "" {
			req.Queues = append(req.Queues, c.name(queue))
		}
	}
	ttr, ok := c.seconds("ttr", defaultTTR)
	if !ok {
		return failure(http.StatusBadRequest, "invalid ttr")
	}
	timeout, ok := c.seconds("timeout", defaultTimeout)
	if !ok {
		return failure(http.StatusBadRequest, "invalid timeout")
	}
	count, ok := c.number("count", "1", 32)
	if !ok || count == 0 || count > consumedMax {
		return failure(http.StatusBadRequest, "invalid count")
	}
	if len(req.Queues) == 0 {
		return failure(http.StatusBadRequest, "invalid queue name(s)")
	}
	req.MaxJobs = uint32(count) //nolint:gosec // at most consumedMax
	req.Ttr = durationpb.New(max(ttr, leaseMin))
	jobs, err := h.reserve(c, req, min(timeout, timeoutMax))
	switch {
	case err != nil:
		return failed(err)
	case len(jobs) == 0:
		return answer{status: http.StatusNotFound, body: message{"no job available"}}
	}
	out := make([]job, len(jobs))
	for i, j := range jobs {
		out[i] = jobOf(j, j.GetWitness().GetTime())
		out[i].Msg = "new job"
	}
	a := answer{status: http.StatusOK, body: out, unsent: func() { h.cfg.ReleaseUnsent(c.Context(), jobs) }}
	if count == 1 {
		a.body = out[0]
	}
	return a
}

// reserve reserves jobs, in as many rounds as the wait needs. If the server stops after the first
// round, there is no job.
func (h *Handler) reserve(c *call, req *belfryv1.ReserveRequest, wait time.Duration) ([]*belfryv1.Job, error) {
	began := time.Now()
	for first, left := true, wait; ; first, left = false, wait-time.Since(began) {
		req.Wait = durationpb.New(min(max(left, 0), h.cfg.WaitMax))
		res, err := h.cfg.Queues.Reserve(c.Context(), req)
		if err != nil && !first && faultOf(err).Reason == belfryv1.Reason_REASON_SHUTTING_DOWN {
			return nil, nil
		}
		if err != nil || len(res.GetJobs()) > 0 || left <= h.cfg.WaitMax {
			return res.GetJobs(), err
		}
	}
}
