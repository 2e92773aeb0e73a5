package outcome

import (
	"net/url"
	"strconv"

	"github.com/belfrydb/belfry/rpc/ui/format"
)

// notices are the sentences that a page shows after an action, by the name of the action.
func notices() map[string]string {
	return map[string]string{
		"pause": "The queue is paused.", "resume": "The queue is no longer paused.", "purge": "jobs are removed.",
		"delete-queue":   "jobs were deleted with the queue.",
		"queue-settings": "The settings are changed.", "new-queue": "The queue is made.",
		"pending": "shards have not applied the settings yet. They will.",
		"put":     "The job is put.", "put-again": "This job was put before. Nothing was changed.",
		"run-now": "The job is due now.", "reschedule": "The job has a new due time.", "cancel": "The job is cancelled.",
		"redrive": "The job is ready again.", "task": "The task was started.",
		"stop-task": "The task ends within a second.", "chosen-run-now": "jobs are due now.",
		"chosen-reschedule": "jobs have a new due time.", "chosen-cancel": "jobs are cancelled.",
		"chosen-redrive": "jobs are ready again.",
		"release-leases": "jobs are ready again.",
		"drain":          "The node is being drained. It is empty when it has no replica and leads nothing.",
		"undrain":        "The node takes replicas again.", "remove-node": "The node is forgotten.",
		"transfer": "The leadership was handed over.", "transfer-same": "That node leads the shard already.",
		"namespace": "The quota is set.", "delete-namespace": "The quota is removed.",
		"revoke-token": "The token is revoked.", "revoke-token-again": "There was no such token any more.",
		"settings":       "The settings are kept in this browser.",
		"pause-schedule": "The schedule is paused.", "pause-schedule-again": "The schedule was paused before.",
		"resume-schedule":       "The schedule is no longer paused.",
		"resume-schedule-again": "The schedule was not paused.",
		"pause-schedules":       "schedules were paused.", "resume-schedules": "schedules were resumed.",
		"schedule-gone":          "There is no such schedule any more.",
		"trigger-schedule":       "The job is put. It is among the last firings.",
		"trigger-schedule-again": "This job was put before. Nothing was changed.",
		"delete-schedule":        "jobs were cancelled with the schedule, which is deleted.",
		"backfill-schedule":      "jobs were put.",
		"backfill-rest":          "jobs were put. The rest of the span is below.",
		"backfill-full":          "jobs were put. Then the queue was full; the rest of the span is below.",
		"pause-key":              "The key is paused.", "resume-key": "The key is no longer paused.",
		"purge-key": "jobs of the key are removed.",
	}
}

// Notice returns the sentence about the action that led to a page, with the number of jobs if the
// action counted them; empty if none did. The text comes from notices alone.
func Notice(q url.Values) string {
	sentence := notices()[q.Get("done")]
	if n, err := strconv.ParseUint(q.Get("n"), 10, 64); err == nil && sentence != "" {
		sentence = format.Grouped(n) + " " + sentence
	}
	if n, err := strconv.ParseUint(q.Get("left"), 10, 64); err == nil && n > 0 && sentence != "" {
		sentence += " " + format.Grouped(n) + " were left as they are: they ended or changed meanwhile."
	}
	if n, err := strconv.ParseUint(q.Get("existing"), 10, 64); err == nil && n > 0 && sentence != "" {
		sentence += " " + format.Grouped(n) + " were there, or had ended lately, and were not put again."
	}
	if n, err := strconv.Atoi(q.Get("missing")); err == nil && n > 0 && sentence != "" {
		sentence += " Deleted meanwhile: " + format.Plural(n, "schedule") + "."
	}
	return sentence
}
