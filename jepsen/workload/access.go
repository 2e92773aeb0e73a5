package workload

import (
	"context"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/jepsen/lab"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The quotas of a tenant. They are high in turn and low, and both are less than producers and
// consumers try to use.
const (
	quotaJobsLow, quotaJobsHigh     = 40, 120
	quotaBytesLow, quotaBytesHigh   = 12_000, 40_000
	quotaLeasesLow, quotaLeasesHigh = 6, 24
	quotaRateLow, quotaRateHigh     = 60, 240
)

// tenantBatchMost is how many jobs a producer of a tenant puts at once.
const tenantBatchMost = 12

// keptEnded is how many credentials of each tenant are kept that have ended, to be tried again.
const keptEnded = 16

// tenant is one of the tenants that share the cluster and must see nothing of each other. Its
// clients share its tokens.
type tenant struct {
	name   string
	queues []string

	mu sync.Mutex
	// producer and consumer are what its clients carry, ended what they carried before, leases those
	// of jobs that it holds or held.
	producer, consumer *Credential
	ended              []*Credential
	leases             []string
}

func newTenant(name string) *tenant {
	return &tenant{name: name, queues: []string{name + "/wide", name + "/pair", name + "/single"}}
}

// scopes are those of the tenant's producers and consumers.
func (t *tenant) scopes(consumes bool) []string {
	if consumes {
		return []string{"consume:" + t.name + "/*"}
	}
	return []string{"put:" + t.name + "/*", "view:" + t.name + "/single"}
}

// carry returns what a client of the tenant carries now.
func (t *tenant) carry(consumes bool) *Credential {
	t.mu.Lock()
	defer t.mu.Unlock()
	if consumes {
		return t.consumer
	}
	return t.producer
}

// replace has the tenant's clients carry another credential from now on, and returns the one
// before.
func (t *tenant) replace(consumes bool, by *Credential) (before *Credential) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if consumes {
		before, t.consumer = t.consumer, by
	} else {
		before, t.producer = t.producer, by
	}
	return before
}

// keepEnded keeps a credential that has ended.
func (t *tenant) keepEnded(c *Credential) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = append(t.ended[max(0, len(t.ended)-keptEnded+1):], c)
}

// held keeps the leases of jobs, for others to try.
func (t *tenant) held(jobs []*belfryv1.Job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range jobs {
		t.leases = append(t.leases[max(0, len(t.leases)-keptEnded+1):], j.GetLease())
	}
}

// oneOf returns one of a list at random, the zero value of an empty one.
func oneOf[T any](c *Client, all []T) (one T) {
	if len(all) > 0 {
		one = all[c.Rand.IntN(len(all))]
	}
	return one
}

// access has tenants that share a secured cluster, and callers without a valid token.
func access() Workload {
	tenants := []*tenant{newTenant("tenant-a"), newTenant("tenant-b")}
	of := func(c *Client) *tenant { return tenants[hash(c.Name)%2] }
	w := Workload{
		Name: "access", NeedsSecrets: true,
		What: "two tenants with tokens and quotas of their own, both of which are changed meanwhile, beside callers " +
			"without a token, with a foreign, forged, expired or deleted one, and with the other tenant's",
		Prepare: func(ctx context.Context, c *Client) error {
			var problems []error
			for _, t := range tenants {
				problems = append(problems, c.makeTenant(ctx, t))
			}
			return errors.Join(problems...)
		},
		Roles: []Role{
			{"producer", 6, func(ctx context.Context, c *Client) { c.produce(ctx, of(c)) }},
			{"consumer", 4, func(ctx context.Context, c *Client) { c.consume(ctx, of(c)) }},
			{"intruder", 3, func(ctx context.Context, c *Client) { c.trespass(ctx, of(c), tenants) }},
			{"rotator", 2, func(ctx context.Context, c *Client) { c.rotate(ctx, of(c)) }},
			{"landlord", 1, func(ctx context.Context, c *Client) {
				if pause(ctx, c.between(time.Second, 4*time.Second)) {
					_ = c.limit(ctx, oneOf(c, tenants), c.oneIn(2)) // what fails is in the history
				}
			}},
		},
	}
	for _, t := range tenants {
		w.Queues = append(w.Queues, t.queues...)
	}
	return w
}

// makeTenant makes the queues of a tenant, its quota and its first tokens.
func (c *Client) makeTenant(ctx context.Context, t *tenant) error {
	for i, queue := range t.queues {
		if err := c.ensureQueue(ctx, queue, uint32(3-i)); err != nil { //nolint:gosec // three
			return err
		}
	}
	for _, consumes := range []bool{false, true} {
		made, err := c.ensureToken(ctx, t.scopes(consumes))
		if err != nil {
			return err
		}
		t.replace(consumes, made)
	}
	return c.limit(ctx, t, false)
}

// ensureToken makes a token, through whatever happens meanwhile.
func (c *Client) ensureToken(ctx context.Context, scopes []string) (*Credential, error) {
	for range 20 {
		made, o := c.createToken(ctx, &belfryv1.CreateTokenRequest{Scopes: scopes, About: c.Name})
		if o.OK() {
			return made, nil
		}
		if !pause(ctx, 500*time.Millisecond) {
			return nil, context.Cause(ctx)
		}
	}
	return nil, errors.New("a token cannot be made")
}

// limit sets the quota of a tenant, high or low, and repeats that until it holds in every shard.
func (c *Client) limit(ctx context.Context, t *tenant, low bool) error {
	r := &belfryv1.SetNamespaceRequest{
		Name: t.name, RequestId: c.requestID(), MaxJobs: proto.Uint64(quotaJobsHigh), MaxBytes: proto.Uint64(quotaBytesHigh),
		MaxInFlight: proto.Uint64(quotaLeasesHigh), PutsPerSecond: proto.Uint64(quotaRateHigh),
	}
	if low {
		r.MaxJobs, r.MaxBytes, r.MaxInFlight, r.PutsPerSecond = proto.Uint64(quotaJobsLow), proto.Uint64(quotaBytesLow),
			proto.Uint64(quotaLeasesLow), proto.Uint64(quotaRateLow)
	}
	for range 20 {
		answer, o := c.setNamespace(ctx, r)
		if o.OK() && len(answer.GetNamespace().GetPendingShards()) == 0 {
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("the quota of %s does not hold", t.name)
}

// produce puts jobs for a tenant, one or many at once; it waits a moment while the tenant is over
// its quota.
func (c *Client) produce(ctx context.Context, t *tenant) {
	c.credential = t.carry(false)
	queue := oneOf(c, t.queues)
	if c.oneIn(3) {
		r := c.newPut(queue)
		r.RequestId = c.requestID()
		if _, o := c.put(ctx, r); o.Reason == belfryv1.Reason_REASON_QUOTA {
			pause(ctx, c.between(0, 100*time.Millisecond))
		}
		return
	}
	batch := &belfryv1.PutBatchRequest{RequestId: c.requestID()}
	for range 1 + c.Rand.IntN(tenantBatchMost) {
		r := c.newPut(queue)
		r.RequestId = ""
		batch.Jobs = append(batch.Jobs, r)
	}
	if _, o := c.putBatch(ctx, batch); !o.OK() {
		pause(ctx, c.between(0, 100*time.Millisecond))
	}
}

// consume takes jobs of a tenant and ends them, some of them late, so that leases are used up now
// and then.
func (c *Client) consume(ctx context.Context, t *tenant) {
	c.credential = t.carry(true)
	r := &belfryv1.ReserveRequest{Queues: []string{oneOf(c, t.queues)}, MaxJobs: 1 + c.Rand.Uint32N(10),
		RequestId: c.requestID()}
	if c.oneIn(3) {
		r.Queues = t.queues
	}
	if c.oneIn(2) {
		r.Wait = durationpb.New(c.between(0, waitMost/2))
	}
	answer, _ := c.reserve(ctx, r)
	jobs := answer.GetJobs()
	t.held(jobs)
	if len(jobs) == 0 || !pause(ctx, c.between(0, 150*time.Millisecond)) {
		return
	}
	c.credential = t.carry(true)
	var leases []string
	for _, j := range jobs {
		if c.oneIn(20) {
			continue // its lease lapses
		}
		leases = append(leases, j.GetLease())
	}
	if len(leases) > 0 {
		c.ackBatch(ctx, &belfryv1.AckBatchRequest{Leases: leases, RequestId: c.requestID()})
	}
}

// rotate replaces a token of a tenant while the tenant's clients use it: it makes another, and ends
// the one before after a moment, at once or with a delay. What has ended is tried at the node that
// ended it, which knows. Some tokens end by themselves.
func (c *Client) rotate(ctx context.Context, t *tenant) {
	if !pause(ctx, c.between(200*time.Millisecond, 2*time.Second)) {
		return
	}
	c.credential = nil
	consumes := c.oneIn(2)
	if c.oneIn(3) {
		c.passing(ctx, t, consumes)
		return
	}
	made, o := c.createToken(ctx, &belfryv1.CreateTokenRequest{Scopes: t.scopes(consumes), About: c.Name})
	if !o.OK() {
		return
	}
	if !pause(ctx, time.Second) { // the others have to hear of it
		return
	}
	before := t.replace(consumes, made)
	pause(ctx, c.between(0, time.Second))
	r := &belfryv1.DeleteTokenRequest{Id: before.ID}
	if c.oneIn(4) {
		r.After = durationpb.New(c.between(0, time.Second))
	}
	for {
		at := c.node
		o := c.deleteToken(ctx, r)
		t.keepEnded(before)
		if o.OK() {
			c.Ask(at)
			c.credential = before
			c.tryOwn(ctx, t)
			return
		}
		// a repeat finds that it has ended
		if o.Reason == belfryv1.Reason_REASON_INVALID || !pause(ctx, 200*time.Millisecond) {
			return
		}
	}
}

// passing makes a token that ends by itself after a second, and uses it until it has.
func (c *Client) passing(ctx context.Context, t *tenant, consumes bool) {
	made, o := c.createToken(ctx, &belfryv1.CreateTokenRequest{Scopes: t.scopes(consumes), About: c.Name,
		Ttl: durationpb.New(time.Second)})
	if !o.OK() {
		return
	}
	c.credential = made
	for end := c.history.Now() + 1500*time.Millisecond; c.history.Now() < end && pause(ctx, 100*time.Millisecond); {
		c.tryOwn(ctx, t)
	}
	t.keepEnded(made)
}

// tryOwn does what the client's credential allows, or allowed.
func (c *Client) tryOwn(ctx context.Context, t *tenant) {
	c.put(ctx, c.tenantPut(oneOf(c, t.queues)))
	c.reserve(ctx, &belfryv1.ReserveRequest{Queues: []string{oneOf(c, t.queues)}, MaxJobs: 1, RequestId: c.requestID()})
}

// tenantPut returns a small put that can be found in the log.
func (c *Client) tenantPut(queue string) *belfryv1.PutRequest {
	return &belfryv1.PutRequest{Queue: queue, Body: &belfryv1.PutRequest_Data{Data: c.body(8)}, RequestId: c.requestID(),
		Ttr: durationpb.New(2 * time.Second)}
}

// trespass tries with some credential what that does not allow, on a tenant's queues.
func (c *Client) trespass(ctx context.Context, own *tenant, tenants []*tenant) {
	victim := tenants[slices.IndexFunc(tenants, func(t *tenant) bool { return t != own })]
	c.credential = c.unfit(own, victim)
	pause(ctx, c.between(0, 50*time.Millisecond))
	queue := oneOf(c, victim.queues)
	victim.mu.Lock()
	lease := oneOf(c, victim.leases)
	victim.mu.Unlock()
	switch c.Rand.IntN(12) {
	case 0:
		c.reserve(ctx, &belfryv1.ReserveRequest{Queues: []string{oneOf(c, own.queues), queue}, MaxJobs: 2,
			RequestId: c.requestID()})
	case 1:
		c.reserve(ctx, &belfryv1.ReserveRequest{Queues: []string{queue}, MaxJobs: 5,
			Wait: durationpb.New(c.between(0, time.Second)), RequestId: c.requestID()})
	case 2, 3: // each entry of a batch by itself
		batch := &belfryv1.PutBatchRequest{RequestId: c.requestID()}
		for range 1 + c.Rand.IntN(4) {
			r := c.tenantPut(oneOf(c, append(slices.Clone(own.queues), victim.queues...)))
			r.RequestId = ""
			batch.Jobs = append(batch.Jobs, r)
		}
		c.putBatch(ctx, batch)
	case 4, 5:
		if lease != "" {
			c.ackAs(ctx, &belfryv1.AckRequest{Lease: lease, RequestId: c.requestID()})
			c.release(ctx, lease, 0)
		}
	case 6:
		c.list(ctx, &belfryv1.ListRequest{Queue: queue, State: belfryv1.JobState_JOB_STATE_DELAYED, PageSize: 5})
		c.getQueue(ctx, queue)
	case 7:
		c.purgeQueue(ctx, &belfryv1.PurgeQueueRequest{Queue: queue, Max: 3, RequestId: c.requestID()})
	case 8:
		c.createToken(ctx, &belfryv1.CreateTokenRequest{Scopes: []string{"admin:*"}, About: c.Name})
	case 9:
		c.setNamespace(ctx, &belfryv1.SetNamespaceRequest{Name: victim.name, MaxJobs: proto.Uint64(0),
			RequestId: c.requestID()})
	default:
		c.put(ctx, c.tenantPut(queue))
	}
}

// unfit returns a credential that does not fit the victim's queues: none, an invented one, that of
// another tenant, or one that has ended.
func (c *Client) unfit(own, victim *tenant) *Credential {
	victim.mu.Lock()
	ended := oneOf(c, victim.ended)
	victim.mu.Unlock()
	switch c.Rand.IntN(8) {
	case 0:
		return &Credential{}
	case 1: // well formed, but of no tenant
		return c.foreign()
	case 2: // the id of a good one, and another's secret
		good := victim.carry(c.oneIn(2))
		forged := *c.foreign()
		forged.Text, forged.ID, forged.Forged = "belfry_"+good.ID+forged.Text[len("belfry_")+len(forged.ID):], good.ID, true
		return &forged
	case 3: // a root token that was replaced
		for _, r := range c.target.Secrets.Roots() {
			if r.Ended != 0 {
				return &Credential{Token: r.Token}
			}
		}
		return own.carry(true)
	case 4, 5:
		return own.carry(c.oneIn(2))
	default:
		if ended == nil {
			return own.carry(false)
		}
		return ended
	}
}

// foreign returns a token as another cluster may have made it.
func (c *Client) foreign() *Credential {
	id, secret := make([]byte, 10), make([]byte, 32)
	for _, b := range [][]byte{id, secret} {
		for i := range b {
			b[i] = byte(c.Rand.Uint32())
		}
	}
	name := strings.ToLower(base32.StdEncoding.EncodeToString(id))
	return &Credential{Token: lab.Token{ID: name, Text: "belfry_" + name + "_" +
		base64.RawURLEncoding.EncodeToString(secret)}}
}
