package mirrortrial

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// past is what befell the ready lists of a Redis, replayed from what it wrote: a consumer that was
// cut off does not know what it popped, and Redis does.
type past struct {
	queues map[string]*pastQueue // by each key that is looked at
	marks  int
	// closing are windows that end at the mark after the next: that one was begun when Redis had
	// answered the next.
	closing []closing
}

// pastQueue is one queue of a past.
type pastQueue struct {
	name      string
	ready     []string
	last      string            // payload that was pushed last
	delivered map[string]string // payloads by the ids that the mirror keeps of them
	fence     string
	// popped are payloads that consumers took.
	popped []string
	// windows say until when a consumer of Belfry may have been given what a process had put on the
	// list when it ended. Zero: it still may.
	windows map[string]time.Time
	open    map[string]bool // ids of windows
}

type closing struct {
	at      int // number of a mark
	windows map[string]time.Time
	payload string
}

// markKey is where the time is noted in Redis, in nanoseconds since 1970.
const markKey = "trial:time"

func newPast(queues []*queue) *past {
	p := &past{queues: map[string]*pastQueue{}}
	for _, q := range queues {
		one := &pastQueue{name: q.name, delivered: map[string]string{},
			windows: map[string]time.Time{}, open: map[string]bool{}}
		for _, key := range []string{q.name, q.key("belfry_rung"), q.key("belfry_mirror")} {
			p.queues[key] = one
		}
	}
	return p
}

// replay goes through commands in order.
func (p *past) replay(commands [][]string) {
	for _, c := range commands {
		if len(c) < 2 {
			continue
		}
		if c[1] == markKey {
			p.mark(c[2])
			continue
		}
		if q := p.queues[c[1]]; q != nil {
			q.write(p, strings.ToUpper(c[0]), c[1], c[2:])
		}
	}
}

// mark closes windows.
func (p *past) mark(text string) {
	p.marks++
	ns, _ := strconv.ParseInt(text, 10, 64)
	p.closing = slices.DeleteFunc(p.closing, func(c closing) bool {
		if c.at > p.marks {
			return false
		}
		c.windows[c.payload] = time.Unix(0, ns)
		return true
	})
}

// write is one command over a key of the queue.
func (q *pastQueue) write(p *past, name, key string, args []string) {
	switch {
	case name == "HSET" && strings.HasPrefix(key, "belfry_mirror"):
		for n := 0; n+1 < len(args); n += 2 {
			if args[n] == "fence" && args[n+1] != q.fence {
				q.fence = args[n+1]
				for tag, payload := range q.delivered {
					q.open[tag], q.windows[payload] = true, time.Time{}
				}
			}
		}
	case name == "SADD" && key != q.name:
		q.delivered[args[0]] = q.last // the script pushes the payload, and then adds the id
	case name == "SREM" && key != q.name:
		for _, tag := range args {
			if q.open[tag] {
				p.closing = append(p.closing, closing{p.marks + 2, q.windows, q.delivered[tag]})
			}
			delete(q.delivered, tag)
			delete(q.open, tag)
		}
	case key == q.name:
		q.list(name, args)
	}
}

// list is one command over the ready list.
func (q *pastQueue) list(name string, args []string) {
	switch name {
	case "RPUSH":
		q.ready, q.last = append(q.ready, args...), args[len(args)-1]
	case "LPOP":
		q.popped, q.ready = append(q.popped, q.ready[0]), q.ready[1:]
	case "LTRIM": // an import takes the list along
		first, _ := strconv.Atoi(args[0])
		q.ready = q.ready[min(first, len(q.ready)):]
	case "DEL":
		q.popped, q.ready = append(q.popped, q.ready...), nil
	}
}

// enter has a ledger know what was popped, and which windows there were.
func (p *past) enter(l *ledger) {
	done := map[*pastQueue]bool{}
	for _, q := range p.queues {
		if done[q] {
			continue
		}
		done[q] = true
		l.byRedis(q.popped...)
		for payload, until := range q.windows {
			l.mayHave(payload, until, 2)
		}
	}
}

// keepTime notes the time in Redis again and again.
func (s *stage) keepTime() *traffic {
	return s.begin(1, func(ctx context.Context) {
		for ctx.Err() == nil {
			s.rdb.Set(ctx, markKey, time.Now().UnixNano(), 0) // if Redis is away, a window stays open for longer
			waitFor(ctx, lookPause)
		}
	})
}

// TestPast: what was popped is found, and for how long a job that was put on the list may be in
// Belfry as well.
func TestPast(t *testing.T) {
	q := &queue{name: "orders-0"}
	p := newPast([]*queue{q})
	write := func(text string) { p.replay([][]string{strings.Fields(text)}) }
	for _, text := range []string{
		"SELECT 0", "RPUSH orders-0 a b", "LPOP orders-0", "LTRIM orders-0 1 -1", "MULTI",
		"HSET belfry_mirror:{orders-0} cluster c fence 1",
		"RPUSH orders-0 c", "SADD belfry_rung:{orders-0} tag-c", "RPUSH orders-0 d", "SADD belfry_rung:{orders-0} tag-d",
		"EXEC",
		"RPUSH orders-0 e", "SADD belfry_rung:{orders-0} tag-e",
		"SREM belfry_rung:{orders-0} tag-c", "DEL orders-0", "RPUSH other f",
		"HSET belfry_mirror:{orders-0} cluster c fence 2", "SET trial:time 5", "SREM belfry_rung:{orders-0} tag-d",
		"SET trial:time 6", "SET trial:time 7", "SET trial:time 8",
	} {
		write(text)
	}
	one := p.queues["orders-0"]
	if diff := cmp.Diff([]string{"a", "c", "d", "e"}, one.popped); diff != "" {
		t.Errorf("popped were (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]time.Time{"d": time.Unix(0, 7), "e": {}}, one.windows); diff != "" {
		t.Errorf("windows are (-want +got):\n%s", diff)
	}
}
