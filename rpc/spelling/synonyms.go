package spelling

// Verb returns the verb of Belfry for one that other queues use, "" for a word that is none of
// those. Case does not count.
func Verb(word string) string {
	switch lower(word) {
	case "enqueue", "push", "publish", "produce", "send", "submit", "add", "schedule":
		return "put"
	case "pop", "dequeue", "consume", "receive", "fetch", "take", "poll", "lease":
		return "reserve"
	case "finish", "complete", "done", "confirm":
		return "ack"
	case "fail", "reject":
		return "nack"
	case "touch", "renew", "heartbeat":
		return "extend"
	case "peek", "inspect":
		return "get"
	case "delete", "del", "remove", "rm":
		return "cancel"
	case "retry", "requeue", "respawn", "kick":
		return "redrive"
	case "jobs":
		return "list"
	}
	return ""
}

// Field returns the field of a job for the name that other queues have for it, "" for a word that
// is none of those. Case does not count.
func Field(word string) string {
	switch lower(word) {
	case "body", "payload", "message", "content", "value":
		return "text"
	case "topic", "channel", "tube":
		return "queue"
	case "jobid", "job_id", "messageid", "message_id", "key":
		return "id"
	case "tries", "retries", "maxretries", "max_retries":
		return "maxAttempts"
	case "visibilitytimeout", "visibility_timeout":
		return "ttr"
	case "timeout", "block":
		return "wait"
	}
	return ""
}
