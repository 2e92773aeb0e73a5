package lmstfy

const (
	// TimerKey is the one sorted set that holds what is delayed and what is reserved, of all queues.
	TimerKey = "timer_set"
	// NamespacesKey is the hash whose fields are the namespaces that were ever published to.
	NamespacesKey = "m/ns"
)

// QueuesKey is the hash whose fields are the queues of a namespace.
func QueuesKey(namespace string) string { return NamespacesKey + "/" + namespace }

// Queue names a queue. Servers take only letters, digits, "-" and "_" in either name, so that the
// slashes of a key are its own.
type Queue struct {
	Namespace, Name string
}

// ReadyKey is the list of what is ready.
func (q Queue) ReadyKey() string { return q.key("q/") }

// DeadLetterKey is the list of what is dead.
func (q Queue) DeadLetterKey() string { return q.key("d/") }

// JobKey is the string that holds the value of a job.
func (q Queue) JobKey(id string) string { return q.key("j/") + "/" + id }

func (q Queue) key(prefix string) string { return prefix + q.Namespace + "/" + q.Name }
