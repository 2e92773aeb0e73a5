package pair

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
)

// Several Redis queues may be moved to one queue of Belfry. Its notes are the job wasID, which has
// the dedup setting from before the first of them, and a mark for each queue that is in progress.
// No lock separates the writers of these notes; the order of their steps does. An import puts its
// mark before it reads the note and the setting. A finalize looks for marks again after it has
// changed them.

// wasID is the id of the job that says what a queue remembered before the first import, markPrefix
// begins those of the marks.
const (
	wasID      = "was"
	markPrefix = "mark:"
)

// notes are those about one queue of Belfry.
type notes struct {
	belfry *client.Client
	queue  string
}

// dedupRecord is the body of the job wasID.
type dedupRecord struct {
	DedupForever bool `json:"dedupForever"`
}

// markRecord is the body of a mark.
type markRecord struct {
	RedisQueue string `json:"redisQueue"`
}

// control is the queue that holds the notes. What is hashed for a pair of queues has a NUL, which
// this has not.
func (n notes) control() string {
	sum := sha256.Sum256([]byte("dedup " + n.queue))
	return "belfry.mirror/" + hex.EncodeToString(sum[:8])
}

// markID is the id of the mark of a pair, by its control queue.
func markID(control string) string { return markPrefix + control[strings.LastIndex(control, "/")+1:] }

// put writes a job that never falls due. One that is there stays.
func (n notes) put(ctx context.Context, id string, body any) error {
	text, err := json.Marshal(body)
	if err == nil {
		_, err = n.belfry.Put(ctx, n.control(), text, client.ID(id), client.In(epochDelay), client.Again())
	}
	if err != nil && !errors.Is(err, client.ErrJobExists) {
		return fmt.Errorf("writing down what the queue %s remembered: %w", n.queue, err)
	}
	return nil
}

// forget removes a job. Repeating it changes nothing.
func (n notes) forget(ctx context.Context, id string) error {
	if _, err := n.belfry.Cancel(ctx, n.control(), id); err != nil && !IsGone(err) {
		return fmt.Errorf("forgetting what the queue %s remembered: %w", n.queue, err)
	}
	return nil
}

// get reads a job; false if there is none.
func (n notes) get(ctx context.Context, id string, body any) (bool, error) {
	job, err := n.belfry.Get(ctx, n.control(), id)
	if IsGone(err) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(job.Body, body)
	}
	if err != nil {
		return false, fmt.Errorf("reading what the queue %s remembered before the first import: %w", n.queue, err)
	}
	return true, nil
}

// was says what the queue remembered; false as well if nothing says it.
func (n notes) was(ctx context.Context) (forever, found bool, err error) {
	var r dedupRecord
	found, err = n.get(ctx, wasID, &r)
	return r.DedupForever, found, err
}

// noteWas writes down what the queue remembers, unless that was done since the last mark went.
func (n notes) noteWas(ctx context.Context) error {
	if _, found, err := n.was(ctx); err != nil || found {
		return err
	}
	is, err := n.belfry.Admin().Queue(ctx, n.queue)
	if err != nil && !IsGone(err) {
		return fmt.Errorf("reading the queue %s: %w", n.queue, err)
	}
	return n.put(ctx, wasID, dedupRecord{is.Settings.DedupForever != nil && *is.Settings.DedupForever})
}

// marks are the Redis queues that come to the queue, sorted.
func (n notes) marks(ctx context.Context) ([]string, error) {
	var all []string
	for job, err := range n.belfry.List(ctx, n.control(), client.ListOptions{}) {
		if IsGone(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("looking what else comes to the queue %s: %w", n.queue, err)
		}
		if !strings.HasPrefix(job.ID, markPrefix) {
			continue
		}
		var r markRecord
		if found, err := n.get(ctx, job.ID, &r); err != nil {
			return nil, err
		} else if found {
			all = append(all, r.RedisQueue)
		}
	}
	slices.Sort(all)
	return all, nil
}

// markDedup notes that this pair's import is under way.
func (l *Link) markDedup(ctx context.Context, queue string) error {
	return notes{l.Belfry, queue}.put(ctx, markID(l.control), markRecord{l.RedisQueue})
}

// markedDedup reports whether an import of this pair was not ended: what a queue remembers was not
// set back.
func (l *Link) markedDedup(ctx context.Context, queues ...string) (bool, error) {
	for _, queue := range queues {
		var r markRecord
		if found, err := (notes{l.Belfry, queue}).get(ctx, markID(l.control), &r); err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// noteDedup writes down what a queue that jobs come to remembers, and that they come from this
// Redis queue. The caller has the queue remember ids without end afterwards.
func (l *Link) noteDedup(ctx context.Context, queue string) error {
	if err := l.markDedup(ctx, queue); err != nil {
		return err
	}
	return notes{l.Belfry, queue}.noteWas(ctx)
}

// RestoreDedup has a queue remember ids as it did before the first import, unless jobs come from
// other Redis queues still. Repeating it changes nothing.
func (l *Link) RestoreDedup(ctx context.Context, queue string) error {
	n := notes{l.Belfry, queue}
	if err := n.forget(ctx, markID(l.control)); err != nil {
		return err
	}
	for {
		others, err := n.marks(ctx)
		if err != nil {
			return err
		}
		was, found, err := n.was(ctx)
		switch {
		case err != nil:
			return err
		case len(others) > 0 && !found: // a finalize was killed before it looked for marks again
			if err := n.noteWas(ctx); err != nil {
				return err
			}
			return rememberForever(ctx, l.Belfry, queue)
		case len(others) > 0:
			l.Notice(fmt.Errorf("the queue %s goes on remembering ids without end: what it has also comes from %s", queue,
				strings.Join(others, ", ")))
			return nil
		case !found:
			return nil // an earlier run came so far, or nothing was brought over
		}
		if again, err := l.setBack(ctx, n, was); err != nil || !again {
			return err
		}
	}
}

// setBack restores what a queue remembers, and removes the note of it. If another import began
// meanwhile, it undoes this, and again is true: the caller must read the marks again.
func (l *Link) setBack(ctx context.Context, n notes, was bool) (again bool, err error) {
	for wait := (Backoff{}); ; {
		changed, err := l.Belfry.Admin().UpdateQueue(ctx, n.queue, &admin.QueueSettings{DedupForever: new(was)})
		if err != nil && !IsGone(err) {
			return false, fmt.Errorf("having the queue %s forget ids again: %w", n.queue, err)
		}
		pending := changed.PendingShards
		if len(pending) == 0 {
			break
		}
		l.Notice(fmt.Errorf("waiting for shards %v to forget ids again", pending))
		if err := wait.Wait(ctx); err != nil {
			return false, err
		}
	}
	if err := n.forget(ctx, wasID); err != nil {
		return false, err
	}
	others, err := n.marks(ctx)
	if err != nil || len(others) == 0 {
		return false, err
	}
	if err := n.put(ctx, wasID, dedupRecord{was}); err != nil {
		return false, err
	}
	return true, rememberForever(ctx, l.Belfry, n.queue)
}

// rememberForever has a queue remember the ids of ended jobs without end, and makes it if there is
// none.
func rememberForever(ctx context.Context, c *client.Client, queue string) error {
	settings := &admin.QueueSettings{DedupForever: new(true)}
	_, err := c.Admin().CreateQueue(ctx, queue, 1, settings)
	if errors.Is(err, client.Reason("QUEUE_EXISTS")) {
		_, err = c.Admin().UpdateQueue(ctx, queue, settings)
	}
	if err != nil {
		return fmt.Errorf("having the queue %s remember ids: %w", queue, err)
	}
	return nil
}

// RememberIDs has a queue remember ids without end, so that a repeat is known, and writes down what
// it remembered before. It makes the queue if there is none. Repeating it changes nothing.
func (l *Link) RememberIDs(ctx context.Context, queue string) error {
	if err := l.noteDedup(ctx, queue); err != nil {
		return err
	}
	return rememberForever(ctx, l.Belfry, queue)
}
