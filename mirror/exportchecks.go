package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisconn"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// goingBack returns the states of jobs that an export takes, the last once they are not held any
// more.
func goingBack() []client.State { return []client.State{"READY", "DELAYED", "RESERVED"} }

// checked notes what was found about one thing; what was found about it before no longer counts.
func (e *exporter) checked(what, found string, ok bool) {
	for n := range e.checks {
		if e.checks[n].What == what {
			e.checks[n] = pair.Check{What: what, Found: found, OK: ok}
			return
		}
	}
	e.checks = append(e.checks, pair.Check{What: what, Found: found, OK: ok})
}

// checkOwner records the owner of the mirror, which link.check has verified.
func (e *exporter) checkOwner(ctx context.Context) error {
	owner, err := e.Redis.HMGet(ctx, e.keys.state, "cluster").Result()
	if err != nil {
		return pair.Explain(err)
	}
	found := fmt.Sprintf("to the queue %s of the cluster %s", e.Queue, e.Cluster())
	if owner[0] == nil {
		found = "no import has begun; it is this one's from here on"
	}
	e.checked("the Redis queue is mirrored to this queue", found, true)
	return nil
}

// sampleJobs counts the formats that jobs came in, and says whether there is no job at all.
func (e *exporter) sampleJobs(ctx context.Context, seen map[redisson.Generation]int) (empty bool, err error) {
	empty = true
	for _, state := range goingBack() {
		looked := 0
		for job, err := range e.Belfry.List(ctx, e.Queue, client.ListOptions{State: state, PageSize: sampled}) {
			if err != nil {
				return false, fmt.Errorf("listing jobs: %w", err)
			}
			empty = false
			if from, came, err := originOf(job); came && err == nil {
				seen[from.generation]++
				looked++
			}
			if looked == sampled {
				break
			}
		}
	}
	return empty, nil
}

// listPage is how many jobs one round trip brings of those that are only looked at.
const listPage = 1000

// checkCodec refuses jobs that no payload can be made of, unless a codec is named.
func (e *exporter) checkCodec(ctx context.Context) error {
	if e.codec != redisson.Opaque {
		return nil
	}
	for _, state := range goingBack() {
		for job, err := range e.Belfry.List(ctx, e.Queue, client.ListOptions{State: state, PageSize: listPage}) {
			if err != nil {
				return fmt.Errorf("listing jobs: %w", err)
			}
			_, came, err := originOf(job)
			if err != nil {
				return err
			}
			if came {
				continue
			}
			if there, err := e.isThere(ctx, tagOf(job)); err != nil {
				return err
			} else if !there {
				return fmt.Errorf("job %s did not come from Redisson, so that nothing says how it reads payloads, and nothing "+
					"was changed; name what makes them with --codec", job.ID)
			}
		}
	}
	return nil
}

// isThere reports whether Redis has a job already, which is only to be removed from Belfry.
func (e *exporter) isThere(ctx context.Context, tag string) (bool, error) {
	returned, delivered := e.Redis.SIsMember(ctx, e.keys.returned, tag), e.Redis.SIsMember(ctx, e.keys.delivered, tag)
	return returned.Val() || delivered.Val(), errors.Join(returned.Err(), delivered.Err())
}

// checkClaimed notes how much is on its way to Belfry, before it is put there.
func (e *exporter) checkClaimed(ctx context.Context) error {
	var entries, payloads *redis.IntCmd
	_, err := e.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		entries, payloads = p.ZCard(ctx, e.keys.handover), p.HLen(ctx, e.keys.readyHand)
		return nil
	})
	if err != nil {
		return err
	}
	if n := entries.Val() + payloads.Val(); n > 0 || e.claimed == 0 { // of several tries the first knows
		e.claimed = n
	}
	return nil
}

// checkEnd notes what there is on both sides once all jobs have gone back.
func (e *exporter) checkEnd(ctx context.Context) error {
	queue, err := e.Belfry.Admin().Queue(ctx, e.Queue)
	if err != nil {
		return fmt.Errorf("reading the queue: %w", err)
	}
	e.checked("no job of the queue is left to deliver", fmt.Sprintf("Belfry has %d delayed, %d ready, %d reserved; %d "+
		"dead ones stay", queue.Delayed, queue.Ready, queue.Reserved, queue.Dead),
		queue.Delayed+queue.Ready+queue.Reserved == 0)
	e.checked("the queue is paused", "nothing is handed out, also of what is put from now on",
		isSet(queue.Settings.Paused))
	var timer, list, aside, orphans *redis.IntCmd
	var left []string
	exists := map[string]*redis.IntCmd{}
	_, err = e.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		timer, list, aside, orphans = p.ZCard(ctx, e.keys.Timer), p.LLen(ctx, e.keys.List), p.ZCard(ctx, e.keys.aside),
			p.LLen(ctx, e.keys.orphans)
		for _, key := range e.keys.own() {
			exists[key] = p.Exists(ctx, key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.checked("nothing is set aside any more", fmt.Sprintf("%d went back, %d are left", e.counts.Aside, aside.Val()),
		aside.Val() == 0)
	e.checked("every orphan is in the list again", fmt.Sprintf("%d went back, %d are left", e.counts.Orphans,
		orphans.Val()), orphans.Val() == 0)
	e.checked("each entry of Redis has a place in the list", fmt.Sprintf("%s has %d, %s %d", e.keys.Timer,
		timer.Val(), e.keys.List, list.Val()), timer.Val() <= list.Val())
	for _, key := range e.keys.own() {
		if exists[key].Val() > 0 {
			left = append(left, key)
		}
	}
	e.checked("of the mirror's keys its note alone is left", strings.Join(left, ", "), len(left) == 1 &&
		left[0] == e.keys.state)
	processes, err := redisconn.Subscribers(ctx, e.Redis, e.keys.Channel)
	if err != nil {
		return err
	}
	found := fmt.Sprintf("%d connections listen", processes)
	if processes == 0 {
		found += "; nothing is delivered until one does"
	}
	e.checked("a process of Redisson listens", found, processes > 0)
	return nil
}
