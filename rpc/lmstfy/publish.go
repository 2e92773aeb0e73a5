package lmstfy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

const (
	// jobBytesMax bounds the body of a job.
	jobBytesMax = 1 << 20
	// bulkJobsMax bounds the jobs of one request.
	bulkJobsMax = 64
	// Attributes beyond attributesMax are refused, longer ones are cut.
	attributesMax, attributeNameMax, attributeValueMax = 16, 32, 128

	defaultTTL   = "86400"
	defaultDelay = "0"
	defaultTries = "1"
)

// options are how the jobs of a request are published.
type options struct {
	delay, ttl time.Duration
	tries      uint32
	attributes map[string]string
}

// number reads a parameter that is a whole number of so many bits.
func (c *call) number(name, missing string, bits int) (uint64, bool) {
	n, err := strconv.ParseUint(c.parameter(name, missing), 10, bits)
	return n, err == nil
}

// seconds reads a parameter that is a number of seconds.
func (c *call) seconds(name, missing string) (time.Duration, bool) {
	n, ok := c.number(name, missing, 32)
	return time.Duration(n) * time.Second, ok //nolint:gosec // 32 bits
}

// options reads the parameters of a publish. They are checked in the order of lmstfy, and why is the
// first that is wrong.
func (c *call) options() (o options, why string) {
	var ok bool
	if o.delay, ok = c.seconds("delay", defaultDelay); !ok {
		return o, "invalid delay"
	}
	if o.ttl, ok = c.seconds("ttl", defaultTTL); !ok {
		return o, "invalid ttl"
	}
	if o.ttl > 0 && o.ttl < o.delay {
		return o, "ttl is shorter than delay"
	}
	tries, ok := c.number("tries", defaultTries, 16)
	if !ok {
		return o, "invalid tries"
	}
	if tries == 0 {
		return o, "tries shouldn't be zero"
	}
	o.tries = uint32(tries) //nolint:gosec // 16 bits
	if strings.EqualFold(c.Header.Get("Enable-Job-Version"), "YES") {
		o.attributes = attributes(c.Header)
	}
	return o, ""
}

// attributes returns the attributes that headers carry, in lower case, and cut as lmstfy cuts them.
func attributes(header http.Header) map[string]string {
	var all map[string]string
	for name, values := range header {
		name, ok := strings.CutPrefix(name, "Job-Attr-")
		if !ok || name == "" || values[0] == "" {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[strings.ToLower(cut(name, attributeNameMax))] = strings.ToValidUTF8(cut(values[0], attributeValueMax), "\ufffd")
	}
	return all
}

// cut returns the first bytes of a text, without a part of a letter at the end.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// put returns the put of a job.
func (o *options) put(queue string, body []byte) *belfryv1.PutRequest {
	put := &belfryv1.PutRequest{
		Queue: queue, Body: &belfryv1.PutRequest_Data{Data: body}, Headers: o.attributes, MaxAttempts: &o.tries,
		RetryDelays: []*durationpb.Duration{durationpb.New(0)},
	}
	if o.delay > 0 {
		put.When = &belfryv1.PutRequest_Delay{Delay: durationpb.New(o.delay)}
	}
	if o.ttl > 0 {
		put.Ttl = durationpb.New(o.ttl)
	}
	return put
}

// published is the answer to a publish.
type published struct {
	JobID string `json:"job_id"`
	Msg   string `json:"msg"`
}

// publishedBulk is the answer to a publish of several jobs.
type publishedBulk struct {
	JobIDs []string `json:"job_ids"`
	Msg    string   `json:"msg"`
}

// publish serves PUT /api/{namespace}/{queue}.
func (h *Handler) publish(c *call) answer {
	o, why := c.options()
	if why != "" {
		return failure(http.StatusBadRequest, why)
	}
	body, err := io.ReadAll(io.LimitReader(c.Body, jobBytesMax+1))
	switch {
	case err != nil:
		return unread(err)
	case len(body) > jobBytesMax:
		return failure(http.StatusRequestEntityTooLarge, "body too large")
	case len(o.attributes) > attributesMax:
		return tooManyAttributes()
	}
	res, err := h.cfg.Queues.Put(c.Context(), o.put(c.name(c.queue), body))
	if err != nil {
		return failed(err)
	}
	return answer{status: http.StatusCreated, body: published{JobID: res.GetId(), Msg: "published"}}
}

// unread returns the answer about a body that could not be read.
func unread(err error) answer {
	if f, ok := fault.FromConnect(err); ok && f.Reason != belfryv1.Reason_REASON_INVALID {
		return failed(f)
	}
	return failure(http.StatusBadRequest, "failed to read body")
}

func tooManyAttributes() answer {
	return failure(http.StatusBadRequest, "too many attributes, cannot exceed 16")
}

// republish serves PUT /api/{namespace}/{queue}/job/{id}: it publishes a new job, and then deletes
// the old one. lmstfy deletes first, and loses the job if the publish fails.
func (h *Handler) republish(c *call) answer {
	a := h.publish(c)
	if a.status != http.StatusCreated {
		return a
	}
	if deleted := h.deleteJob(c); deleted.status != http.StatusNoContent {
		return deleted
	}
	return a
}

// publishBulk serves PUT /api/{namespace}/{queue}/bulk. The text of each element is the body of a
// job.
func (h *Handler) publishBulk(c *call) answer {
	o, why := c.options()
	if why != "" {
		return failure(http.StatusBadRequest, why)
	}
	text, err := io.ReadAll(c.Body)
	if err != nil {
		return unread(err)
	}
	var jobs []json.RawMessage
	switch err := json.Unmarshal(text, &jobs); {
	case err != nil:
		return failure(http.StatusBadRequest, "request body should be an array of objects")
	case len(jobs) == 0:
		return failure(http.StatusBadRequest, "no jobs")
	case len(jobs) > bulkJobsMax:
		return failure(http.StatusBadRequest, "too many jobs")
	case slices.ContainsFunc(jobs, func(job json.RawMessage) bool { return len(job) > jobBytesMax }):
		return failure(http.StatusRequestEntityTooLarge, "job too large")
	case len(o.attributes) > attributesMax:
		return tooManyAttributes()
	}
	batch := &belfryv1.PutBatchRequest{}
	for _, job := range jobs {
		batch.Jobs = append(batch.Jobs, o.put(c.name(c.queue), job))
	}
	res, err := h.cfg.Queues.PutBatch(c.Context(), batch)
	if err != nil {
		return failed(err)
	}
	return bulkAnswer(res.GetResults())
}

// bulkAnswer returns the answer to a publish of several jobs. If some failed, it is the error of the
// first of these, and says how many did not.
func bulkAnswer(results []*belfryv1.PutBatchResult) answer {
	out := publishedBulk{Msg: "published", JobIDs: []string{}}
	var first *fault.Error
	for _, r := range results {
		if r.GetError() == nil {
			out.JobIDs = append(out.JobIDs, r.GetPut().GetId())
		} else if first == nil {
			first = &fault.Error{
				Reason: r.GetError().GetReason(), Message: r.GetError().GetMessage(),
				RetryAfter: r.GetError().GetRetryAfter().AsDuration(),
			}
		}
	}
	if first == nil {
		return answer{status: http.StatusCreated, body: out}
	}
	if len(out.JobIDs) > 0 {
		first.Message = fmt.Sprintf("%d of %d jobs were published; of the others: %s", len(out.JobIDs), len(results),
			first.Message)
	}
	return failed(first)
}
