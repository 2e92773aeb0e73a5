package fromyouzan

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/oneway"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisconn"
	"github.com/belfrydb/belfry/mirror/youzan"
)

// Options say what [Import] does. Topic must be set; what else is zero has its default.
type Options struct {
	oneway.Options
	Server
	// Topic is the topic whose jobs are brought over. oneway.Options.Queue is the topic if it is
	// empty.
	Topic string
}

// Server says how a server of ouqiang/delay-queue is set up.
type Server struct {
	// Names are the server's settings bucket_name and queue_name. Default: those of a server
	// without settings.
	Names youzan.Names
	// Buckets is the server's setting bucket_size, of all servers the largest. Default 3.
	Buckets int
}

// bucketsDefault is how many buckets a server without settings has; bucketsMax bounds what scripts
// look at for each job.
const (
	bucketsDefault = 3
	bucketsMax     = 64
)

// checked returns the server with its defaults, or what is wrong with it.
func (s Server) checked() (Server, error) {
	if s.Names == (youzan.Names{}) {
		s.Names = youzan.DefaultNames()
	}
	if s.Buckets == 0 {
		s.Buckets = bucketsDefault
	}
	if s.Buckets < 1 || s.Buckets > bucketsMax {
		return s, fmt.Errorf("a server has 1 to %d buckets, not %d", bucketsMax, s.Buckets)
	}
	return s, s.Names.Check()
}

// bucketKeys are the keys of all buckets.
func (s Server) bucketKeys() []string {
	keys := make([]string, s.Buckets)
	for n := range keys {
		keys[n] = s.Names.BucketKey(n + 1)
	}
	return keys
}

// tooFew reports buckets that the server has and that are not named here: what a consumer holds
// might be in one.
func (s Server) tooFew(ctx context.Context, r redis.UniversalClient) error {
	var more []string
	for n := s.Buckets + 1; n <= bucketsMax; n++ {
		more = append(more, s.Names.BucketKey(n))
	}
	if len(more) == 0 {
		return nil
	}
	n, err := r.Exists(ctx, more...).Result()
	if err == nil && n > 0 {
		err = fmt.Errorf("the server has more buckets than %d; say how many", s.Buckets)
	}
	return err
}

// slack is how far ahead a job must be due for a live server to be sure not to look at it.
const slack = 2 * time.Second

// importer is an import from ouqiang/delay-queue under way.
type importer struct {
	*oneway.Importer
	server Server
	topic  string
	now    time.Time // of Redis, at the beginning of the pass
}

// Import moves the jobs of a topic of ouqiang/delay-queue to a queue of Belfry, under their own
// ids. It may be interrupted at any point and repeated; no job is lost or doubled. Servers may run
// meanwhile. Jobs that their consumers hold stay until they are finished or released, and jobs that
// are due within 2 s stay until they are ready. From then on the queue remembers ids without end.
// If a producer pushes an imported id again, the job is refused like any job that Belfry cannot
// take.
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

// Finalize ends an import: it removes the mirror's keys from Redis, and the queue remembers the ids
// of ended jobs for its dedup window again. It refuses if a job is delayed, ready or reserved at
// ouqiang/delay-queue, claimed or set aside, and returns what it checked. Repeating it changes
// nothing.
func Finalize(ctx context.Context, r redis.UniversalClient, c *client.Client, o Options) ([]pair.Check, error) {
	i, err := newImporter(r, c, o)
	if err != nil {
		return nil, err
	}
	return i.Finalize(ctx, i)
}

// newImporter returns an importer that has done nothing yet.
func newImporter(r redis.UniversalClient, c *client.Client, o Options) (*importer, error) {
	server, err := o.checked()
	if err == nil && o.Topic == "" {
		err = errors.New("the topic is to be named")
	}
	if err != nil {
		return nil, err
	}
	source := oneway.Source{
		Name: "youzan:" + o.Topic, Types: typesOf(server, o.Topic), Ack: ackScript, Restore: restoreScript,
		RestoreKeys: []string{server.Names.BucketKey(1)},
	}
	general, err := oneway.New(r, c, source, o.Topic, o.Options)
	if err != nil {
		return nil, err
	}
	i := &importer{Importer: general, server: server, topic: o.Topic}
	return i, nil
}

// typesOf are the keys that servers have of a topic.
func typesOf(server Server, topic string) []redisconn.TypedKey {
	types := []redisconn.TypedKey{redisconn.List(server.Names.QueueKey(topic))}
	for _, bucket := range server.bucketKeys() {
		types = append(types, redisconn.SortedSet(bucket))
	}
	return types
}

// Survey implements oneway.Service.
func (i *importer) Survey(ctx context.Context) (*oneway.Finding, error) {
	found, err := inspect(ctx, i.Redis, i.server, 0, i.topic)
	if err != nil {
		return nil, err
	}
	return &found[0].Finding, nil
}

// Load takes the values of claimed jobs from their records: at the source they are gone.
func (i *importer) Load(_ context.Context, jobs []oneway.Job) error {
	for n, h := range jobs {
		_, value, ok := strings.Cut(h.Record, " ")
		if !ok {
			return fmt.Errorf("the record of the claimed job %q is not one of this program's", h.Field)
		}
		jobs[n].Value = []byte(value)
	}
	return nil
}

// PlaceOf implements oneway.Service.
func (i *importer) PlaceOf(h oneway.Job) (queue, id string) {
	return i.Queue, idOf(i.topic, h.Field)
}

// Put makes the job of a claimed one.
func (i *importer) Put(h oneway.Job) (client.Put, error) {
	first, _, _ := strings.Cut(h.Record, " ")
	seconds, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return client.Put{}, fmt.Errorf("its second is %q: %w", first, err)
	}
	job, err := youzan.Parse(h.Value)
	if err != nil {
		return client.Put{}, err
	}
	if err := fits(job); err != nil {
		return client.Put{}, err
	}
	queue, id := i.PlaceOf(h)
	return client.Put{Queue: queue, Body: []byte(job.Body), Options: []client.PutOption{
		client.ID(id), client.At(time.Unix(seconds, 0)), client.TTR(time.Duration(job.TTR) * time.Second),
		client.MaxAttempts(0),
	}}, nil
}

// ttrMax is the longest lease that Belfry gives, in seconds; it is also that of the source.
const ttrMax = int64(24 * time.Hour / time.Second)

// fits says why Belfry cannot take a job.
func fits(job youzan.Job) error {
	switch {
	case len(job.Body) > pair.BodyMax:
		return fmt.Errorf("its body has %d bytes, at most %d", len(job.Body), pair.BodyMax)
	case job.TTR < 1 || job.TTR > ttrMax:
		return fmt.Errorf("its TTR is %d s, should be 1 to %d", job.TTR, ttrMax)
	case job.Due < 0 || time.Until(time.Unix(min(job.Due, 1<<40), 0)) > pair.DelayMax:
		return fmt.Errorf("its due second is %d", job.Due)
	}
	return nil
}

// idOf is the id of a job in Belfry: its own, or one made of it if Belfry has no ids of its kind.
func idOf(topic, id string) string {
	const idBytesMax = 256
	left, right, dashed := strings.Cut(id, "-")
	numbered := dashed && digits(left) && digits(right)
	if len(id) <= idBytesMax && utf8.ValidString(id) && !numbered {
		return id
	}
	sum := sha256.Sum256([]byte(topic + "\x00" + id))
	return "youzan:" + hex.EncodeToString(sum[:16])
}

// digits reports whether a text consists of digits only.
func digits(text string) bool { return strings.Trim(text, "0123456789") == "" }

// valueMax is how much of a value is read: more than any has whose body Belfry takes.
const valueMax = 2 * pair.BodyMax

// topicJob is a job as it was read.
type topicJob struct {
	youzan.Job
	value string
}

// likeJobs returns those of keys whose values begin as a job does. Most keys of a database are
// something else, and long.
func likeJobs(ctx context.Context, r redis.UniversalClient, keys []string) ([]string, error) {
	first := make([]*redis.StringCmd, len(keys))
	_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, key := range keys {
			first[n] = p.GetRange(ctx, key, 0, 0)
		}
		return nil
	})
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, err
	}
	var like []string
	for n, key := range keys {
		if youzan.Begins(first[n].Val()) {
			like = append(like, key)
		}
	}
	return like, nil
}

// readJobs reads the jobs with these ids that belong to our topic. Keys that hold other values
// belong to other programs. It calls bad for values that look like a job and cannot be moved; the
// topic is empty if it cannot be read. It calls missing for ids without a value.
func readJobs(
	ctx context.Context, r redis.UniversalClient, ids []string, ours func(topic string) bool, bad func(topic,
		id string, why error), missing func(id string),
) ([]topicJob, error) {
	values := make([]*redis.StringCmd, len(ids))
	_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, id := range ids {
			values[n] = p.GetRange(ctx, id, 0, valueMax)
		}
		return nil
	})
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, err
	}
	jobs := make([]topicJob, 0, len(ids))
	for n, id := range ids {
		value, err := values[n].Result()
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return nil, err
		}
		if value == "" { // no job is empty; and what is no text is of another program
			missing(id)
			continue
		}
		job, err := youzan.Parse([]byte(value))
		if len(value) > valueMax {
			err = fmt.Errorf("its value has more than %d bytes", valueMax)
		}
		switch {
		case err != nil:
			bad("", id, err)
		case !ours(job.Topic):
		case job.ID != id:
			bad(job.Topic, id, fmt.Errorf("its value is that of job %.64q", job.ID))
		case fits(job) != nil:
			bad(job.Topic, id, fits(job))
		default:
			jobs = append(jobs, topicJob{job, value})
		}
	}
	return jobs, nil
}

// Steps are a pass over the ready list, the buckets and, if no server runs, all other keys.
func (i *importer) Steps() []func(context.Context) (int, error) {
	return []func(context.Context) (int, error){i.readClock, i.takeReady, i.takeBuckets, i.takeUnnamed}
}

// readClock looks at the clock and the buckets.
func (i *importer) readClock(ctx context.Context) (_ int, err error) {
	if i.now, err = i.Redis.Time(ctx).Result(); err != nil {
		return 0, err
	}
	return 0, i.server.tooFew(ctx, i.Redis)
}

// takeReady claims what is in the ready list.
func (i *importer) takeReady(ctx context.Context) (taken int, err error) {
	kind := "ready"
	if i.Options.Stopped {
		kind = "list"
	}
	for at := int64(0); ; {
		page, err := i.Redis.LRange(ctx, i.server.Names.QueueKey(i.topic), at, at+redisconn.ScanPage-1).Result()
		if err != nil || len(page) == 0 {
			return taken, err
		}
		n, err := i.claim(ctx, kind, page, nil)
		if taken += n; err != nil {
			return taken, err
		}
		at += int64(len(page) - n) // what was not claimed is passed by
	}
}

// takeBuckets claims what waits in the buckets, and what consumers hold if no server runs.
func (i *importer) takeBuckets(ctx context.Context) (taken int, err error) {
	kind, keep := "any", func(topicJob) bool { return true }
	if !i.Options.Stopped {
		kind, keep = "timer", func(job topicJob) bool {
			waits := job.Due > i.now.Add(slack).Unix()
			if !waits {
				i.Counts.Reserved++
			}
			return waits
		}
	}
	for _, bucket := range i.server.bucketKeys() {
		if err := redisconn.ScanScores(ctx, i.Redis, bucket, "", func(page []string) error {
			n, err := i.claim(ctx, kind, members(page), keep)
			taken += n
			return err
		}); err != nil {
			return taken, err
		}
	}
	return taken, nil
}

// takeUnnamed counts jobs that no bucket and no ready list names, and claims them if asked to. It
// looks at all keys, and comes last.
func (i *importer) takeUnnamed(ctx context.Context) (taken int, err error) {
	keep := func(topicJob) bool {
		i.Counts.Unnamed++
		return i.Options.Unnamed
	}
	unread := i.Counts.Unread
	err = redisconn.ScanKeys(ctx, i.Redis, "", func(keys []string) error {
		keys, err := likeJobs(ctx, i.Redis, keys)
		if err != nil {
			return err
		}
		n, err := i.claim(ctx, "any", keys, keep)
		taken += n
		i.Counts.Unnamed -= int64(n)
		return err
	})
	i.Counts.Unread = unread // most keys may be anything
	return taken, err
}

// claim claims those of ids that are jobs of the topic and that keep lets pass, and returns how
// many they were.
func (i *importer) claim(ctx context.Context, kind string, ids []string, keep func(topicJob) bool) (taken int,
	err error) {
	const atATime = 32 // values may be long
	for part := range slices.Chunk(ids, atATime) {
		jobs, err := readJobs(ctx, i.Redis, part, func(topic string) bool { return topic == i.topic }, func(string,
			string, error) {
			i.Counts.Unread++
		}, func(string) {})
		if err != nil {
			return taken, err
		}
		for len(jobs) > 0 {
			var args []any
			room := pair.ClaimBytes
			for len(jobs) > 0 && room > 0 && len(args) < 3*i.Batch() {
				job := jobs[0]
				if jobs = jobs[1:]; keep == nil || keep(job) {
					args = append(args, job.ID, job.Due, job.value)
					room -= len(job.value)
				}
			}
			n, err := i.claimThese(ctx, kind, args)
			if taken += n; err != nil {
				return taken, err
			}
		}
	}
	return taken, nil
}

// claimThese claims jobs of which the arguments have id, due second and value, and commits them.
func (i *importer) claimThese(ctx context.Context, kind string, args []any) (int, error) {
	if len(args) == 0 {
		return 0, nil
	}
	keys := append([]string{i.Handover, i.server.Names.QueueKey(i.topic)}, i.server.bucketKeys()...)
	reply, err := i.Script(ctx, claimScript, keys, append([]any{kind}, args...)...)
	if err != nil {
		return 0, err
	}
	pairs, err := reply.StringSlice()
	if err != nil {
		return 0, err
	}
	jobs := make([]oneway.Job, 0, len(pairs)/2)
	for n := 0; n+1 < len(pairs); n += 2 {
		jobs = append(jobs, oneway.Job{Field: pairs[n], Record: pairs[n+1]})
	}
	if err := i.Load(ctx, jobs); err != nil {
		return 0, err
	}
	return len(jobs), i.Claimed(ctx, jobs)
}
