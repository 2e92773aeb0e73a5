package lmstfy

import (
	"net/http"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// queueSize is the answer about the number of jobs.
type queueSize struct {
	Namespace string `json:"namespace"`
	Queue     string `json:"queue"`
	Size      uint32 `json:"size"`
}

// deadLetterHead is the answer about the dead letters of a queue.
type deadLetterHead struct {
	Head      string `json:"deadletter_head"`
	Size      uint32 `json:"deadletter_size"`
	Namespace string `json:"namespace"`
	Queue     string `json:"queue"`
}

// peekTries is how often the first ready job is read anew if another consumer takes it meanwhile.
const peekTries = 3

// peekQueue serves GET /api/{namespace}/{queue}/peek.
func (h *Handler) peekQueue(c *call) answer {
	for range peekTries {
		id, err := h.head(c, belfryv1.JobState_JOB_STATE_READY)
		if err != nil {
			return failed(err)
		}
		if id == "" {
			break
		}
		if a := h.peek(c, id); a.status != http.StatusNotFound {
			return a
		}
	}
	return failure(http.StatusNotFound, "the queue is empty")
}

// peekJob serves GET /api/{namespace}/{queue}/job/{id}.
func (h *Handler) peekJob(c *call) answer { return h.peek(c, c.PathValue("id")) }

// peek returns the answer with a job.
func (h *Handler) peek(c *call, id string) answer {
	res, err := h.cfg.Queues.Get(c.Context(), &belfryv1.GetRequest{Queue: c.name(c.queue), Id: id})
	switch {
	case isMissing(err) || isNoID(err):
		return failure(http.StatusNotFound, "job not found")
	case err != nil:
		return failed(err)
	}
	return answer{status: http.StatusOK, body: jobOf(res.GetJob(), res.GetWitness().GetTime())}
}

// head returns the id of the first job of a state; empty if there is none.
func (h *Handler) head(c *call, state belfryv1.JobState) (string, error) {
	res, err := h.cfg.Queues.List(c.Context(),
		&belfryv1.ListRequest{Queue: c.name(c.queue), State: state, PageSize: 1})
	switch {
	case isMissing(err):
		return "", nil
	case err != nil:
		return "", err
	case len(res.GetJobs()) == 0:
		return "", nil
	}
	return res.GetJobs()[0].GetId(), nil
}

// counts returns how many jobs the queue has in each state.
func (h *Handler) counts(c *call) (*belfryv1.JobCounts, error) {
	res, err := h.cfg.Administration.GetQueue(c.Context(), &belfryv1.GetQueueRequest{Queue: c.name(c.queue)})
	if isMissing(err) {
		return nil, nil //nolint:nilnil // a queue that is not there has no jobs
	}
	return res.GetQueue().GetCounts(), err
}

// size serves GET /api/{namespace}/{queue}/size: the jobs that are ready.
func (h *Handler) size(c *call) answer {
	counts, err := h.counts(c)
	if err != nil {
		return failed(err)
	}
	return answer{status: http.StatusOK, body: queueSize{c.namespace, c.queue, counts.GetReady()}}
}

// deadLetterSize serves GET /api/{namespace}/{queue}/deadletter/size.
func (h *Handler) deadLetterSize(c *call) answer {
	counts, err := h.counts(c)
	if err != nil {
		return failed(err)
	}
	return answer{status: http.StatusOK, body: queueSize{c.namespace, c.queue, counts.GetDead()}}
}

// peekDeadLetter serves GET /api/{namespace}/{queue}/deadletter.
func (h *Handler) peekDeadLetter(c *call) answer {
	counts, err := h.counts(c)
	if err != nil {
		return failed(err)
	}
	out := deadLetterHead{Namespace: c.namespace, Queue: c.queue, Size: counts.GetDead()}
	if out.Head, err = h.head(c, belfryv1.JobState_JOB_STATE_DEAD); err != nil {
		return failed(err)
	}
	// The two reads may be of different times.
	if out.Head == "" {
		out.Size = 0
	} else {
		out.Size = max(1, out.Size)
	}
	return answer{status: http.StatusOK, body: out}
}
