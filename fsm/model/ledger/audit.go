package ledger

import (
	"fmt"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
)

// Audit holds the counters of all queues against the ledger.
func (b *Shard) Audit(m *machine.Machine) {
	b.auditSpaces(m)
	b.look(33)
	queues := m.Queues("", 1<<30)
	if len(queues) != len(b.queues) {
		b.wrongAfter(33, "it has %d queues, by the ledger %d", len(queues), len(b.queues))
	}
	for i := range queues {
		v := &queues[i]
		q := b.queues[v.Name]
		if q == nil {
			b.wrongAfter(33, "it has a queue %s, the ledger has none", v.Name)
			continue
		}
		b.look(33)
		if v.Counts != q.counts || v.Counters != q.counters {
			b.wrongAfter(33, "queue %s has %+v %+v, by the ledger %+v %+v", v.Name, v.Counts, v.Counters, q.counts, q.counters)
		}
		if k := &q.counters; k.Put != q.counts.Jobs()+k.Acked+k.Cancelled+k.Expired+k.Purged {
			b.wrongAfter(33, "queue %s had %d jobs put, of which not all are accounted for: %+v %+v", v.Name, k.Put,
				q.counts, *k)
		}
	}
}

// auditSpaces holds what the machine has namespaces with a quota use against the ledger.
func (b *Shard) auditSpaces(m *machine.Machine) {
	for space := range b.cfg.Limited {
		b.look(33)
		var sum fsm.Usage
		for name, q := range b.queues {
			if fsm.NamespaceOf(name) == space {
				sum.Jobs, sum.Bytes, sum.InFlight = sum.Jobs+q.counts.Jobs(), sum.Bytes+q.counts.Bytes,
					sum.InFlight+q.counts.Reserved
			}
		}
		if u := m.UsageOf(space); u != sum {
			b.wrongAfter(33, "namespace %s uses %+v, by the ledger %+v", space, u, sum)
		}
	}
}

// wrongAfter notes that something is wrong after the last entry.
func (b *Shard) wrongAfter(rule Rule, format string, args ...any) {
	args = append([]any{b.cfg.Shard, b.entry.Index}, args...)
	b.cfg.Report.Violated(rule, b.entry.At, fmt.Sprintf("shard %d, entry %d: "+format, args...))
}
