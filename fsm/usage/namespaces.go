package usage

import (
	"strings"

	"github.com/belfrydb/belfry/fsm"
)

// Namespaces are those that have queues in a shard.
type Namespaces struct {
	byName map[string]*namespace
	plain  int // queues without a namespace
}

// namespace is the sum over the queues of one namespace.
type namespace struct {
	usage  fsm.Usage
	queues int
}

// Queue is the part of one queue. The machine keeps it beside the queue, from Add to Remove.
type Queue struct {
	in      *namespace // nil if it has none
	counted fsm.Usage  // what of it is in the sum
}

// New returns the namespaces of a shard without queues.
func New() Namespaces { return Namespaces{byName: map[string]*namespace{}} }

// Add counts a queue in its namespace. It uses nothing yet. The name may be in memory that is used
// again.
func (n *Namespaces) Add(queue string) Queue {
	name := fsm.NamespaceOf(queue)
	if name == "" {
		n.plain++
		return Queue{}
	}
	in := n.byName[name]
	if in == nil {
		in = &namespace{}
		n.byName[strings.Clone(name)] = in
	}
	in.queues++
	return Queue{in: in}
}

// Remove takes a queue, which has this name, and what it uses out of its namespace.
func (n *Namespaces) Remove(queue string, q *Queue) {
	if q.in == nil {
		n.plain--
		return
	}
	q.set(fsm.Usage{})
	if q.in.queues--; q.in.queues == 0 {
		delete(n.byName, fsm.NamespaceOf(queue))
	}
	q.in = nil
}

// Count brings what a queue uses up to date.
func (q *Queue) Count(c *fsm.Counts) {
	if q.in != nil {
		q.set(fsm.Usage{Jobs: c.Jobs(), Bytes: c.Bytes, InFlight: c.Reserved})
	}
}

// set changes the sum of the namespace by what has changed in the queue.
func (q *Queue) set(now fsm.Usage) {
	sum := &q.in.usage
	sum.Jobs += now.Jobs - q.counted.Jobs
	sum.Bytes += now.Bytes - q.counted.Bytes
	sum.InFlight += now.InFlight - q.counted.InFlight
	q.counted = now
}

// Usage returns what the queues of a namespace hold.
func (n *Namespaces) Usage(name string) fsm.Usage {
	if in := n.byName[name]; in != nil {
		return in.usage
	}
	return fsm.Usage{}
}

// Queues returns how many queues a namespace has. Those without one count together, as the
// namespace "".
func (n *Namespaces) Queues(name string) int {
	if name == "" {
		return n.plain
	}
	if in := n.byName[name]; in != nil {
		return in.queues
	}
	return 0
}
