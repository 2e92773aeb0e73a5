package node

import (
	"strings"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

const (
	// crowdedFor is how long a shard counts as used by several owners after requests of two of them met.
	crowdedFor = time.Second
	// shareCost and shareBytes are what an entry takes of one owner's requests while the shard is used by several, but at least one of them. Everybody
	// waits for the entry in flight and for their own, so that this bounds for how long, and lets processors rest while the disk syncs.
	shareCost  = 256
	shareBytes = 64 << 10
	// lineRoom is the part of the proposer's room that an owner may have also when others have filled it.
	lineRoom = 8
)

// lines are the requests that wait to be logged, in a line of each owner in the order of arrival. Lines are served in turns, so that whoever has many
// requests waits for them himself.
type lines struct {
	byOwner map[string]*line
	turn    *line // whose turn it is; nil if nobody waits
	spare   *line
	entry   uint64 // counts the entries that were taken

	last    string    // who came last
	crowded time.Time // when two owners last came one after the other
}

// line is what waits of one owner. Lines are in a ring.
type line struct {
	owner      string
	head, tail *proposal
	requests   int
	bytes      int64
	prev, next *line

	entry uint64 // for which the following counts
	cost  uint64
	taken int64
}

// ownerOf returns whose a request is: the namespace of its first command's queue, or a queue without one. What no queue is named in belongs to nobody.
func ownerOf(req *fsm.Request) string {
	if req == nil || len(req.Commands) == 0 {
		return ""
	}
	owner, _, _ := strings.Cut(queueNamed(req.Commands[0]), "/")
	return owner
}

// queueNamed returns the queue that a command names, the first if there are several; empty if there is none.
func queueNamed(c fsm.Command) string {
	switch c := c.(type) {
	case *fsm.Put:
		return c.Queue
	case *fsm.Reserve:
		if len(c.Queues) > 0 {
			return c.Queues[0]
		}
	case *fsm.Ack:
		return c.Queue
	case *fsm.Nack:
		return c.Queue
	case *fsm.Release:
		return c.Queue
	case *fsm.Extend:
		return c.Queue
	case *fsm.Cancel:
		return c.Queue
	case *fsm.Reschedule:
		return c.Queue
	case *fsm.Redrive:
		return c.Queue
	case *fsm.Purge:
		return c.Queue
	case *fsm.Configure:
		return c.Queue
	case *fsm.Open:
		return c.Queue
	case *fsm.DeleteQueue:
		return c.Queue
	}
	return ""
}

// of returns the line of an owner, nil if nothing of his waits.
func (ls *lines) of(owner string) *line { return ls.byOwner[owner] }

// add puts a proposal at the end of its owner's line.
func (ls *lines) add(owner string, pr *proposal) {
	if owner != ls.last {
		if ls.last != "" && owner != "" {
			ls.crowded = pr.queued
		}
		if owner != "" {
			ls.last = owner
		}
	}
	l := ls.byOwner[owner]
	if l == nil {
		l = ls.open(owner)
	}
	pr.line, pr.prev, pr.waiting = l, l.tail, true
	if l.tail == nil {
		l.head = pr
	} else {
		l.tail.next = pr
	}
	l.tail = pr
	l.requests++
	l.bytes += int64(len(pr.encoded))
}

// open makes the line of an owner, whose turn is last.
func (ls *lines) open(owner string) *line {
	l := ls.spare
	ls.spare = nil
	if l == nil {
		l = new(line)
	}
	*l = line{owner: owner}
	if ls.byOwner == nil {
		ls.byOwner = map[string]*line{}
	}
	ls.byOwner[owner] = l
	if ls.turn == nil {
		l.prev, l.next, ls.turn = l, l, l
		return l
	}
	l.prev, l.next = ls.turn.prev, ls.turn
	l.prev.next, l.next.prev = l, l
	return l
}

// remove takes a proposal out of its line.
func (ls *lines) remove(pr *proposal) {
	l := pr.line
	if pr.prev == nil {
		l.head = pr.next
	} else {
		pr.prev.next = pr.next
	}
	if pr.next == nil {
		l.tail = pr.prev
	} else {
		pr.next.prev = pr.prev
	}
	pr.line, pr.prev, pr.next, pr.waiting = nil, nil, nil, false
	l.requests--
	l.bytes -= int64(len(pr.encoded))
	if l.requests > 0 {
		return
	}
	delete(ls.byOwner, l.owner)
	if l.next == l {
		ls.turn = nil
	} else {
		l.prev.next, l.next.prev = l.next, l.prev
		if ls.turn == l {
			ls.turn = l.next
		}
	}
	ls.spare = l
}

// takeLocked takes proposals of one format, one of each line in turn, up to about sizeMax bytes and costMax units of work, and of each line up to its
// share if the shard is crowded, but at least one if there is any.
func (p *proposer) takeLocked(sizeMax int64, costMax uint64, crowded bool) []*proposal {
	batch := make([]*proposal, 0, p.requests)
	var size int64
	var cost uint64
	ls := &p.lines
	ls.entry++
	for passed := 0; ls.turn != nil && passed < len(ls.byOwner); {
		l := ls.turn
		pr := l.head
		bytes := int64(len(pr.encoded))
		if l.entry != ls.entry {
			l.entry, l.cost, l.taken = ls.entry, 0, 0
		} else if crowded && (l.cost+pr.cost > shareCost || l.taken+bytes > shareBytes) {
			passed++ // before it is looked at whether there is room: who has had his share ends nobody else's
			ls.turn = l.next
			continue
		}
		if len(batch) > 0 && (size+bytes > sizeMax || cost+pr.cost > costMax || pr.format != batch[0].format) {
			break
		}
		passed = 0
		size, cost = size+bytes, cost+pr.cost
		l.cost, l.taken = l.cost+pr.cost, l.taken+bytes
		batch = append(batch, pr)
		ls.turn = l.next
		p.unlinkLocked(pr)
	}
	return batch
}

// crowdedLocked reports whether several owners use the shard.
func (p *proposer) crowdedLocked() bool {
	return !p.lines.crowded.IsZero() && time.Since(p.lines.crowded) < crowdedFor
}

// roomLocked reports whether a request of an owner may wait to be logged. One that is larger than all the room may come in when there is nothing else.
func (p *proposer) roomLocked(owner string, size int64) bool {
	if p.requests < p.cfg.QueueRequestsMax && (p.requests == 0 || p.bytes+size <= p.cfg.QueueBytesMax) {
		return true
	}
	var requests int
	var bytes int64
	if l := p.lines.of(owner); l != nil {
		requests, bytes = l.requests, l.bytes
	}
	return requests < p.cfg.QueueRequestsMax/lineRoom && bytes+size <= p.cfg.QueueBytesMax/lineRoom &&
		p.requests < 2*p.cfg.QueueRequestsMax && p.bytes+size <= 2*p.cfg.QueueBytesMax && len(p.lines.byOwner) > 0 && requests < p.requests
}
