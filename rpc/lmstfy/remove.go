package lmstfy

import (
	"math"
	"net/http"
	"strconv"
	"strings"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// noState is the label of a DELETE that found no job.
const noState = "none"

// done is the answer to what succeeded and returns nothing.
func done() answer { return answer{status: http.StatusNoContent} }

// deleteJob serves DELETE /api/{namespace}/{queue}/job/{id}, by which lmstfy's consumers ack. It ends
// the job in any state, also if another consumer holds it now. Like lmstfy, it does not say whether
// there was a job.
func (h *Handler) deleteJob(c *call) answer {
	res, err := h.cfg.Queues.Cancel(c.Context(),
		&belfryv1.CancelRequest{Queue: c.name(c.queue), Id: c.PathValue("id"), Force: true})
	switch {
	case err == nil:
		h.deletes.WithLabelValues(stateLabel(res.GetState())).Inc()
		return done()
	case isMissing(err) || isNoID(err):
		h.deletes.WithLabelValues(noState).Inc()
		return done()
	default:
		return failed(err)
	}
}

// isNoID reports whether an error says that no job can have the id.
func isNoID(err error) bool {
	if err == nil {
		return false
	}
	f := faultOf(err)
	return f.Field == "id" &&
		(f.Reason == belfryv1.Reason_REASON_INVALID || f.Reason == belfryv1.Reason_REASON_TOO_LARGE)
}

// stateLabel returns a state as the value of a label.
func stateLabel(state belfryv1.JobState) string {
	return strings.ToLower(strings.TrimPrefix(state.String(), "JOB_STATE_"))
}

// destroyQueue serves DELETE /api/{namespace}/{queue}. Like lmstfy, it removes the jobs that are
// ready. Those that are delayed, held or dead stay.
func (h *Handler) destroyQueue(c *call) answer {
	return h.purge(c, belfryv1.JobState_JOB_STATE_READY, 0)
}

// purge removes jobs of a state, at most so many; 0 for all.
func (h *Handler) purge(c *call, state belfryv1.JobState, most uint32) answer {
	_, err := h.cfg.Administration.PurgeQueue(c.Context(), &belfryv1.PurgeQueueRequest{
		Queue: c.name(c.queue), States: []belfryv1.JobState{state}, Max: most,
	})
	if err != nil && !isMissing(err) {
		return failed(err)
	}
	return done()
}

// limit reads the number of dead letters that a request is for.
func (c *call) limit() (int64, bool) {
	n, err := strconv.ParseInt(c.parameter("limit", "1"), 10, 64)
	return n, err == nil && n > 0
}

// deleteDeadLetter serves DELETE /api/{namespace}/{queue}/deadletter.
func (h *Handler) deleteDeadLetter(c *call) answer {
	limit, ok := c.limit()
	if !ok {
		return failure(http.StatusBadRequest, "invalid limit")
	}
	return h.purge(c, belfryv1.JobState_JOB_STATE_DEAD, uint32(min(limit, math.MaxUint32))) //nolint:gosec // as it says
}

// respawned is the answer to a respawn.
type respawned struct {
	Count int64  `json:"count"`
	Msg   string `json:"msg"`
}

// redriveMax is the most that one Redrive takes.
const redriveMax = 100_000

// respawnDeadLetter serves PUT /api/{namespace}/{queue}/deadletter. The parameter ttl is checked and
// has no effect: a job that was dead has no TTL.
func (h *Handler) respawnDeadLetter(c *call) answer {
	limit, ok := c.limit()
	if !ok {
		return failure(http.StatusBadRequest, "invalid limit")
	}
	if ttl, err := strconv.ParseInt(c.parameter("ttl", defaultTTL), 10, 64); err != nil || ttl < 0 {
		return failure(http.StatusBadRequest, "invalid ttl")
	}
	out := respawned{Msg: "respawned"}
	for out.Count < limit {
		most := uint32(min(limit-out.Count, redriveMax)) //nolint:gosec // at most redriveMax
		res, err := h.cfg.Queues.Redrive(c.Context(), &belfryv1.RedriveRequest{Queue: c.name(c.queue), Max: most})
		if isMissing(err) {
			break
		}
		if err != nil {
			return failed(err)
		}
		out.Count += int64(res.GetMoved())
		if res.GetMoved() < most {
			break
		}
	}
	return answer{status: http.StatusOK, body: out}
}
