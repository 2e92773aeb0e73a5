package mirror

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/pair"
)

// claimed is what one claim took.
type claimed struct {
	entries []entry
	taken   int   // places of the list, or ghosts
	orphans int64 // of them
	waiting int64 // entries in the hand-over key, these included
	left    int64 // entries that are not claimed
}

// claim takes the next entries out of Redisson's reach.
func (i *importer) claim(ctx context.Context) (claimed, error) {
	reply, err := i.script(ctx, claimScript, []string{i.keys.Timer, i.keys.List, i.keys.handover, i.keys.orphans},
		i.batch, pair.ClaimBytes)
	if err != nil {
		return claimed{}, err
	}
	values, err := reply.Slice()
	if err != nil {
		return claimed{}, err
	}
	if len(values) < 4 {
		return claimed{}, fmt.Errorf("the claim was answered with %d values", len(values))
	}
	taken, _ := values[0].(int64)
	orphans, _ := values[1].(int64)
	waiting, _ := values[2].(int64)
	left, _ := values[3].(int64)
	entries, err := entriesOf(values[4:])
	return claimed{entries: entries, taken: int(taken), orphans: orphans, waiting: waiting, left: left}, err
}

// left reads the first entries of the hand-over key, or of those set aside.
func (l *link) left(ctx context.Context, key string) ([]entry, error) {
	values, err := leftScript.Run(ctx, l.Redis, []string{key}, pair.BatchMax, pair.ClaimBytes).Slice()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	return entriesOf(values)
}

// entriesOf reads members and scores, one after the other.
func entriesOf(values []any) ([]entry, error) {
	entries := make([]entry, 0, len(values)/2)
	for n := 0; n+1 < len(values); n += 2 {
		member, ok := values[n].(string)
		score, okay := values[n+1].(string)
		if !ok || !okay {
			return nil, fmt.Errorf("an entry came as %T and %T", values[n], values[n+1])
		}
		entries = append(entries, entry{member, score})
	}
	return entries, nil
}

// commit puts entries of the hand-over key into Belfry and then removes them from there. What
// Belfry cannot take is set aside, or given back and the first of them returned.
func (i *importer) commit(ctx context.Context, entries []entry) error {
	var bad []*BadEntry
	refuse := func(e entry, why error) {
		bad = append(bad, &BadEntry{Member: []byte(e.member), Score: e.score, Reason: why})
	}
	puts, of := make([]client.Put, 0, len(entries)), make([]entry, 0, len(entries))
	for _, e := range entries {
		put, err := i.put(e)
		if err != nil {
			refuse(e, err)
			continue
		}
		puts, of = append(puts, put), append(of, e)
	}
	acks := make([]any, 0, len(puts))
	err := i.PutAll(ctx, puts, func(n int, r client.PutResult) {
		i.counts.Committed++
		if r.Err != nil || !r.Created {
			i.counts.Repeated++
		}
		acks = append(acks, of[n].member)
	}, func(n int, why error) { refuse(of[n], why) })
	if err != nil {
		return err
	}
	if err := i.ack(ctx, ackScript, i.keys.handover, acks); err != nil {
		return err
	}
	return i.refused(ctx, bad)
}

// ack removes what Belfry has from a hand-over key, by the script for its type.
func (i *importer) ack(ctx context.Context, s *redis.Script, key string, names []any) error {
	if len(names) == 0 {
		return nil
	}
	reply, err := i.script(ctx, s, []string{key}, names...)
	if err != nil {
		return err
	}
	removed, err := reply.Int64()
	i.counts.Acked += removed
	i.report()
	return err
}

// refused gives back what Belfry cannot take and returns the first of it, or sets all aside.
func (i *importer) refused(ctx context.Context, bad []*BadEntry) error {
	if len(bad) == 0 {
		return nil
	}
	members := make([]any, len(bad))
	for n, b := range bad {
		members[n] = b.Member
	}
	if !i.setAside {
		_, err := i.script(ctx, restoreScript, []string{i.keys.Timer, i.keys.List, i.keys.handover, i.keys.Channel},
			members...)
		if err != nil {
			return err // they are still claimed, and will be met again
		}
		return bad[0]
	}
	reply, err := i.script(ctx, asideScript, []string{i.keys.handover, i.keys.aside}, members...)
	if err != nil {
		return err
	}
	moved, err := reply.Int64()
	i.counts.SetAside += moved
	i.report()
	return err
}

// script is that of the link; what took long takes fewer entries the next time.
func (i *importer) script(ctx context.Context, s *redis.Script, keys []string, args ...any) (*redis.Cmd, error) {
	reply, took, err := i.link.Script(ctx, s, keys, args...)
	i.batch = pair.NextBatch(i.batch, took)
	return reply, err
}

// report tells how far the import is.
func (i *importer) report() {
	if i.progress != nil {
		i.counts.Slowest = i.Slowest()
		i.progress(i.counts)
	}
}
