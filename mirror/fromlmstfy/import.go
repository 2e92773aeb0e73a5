package fromlmstfy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/lmstfy"
	"github.com/belfrydb/belfry/mirror/oneway"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisconn"
)

// DeadLetters says what an import from lmstfy does with dead letters. Belfry has no put that makes
// a dead job.
type DeadLetters string

// What may be done with dead letters.
const (
	// DeadLeave leaves them at lmstfy.
	DeadLeave DeadLetters = "leave"
	// DeadQueue puts them into a queue of their own, the queue's name with ".dead" appended, where
	// one attempt is left to each.
	DeadQueue DeadLetters = "queue"
	// DeadRespawn puts them into the queue itself, with one attempt, as lmstfy's own respawn does.
	DeadRespawn DeadLetters = "respawn"
)

// deadSuffix ends the name of a queue of dead letters.
const deadSuffix = ".dead"

// ParseDeadLetters reads one of the three words; the empty text is DeadLeave.
func ParseDeadLetters(text string) (DeadLetters, error) {
	switch d := DeadLetters(text); d {
	case "":
		return DeadLeave, nil
	case DeadLeave, DeadQueue, DeadRespawn:
		return d, nil
	default:
		return "", fmt.Errorf("dead letters can be left (leave), put into a queue of their own (queue) or brought to life "+
			"(respawn), not %q", text)
	}
}

// Options say what [Import] does. Source must be set.
type Options struct {
	oneway.Options
	// Source is the queue at lmstfy. oneway.Options.Queue is "namespace/name" if it is empty.
	Source lmstfy.Queue
	// Dead says what becomes of dead letters. Default: they are left.
	Dead DeadLetters
}

// slack is how much later than expected a job that was never handed out may be scored: the second
// may turn between its id and its score. A reserved one is later by its lease of at least a second.
const slack = time.Second

// importer is an import from lmstfy under way.
type importer struct {
	*oneway.Importer
	source lmstfy.Queue
	dead   DeadLetters
	bad    string // the key of elements that cannot be read
}

// Import moves the jobs of a queue of lmstfy to a queue of Belfry, under their own ids. It may be
// interrupted at any point and repeated; no job is lost or doubled. Servers of lmstfy may run
// meanwhile. Jobs that their consumers hold stay until they are finished or released. From then on
// the queue remembers ids without end.
//
// Import retries a broken connection to Redis, and temporary refusals of Belfry, until ctx ends.
// Errors: a job that cannot be moved, unless SetAside; a permanent refusal of Redis or Belfry; the
// error of ctx.
func Import(ctx context.Context, r redis.UniversalClient, c *client.Client, o Options) (oneway.Counts, error) {
	i, err := newImporter(r, c, o)
	if err != nil {
		return oneway.Counts{}, err
	}
	return i.Run(ctx, i)
}

// Finalize ends an import. It removes the mirror's keys from Redis. The queue remembers the ids of
// ended jobs for its dedup window again, and so does the queue of dead letters, if Dead names one.
// It refuses if a job is delayed, ready or reserved at lmstfy, claimed or set aside. It also
// refuses if dead letters are left that Dead says are taken. It returns its checks. Repeating it
// changes nothing.
func Finalize(ctx context.Context, r redis.UniversalClient, c *client.Client, o Options) ([]pair.Check, error) {
	i, err := newImporter(r, c, o)
	if err != nil {
		return nil, err
	}
	return i.Finalize(ctx, i, i.bad)
}

// newImporter returns an importer that has done nothing yet.
func newImporter(r redis.UniversalClient, c *client.Client, o Options) (*importer, error) {
	name := nameOf(o.Source)
	if o.Source.Namespace == "" || o.Source.Name == "" {
		return nil, errors.New("the queue at lmstfy is to be named, as namespace and queue")
	}
	queue := o.Queue
	if queue == "" {
		if queue = name; len(queue) > pair.NameMax {
			return nil, fmt.Errorf("the name %.40s… has %d bytes, that of a queue may have %d; name the queue of Belfry",
				queue, len(queue), pair.NameMax)
		}
	}
	dead, err := ParseDeadLetters(string(o.Dead))
	if err != nil {
		return nil, err
	}
	bad := "belfry_unread:lmstfy:" + name
	source := oneway.Source{
		Name: "lmstfy:" + name, Types: append(typesOf(o.Source), redisconn.List(bad)), Ack: ackScript, Restore: restoreScript,
		RestoreKeys: []string{lmstfy.TimerKey, o.Source.ReadyKey(), o.Source.DeadLetterKey()}, SameID: true,
	}
	if dead == DeadQueue {
		source.Beside = []string{queue + deadSuffix}
	}
	general, err := oneway.New(r, c, source, queue, o.Options)
	if err != nil {
		return nil, err
	}
	i := &importer{Importer: general, source: o.Source, dead: dead, bad: bad}
	return i, nil
}

// typesOf are the keys that servers have of a queue.
func typesOf(q lmstfy.Queue) []redisconn.TypedKey {
	return []redisconn.TypedKey{redisconn.SortedSet(lmstfy.TimerKey), redisconn.List(q.ReadyKey()),
		redisconn.List(q.DeadLetterKey())}
}

func nameOf(q lmstfy.Queue) string { return q.Namespace + "/" + q.Name }

// Survey implements oneway.Service.
func (i *importer) Survey(ctx context.Context) (*oneway.Finding, error) {
	found, err := Inspect(ctx, i.Redis, i.source)
	if err != nil {
		return nil, err
	}
	if i.dead != DeadLeave {
		found.Ready += found.Dead
	}
	return &found.Finding, nil
}

// Load reads the values of claimed jobs, which stay at lmstfy until the ack.
func (i *importer) Load(ctx context.Context, jobs []oneway.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	replies := make([]*redis.StringCmd, len(jobs))
	_, err := i.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, h := range jobs {
			replies[n] = p.Get(ctx, h.Field)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	for n, reply := range replies {
		switch value, err := reply.Bytes(); {
		case err == nil:
			jobs[n].Value = value
		case !errors.Is(err, redis.Nil):
			return err
		}
	}
	return nil
}

// claimRecord is what was written down about a job at its claim.
type claimRecord struct {
	kind  byte // where it was: t timer, r ready list, d dead letters, u nowhere
	place byte // where it goes: - the queue, q the queue of dead letters, s the queue, brought to life
	due   time.Time
	ttl   time.Duration // 0: without end
	tries uint16
}

func parseRecord(text string) (claimRecord, error) {
	parts := strings.SplitN(text, " ", 4)
	if len(parts) != 4 || len(parts[0]) != 2 {
		return claimRecord{}, fmt.Errorf("the record %.40q of a claimed job is not one of this program's", text)
	}
	record := claimRecord{kind: parts[0][0], place: parts[0][1]}
	score, scoreErr := strconv.ParseInt(parts[1], 10, 64)
	left, leftErr := strconv.ParseInt(parts[2], 10, 64)
	if err := errors.Join(scoreErr, leftErr); err != nil {
		return claimRecord{}, fmt.Errorf("the record of a claimed job: %w", err)
	}
	if record.kind == 't' {
		record.due = time.Unix(score, 0)
	}
	if left >= 0 {
		record.ttl = time.Duration(max(1, left)) * time.Millisecond
	}
	var err error
	switch record.kind {
	case 't':
		var m lmstfy.TimerMember
		m, err = lmstfy.ParseTimerMember([]byte(parts[3]))
		record.tries = m.Tries
	case 'r', 'd':
		var e lmstfy.Element
		e, err = lmstfy.ParseElement([]byte(parts[3]))
		record.tries = e.Tries
	}
	return record, err
}

// PlaceOf says where the job of a claimed one is. It does not need the rest of the record.
func (i *importer) PlaceOf(h oneway.Job) (queue, id string) {
	id = strings.TrimPrefix(h.Field, i.source.JobKey(""))
	if len(h.Record) > 1 && h.Record[1] == 'q' {
		return i.Queue + deadSuffix, id
	}
	return i.Queue, id
}

// Put makes the job of a claimed one. All that it says comes from the record and the value, so that
// a repeat says the same.
func (i *importer) Put(h oneway.Job) (client.Put, error) {
	record, err := parseRecord(h.Record)
	if err != nil {
		return client.Put{}, err
	}
	queue, id := i.PlaceOf(h)
	body, headers := bodyOf(id, h.Value)
	options := []client.PutOption{client.ID(id)}
	for name, value := range headers {
		options = append(options, client.Header(name, value))
	}
	if record.kind == 't' {
		options = append(options, client.At(record.due))
	}
	switch {
	case record.place != '-':
		options = append(options, client.MaxAttempts(1))
	case record.kind != 'u':
		options = append(options, client.MaxAttempts(uint32(max(1, record.tries))))
	}
	if record.ttl > 0 && record.place == '-' {
		options = append(options, client.TTL(record.ttl))
	}
	return client.Put{Queue: queue, Body: body, Options: options}, nil
}

// headersMax is how long names and values of a job's headers may be together.
const headersMax = 16 << 10

// bodyOf takes the value of a job apart. One that is not of the form that its id promises, or has
// attributes that Belfry cannot take, is the body itself.
func bodyOf(id string, value []byte) ([]byte, map[string]string) {
	body, headers, err := lmstfy.Body(id, value)
	size := 0
	for name, text := range headers {
		size += len(name) + len(text)
	}
	_, nameless := headers[""]
	if err != nil || nameless || size > headersMax {
		return value, nil
	}
	return body, headers
}

// Steps are a pass over the timer, the lists and, if no server runs, the values.
func (i *importer) Steps() []func(context.Context) (int, error) {
	return []func(context.Context) (int, error){i.takeTimer, i.takeReady, i.takeDead, i.takeUnnamed}
}

// takeTimer claims delayed jobs, and reserved ones if no server runs.
func (i *importer) takeTimer(ctx context.Context) (taken int, err error) {
	err = redisconn.ScanScores(ctx, i.Redis, lmstfy.TimerKey, timerPattern(i.source), func(page []string) error {
		var args []any
		for n := 0; n+1 < len(page); n += 2 {
			found := readTimer(i.source, page[n], page[n+1])
			kind := "t-"
			switch {
			case !found.ours:
				continue
			case found.err != nil:
				i.Counts.Unread++
				continue
			case found.reserved && !i.Options.Stopped:
				i.Counts.Reserved++
				continue
			case found.Tries == 0 && i.dead == DeadLeave:
				i.Counts.Dead++
				continue
			case found.Tries == 0:
				kind = i.deadKind('t')
			}
			args = append(args, page[n], page[n+1], i.source.JobKey(found.ID), kind)
		}
		const each = 4
		for len(args) > 0 {
			part := args[:min(len(args), each*i.Batch())]
			reply, err := i.Script(ctx, timerScript, []string{i.Handover, lmstfy.TimerKey}, append([]any{pair.ClaimBytes},
				part...)...)
			if err != nil {
				return err
			}
			numbers, jobs, err := claimReply(reply, 2)
			if err != nil {
				return err
			}
			if numbers[0] == 0 {
				return errors.New("the claim looked at nothing")
			}
			i.Counts.Unread += numbers[1]
			taken += len(jobs)
			if err := i.Claimed(ctx, jobs); err != nil {
				return err
			}
			args = args[each*numbers[0]:]
		}
		return nil
	})
	return taken, err
}

// deadKind is the kind of a claimed dead letter by where it was.
func (i *importer) deadKind(from byte) string {
	if i.dead == DeadQueue {
		return string(from) + "q"
	}
	return string(from) + "s"
}

func (i *importer) takeReady(ctx context.Context) (int, error) {
	return i.takeList(ctx, i.source.ReadyKey(), "r-")
}

func (i *importer) takeDead(ctx context.Context) (int, error) {
	if i.dead == DeadLeave {
		n, err := i.Redis.LLen(ctx, i.source.DeadLetterKey()).Result()
		i.Counts.Dead += n
		return 0, err
	}
	return i.takeList(ctx, i.source.DeadLetterKey(), i.deadKind('d'))
}

// takeList claims what a list has.
func (i *importer) takeList(ctx context.Context, list, kind string) (taken int, err error) {
	aside := 0
	if i.Options.SetAside {
		aside = 1
	}
	for {
		reply, err := i.Script(ctx, listScript, []string{i.Handover, list, i.bad}, i.Batch(), pair.ClaimBytes,
			i.source.JobKey(""), kind, aside)
		if err != nil {
			return taken, err
		}
		numbers, jobs, err := claimReply(reply, 3)
		if err != nil {
			return taken, err
		}
		taken += len(jobs)
		if err := i.Claimed(ctx, jobs); err != nil {
			return taken, err
		}
		if numbers[1] > 0 {
			if !i.Options.SetAside {
				return taken, fmt.Errorf("the last element of the list %s cannot be read, or its value is no text; it can be "+
					"set aside", list)
			}
			i.Counts.SetAside += numbers[1]
		}
		if numbers[2] == 0 || numbers[0] == 0 {
			return taken, nil
		}
	}
}

// takeUnnamed counts values that nothing names, and claims them if asked to. It comes last: what
// has been brought over by then has no value any more.
func (i *importer) takeUnnamed(ctx context.Context) (taken int, err error) {
	named := map[string]bool{}
	if err := i.named(ctx, named); err != nil {
		return 0, err
	}
	seen := map[string]bool{}
	err = redisconn.ScanKeys(ctx, i.Redis, redisconn.GlobEscape(i.source.JobKey(""))+"*", func(keys []string) error {
		args := make([]any, 0, len(keys))
		for _, key := range keys {
			if !named[key] && !seen[key] {
				seen[key] = true
				args = append(args, key)
			}
		}
		if !i.Options.Unnamed {
			i.Counts.Unnamed += int64(len(args))
			return nil
		}
		for part := range slices.Chunk(args, pair.BatchMin) {
			reply, err := i.Script(ctx, valueScript, []string{i.Handover}, part...)
			if err != nil {
				return err
			}
			_, jobs, err := claimReply(reply, 0)
			if err != nil {
				return err
			}
			taken += len(jobs)
			if err := i.Claimed(ctx, jobs); err != nil {
				return err
			}
		}
		return nil
	})
	return taken, err
}

// named adds the keys of jobs that something still names: dead letters that are left, and what is
// set aside.
func (i *importer) named(ctx context.Context, names map[string]bool) error {
	if err := redisconn.ScanScores(ctx, i.Redis, lmstfy.TimerKey, timerPattern(i.source), func(page []string) error {
		for n := 0; n+1 < len(page); n += 2 {
			if found := readTimer(i.source, page[n], page[n+1]); found.ours && found.err == nil {
				names[i.source.JobKey(found.ID)] = true
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, list := range []string{i.source.ReadyKey(), i.source.DeadLetterKey()} {
		if err := redisconn.EachPage(ctx, i.Redis, list, func(page []string) error {
			for _, element := range page {
				if e, err := lmstfy.ParseElement([]byte(element)); err == nil {
					names[i.source.JobKey(e.ID)] = true
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	aside, err := i.Redis.HKeys(ctx, i.Aside).Result()
	for _, field := range aside {
		names[field] = true
	}
	return err
}

// claimReply takes the answer of a claim apart: numbers first, then field, record and value of each
// job.
func claimReply(reply *redis.Cmd, numbers int) ([]int64, []oneway.Job, error) {
	all, err := reply.Slice()
	if err != nil {
		return nil, nil, err
	}
	if len(all) < numbers || (len(all)-numbers)%3 != 0 {
		return nil, nil, fmt.Errorf("the claim was answered with %d values", len(all))
	}
	counts := make([]int64, numbers)
	for n := range counts {
		counts[n], _ = all[n].(int64)
	}
	jobs := make([]oneway.Job, 0, len(all)/3)
	for part := range slices.Chunk(all[numbers:], 3) {
		field, _ := part[0].(string)
		record, _ := part[1].(string)
		value, ok := part[2].(string)
		if !ok {
			return nil, nil, fmt.Errorf("a claimed job came with a %T", part[2])
		}
		jobs = append(jobs, oneway.Job{Field: field, Record: record, Value: []byte(value)})
	}
	return counts, jobs, nil
}
