package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/rpc/fault"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

const (
	// overrunners go on side by side, spread over the nodes, until each was refused overrunRefusals
	// times.
	overrunners     = 12
	overrunRefusals = 3
	// overrunTries is how often one tries at most.
	overrunTries = 300
	// quotaHeld is the end of what is said of a quota that held.
	quotaHeld = "it has no more than it may"
	outOfIt   = "429 QUOTA"
	fullJobs  = `{"queue":"rent-full/orders","text":"the body of a job"`
)

// overrun is an attempt of a tenant to have more of its namespace than the quota.
type overrun struct {
	name string
	set  *belfryv1.SetNamespaceRequest // its quota; the namespace is the tenant's own
	want string                        // the reasons of the refusals
	// one makes a call; i is its number among all. What it gets counts as refused if it is an error.
	one func(t *tenant, node, i int) error
	// most is what a batch has of what is limited: so much more each shard may have.
	most uint64
	// used is what counts, of what the namespace has and what the calls did.
	used func(t *tenant, n *belfryv1.GetNamespaceResponse) (used, limit uint64)
}

// tenant is the attacker of one namespace.
type tenant struct {
	ctx   context.Context //nolint:containedctx // of the test
	space string
	nodes []belfryv1connect.QueueServiceClient
	sdk   *client.Client
	made  atomic.Int64 // jobs that were made
	ids   sync.Map     // the request ids under which jobs were made
	began time.Time
}

func (t *tenant) queue(name string) string { return t.space + "/" + name }

// put makes jobs in a batch of its own, and again as long as the node has not heard of the queue
// yet.
func (t *tenant) put(node int, jobs ...*belfryv1.PutRequest) error {
	for {
		res, err := t.nodes[node].PutBatch(t.ctx, &belfryv1.PutBatchRequest{Jobs: jobs})
		var again []*belfryv1.PutRequest
		for i, r := range res.GetResults() {
			switch reason := r.GetError().GetReason(); {
			case r.GetPut().GetCreated():
				t.made.Add(1)
			case reason == belfryv1.Reason_REASON_QUEUE_CHANGED:
				again = append(again, jobs[i])
			case err == nil:
				err = &fault.Error{Reason: reason}
			}
		}
		if jobs = again; err != nil || len(jobs) == 0 || t.ctx.Err() != nil {
			return err
		}
	}
}

// jobsUsed counts the jobs that there are, which are at least those that the tenant was told of.
func jobsUsed(t *tenant, n *belfryv1.GetNamespaceResponse) (used, limit uint64) {
	return max(n.GetJobs(), uint64(t.made.Load())), n.GetNamespace().GetMaxJobs() //nolint:gosec // a count
}

// overruns are the ways to exceed each limit.
func overruns() []overrun {
	jobs := &belfryv1.SetNamespaceRequest{MaxJobs: proto.Uint64(40)}
	many := func(queue string, n, bytes int) (all []*belfryv1.PutRequest) {
		for range n {
			all = append(all, &belfryv1.PutRequest{Queue: queue, Body: &belfryv1.PutRequest_Data{Data: make([]byte, bytes)}})
		}
		return all
	}
	return []overrun{
		{"jobs one by one", jobs, "QUOTA", func(t *tenant, node, _ int) error {
			_, err := t.nodes[node].Put(t.ctx, many(t.queue("wide"), 1, 1)[0])
			return err
		}, 1, jobsUsed},
		{"jobs in batches", jobs, "QUOTA", func(t *tenant, node, _ int) error {
			return t.put(node, many(t.queue("wide"), 10, 1)...)
		}, 10, jobsUsed},
		{"jobs in sessions of the SDK", jobs, "QUOTA", func(t *tenant, _, _ int) error {
			_, err := t.sdk.Put(t.ctx, t.queue("wide"), []byte("x"))
			return err
		}, overrunners, jobsUsed},
		{"jobs in as many queues", jobs, "QUOTA", func(t *tenant, node, i int) error {
			return t.put(node, many(t.queue(fmt.Sprintf("q%d", i)), 1, 1)...)
		}, 1, func(t *tenant, n *belfryv1.GetNamespaceResponse) (used, limit uint64) {
			used, limit = jobsUsed(t, n)
			// but for the one that was there: one whose put was refused is not made
			return max(used, uint64(n.GetQueues())-1), limit
		}},
		{"jobs by request ids that come again and again", jobs, "QUOTA", func(t *tenant, node, i int) error {
			id := fmt.Sprintf("r-%d", i%60)
			_, err := t.nodes[node].Put(t.ctx, &belfryv1.PutRequest{Queue: t.queue("wide"), RequestId: id})
			if err == nil {
				t.ids.Store(id, true)
			} else if _, made := t.ids.Load(id); made {
				return fmt.Errorf("a repeat of what was done is refused: %w", err)
			}
			return err
		}, 1, func(t *tenant, n *belfryv1.GetNamespaceResponse) (used, limit uint64) {
			ids := 0
			t.ids.Range(func(any, any) bool { ids++; return true })
			used, limit = jobsUsed(t, n)
			return used + (used - min(used, uint64(ids))),
				limit //nolint:gosec // a job is of one request; what is beyond counts twice
		}},
		{"bytes one by one", &belfryv1.SetNamespaceRequest{MaxBytes: proto.Uint64(64 << 10)}, "QUOTA",
			func(t *tenant, node, _ int) error {
				return t.put(node, many(t.queue("wide"), 1, 4000)...)
			}, 4 << 10, bytesUsed},
		{"bytes in batches", &belfryv1.SetNamespaceRequest{MaxBytes: proto.Uint64(64 << 10)}, "QUOTA",
			func(t *tenant, node, _ int) error {
				return t.put(node, many(t.queue("wide"), 8, 4000)...)
			}, 32 << 10, bytesUsed},
		{"jobs in flight, with and without a wait", &belfryv1.SetNamespaceRequest{MaxInFlight: proto.Uint64(10)}, "QUOTA",
			holdJobs, 5,
			func(_ *tenant, n *belfryv1.GetNamespaceResponse) (used, limit uint64) {
				return n.GetInFlight(), n.GetNamespace().GetMaxInFlight()
			}},
		{"puts a second", &belfryv1.SetNamespaceRequest{PutsPerSecond: proto.Uint64(5)}, "RATE_LIMITED",
			func(t *tenant, node, _ int) error {
				return t.put(node, many(t.queue("wide"), 1, 1)...)
			}, 1, func(t *tenant, n *belfryv1.GetNamespaceResponse) (used, limit uint64) {
				seconds := uint64(time.Since(t.began)/time.Second) + 1
				// Each shard has a second's worth of its share at once, and again when the share has gone
				// elsewhere and come back.
				return n.GetJobs(), n.GetNamespace().GetPutsPerSecond() * (2*seconds + 1)
			}},
	}
}

func bytesUsed(_ *tenant, n *belfryv1.GetNamespaceResponse) (used, limit uint64) {
	return n.GetBytes(), n.GetNamespace().GetMaxBytes()
}

// holdJobs reserves jobs, of which there are enough, and never gives one back. Nothing is a
// refusal, too.
func holdJobs(t *tenant, node, i int) error {
	queues := []string{t.queue("wide"), t.queue("one")}[i%2:]
	if i < 100 {
		if err := t.put(node, &belfryv1.PutRequest{Queue: queues[0]}); err != nil {
			return fmt.Errorf("putting what is to be held: %w", err)
		}
	}
	req := &belfryv1.ReserveRequest{Queues: queues, MaxJobs: 5, Ttr: durationpb.New(time.Hour)}
	if i%3 == 0 {
		req.Wait = durationpb.New(300 * time.Millisecond)
	}
	res, err := t.nodes[node].Reserve(t.ctx, req)
	if req.GetWait() != nil && err != nil {
		return fmt.Errorf("a poll that waits is refused: %w", err)
	}
	if err == nil && len(res.GetJobs()) == 0 && i >= 100 {
		return errNothing
	}
	return err
}

// errNothing says that a call got nothing, which it was not told the reason of.
var errNothing = errors.New("nothing")

// quotaAttacks overrun quotas, and look for a way around one that is used up.
func quotaAttacks(s *siege) (all []attack) {
	spaces := []string{"rent-full"}
	for i, o := range overruns() {
		space := fmt.Sprintf("rent-%d", i)
		spaces = append(spaces, space)
		all = append(all, attack{"beyond a quota: " + o.name, func(s *siege) string {
			return s.overrun(space, o)
		}, o.want + ": " + quotaHeld})
	}
	s.rent(spaces)
	return append(append(all, aroundQuota()...), quotaAdmins()...)
}

// rent makes the token of a tenant, and a namespace that is full.
func (s *siege) rent(spaces []string) {
	s.t.Helper()
	file := filepath.Join(s.dir, "rent.token")
	args := []string{"token", "create", "--about", "rent", "--out", file}
	for _, space := range spaces {
		args = append(args, "--scope", "put,consume:"+space+"/*")
	}
	if got := s.procs[0].run(launcher, args...); got.Code != 0 {
		s.t.Fatalf("making a token: %+v", got)
	}
	s.tokens["rent"] = s.readToken(file)
	for _, p := range s.procs {
		await(s.t, "every node to know the tenant", func() bool {
			return s.status(p, "rent", http.MethodGet, "/q/rent-full/nothing") == http.StatusNoContent
		})
	}
	if err := s.limit(&belfryv1.SetNamespaceRequest{Name: "rent-full", MaxJobs: proto.Uint64(1)}); err != nil {
		s.t.Fatal(err)
	}
	// the first may be refused, too, while the machine is too busy for a share to come within a second
	for _, answer := range []string{"200 ", outOfIt} {
		await(s.t, "a put to be answered "+answer, func() bool {
			return s.ask(s.procs[0], "rent", http.MethodPost, "/v1/put", fullJobs+`}`) == answer
		})
	}
}

// limit sets a quota, which holds when it returns.
func (s *siege) limit(set *belfryv1.SetNamespaceRequest) error {
	caller, url := s.procs[0].caller()
	admin := belfryv1connect.NewAdminServiceClient(caller, url)
	for {
		res, err := admin.SetNamespace(s.t.Context(), set)
		if err != nil || len(res.GetNamespace().GetPendingShards()) == 0 {
			return err
		}
	}
}

// overrun tries to exceed a quota through all nodes at once, and returns the reasons of the
// refusals, and what the namespace has then.
func (s *siege) overrun(space string, o overrun) string {
	set := proto.CloneOf(o.set)
	set.Name = space
	if err := s.limit(set); err != nil {
		return err.Error()
	}
	caller, url := s.procs[0].caller()
	admin := belfryv1connect.NewAdminServiceClient(caller, url)
	if _, err := admin.CreateQueue(s.t.Context(), &belfryv1.CreateQueueRequest{
		Queue: space + "/wide", Partitions: 2,
	}); err != nil {
		return err.Error()
	}
	t, end, err := s.tenant(space)
	if err != nil {
		return err.Error()
	}
	defer end()
	reasons := t.flood(o.one)
	n, err := admin.GetNamespace(s.t.Context(), &belfryv1.GetNamespaceRequest{Name: space})
	if err != nil {
		return err.Error()
	}
	used, limit := o.used(t, n)
	told, shards := quotaHeld, uint64(len(s.members.GetShards()))
	if used > limit+shards*o.most || used == 0 {
		told = "it has too much, or nothing"
	}
	return fmt.Sprintf("%s: %s: %d of %d", strings.Join(reasons, " "), told, used, limit)
}

// tenant returns clients of all nodes with the tenant's token.
func (s *siege) tenant(space string) (t *tenant, end func(), err error) {
	t = &tenant{ctx: s.t.Context(), space: space, began: time.Now()}
	var urls []string
	transport := &http.Transport{TLSClientConfig: believing(s.t, s.procs[0].ca), ForceAttemptHTTP2: true}
	for _, p := range s.procs {
		urls = append(urls, "https://"+p.address)
		t.nodes = append(t.nodes,
			belfryv1connect.NewQueueServiceClient(&http.Client{Transport: cli.WithToken(s.tokens["rent"], transport)},
				urls[len(urls)-1]))
	}
	if t.sdk, err = client.New(strings.Join(urls, ","), client.WithTLS(believing(s.t, s.procs[0].ca)),
		client.WithToken(s.tokens["rent"])); err != nil {
		return nil, nil, err
	}
	return t, func() {
		transport.CloseIdleConnections()
		_ = t.sdk.Close()
	}, nil
}

// flood makes a call over and over, side by side, until all were refused when something had been
// let in, and returns the reasons.
func (t *tenant) flood(one func(t *tenant, node, i int) error) []string {
	var group sync.WaitGroup
	var calls atomic.Int64
	var mu sync.Mutex
	var some atomic.Bool
	reasons := map[string]bool{}
	for node := range overrunners {
		group.Go(func() {
			for tries, refused := 0, 0; tries < overrunTries && refused < overrunRefusals; tries++ {
				err := one(t, node%len(t.nodes), int(calls.Add(1)-1))
				if err == nil {
					some.Store(true)
					continue
				}
				if some.Load() {
					refused++
				}
				mu.Lock()
				reasons[reasonFor(err)] = true
				mu.Unlock()
			}
		})
	}
	group.Wait()
	delete(reasons, "")
	return slices.Sorted(func(yield func(string) bool) {
		for reason := range reasons {
			if !yield(reason) {
				return
			}
		}
	})
}

// reasonFor returns the reason of an error, "" for one that has none to have, and the whole of what
// should not be.
func reasonFor(err error) string {
	var own *client.Error
	var f *fault.Error
	wire, isWire := fault.FromConnect(err)
	switch {
	case errors.Is(err, errNothing):
		return ""
	case strings.Contains(err.Error(), " is refused: "), strings.Contains(err.Error(), "putting "):
		return err.Error()
	case errors.As(err, &own):
		return string(own.Reason)
	case isWire:
		return strings.TrimPrefix(wire.Reason.String(), "REASON_")
	case errors.As(err, &f):
		return strings.TrimPrefix(f.Reason.String(), "REASON_")
	default:
		return err.Error()
	}
}

// aroundQuota names a namespace that is full in other ways.
func aroundQuota() []attack {
	put := func(name, queue, want string) attack {
		return calling("a full namespace "+name, "rent", "/v1/put", `{"queue":"`+queue+`","text":"the body of a job"}`, want)
	}
	return []attack{
		put("as it is", "rent-full/orders", outOfIt),
		put("by another queue", "rent-full/others", outOfIt),
		put("with an escaped slash", `rent-full\u002forders`, outOfIt),
		put("in upper case", "RENT-FULL/orders", noScope),
		put("with a slash before it", "/rent-full/orders", "400 INVALID"),
		put("with two slashes", "rent-full//orders", "400 INVALID"),
		put("with a slash behind it", "rent-full/orders/", "400 INVALID"),
		put("with a third part", "rent-full/orders/more", "400 INVALID"),
		put("without a queue", "rent-full", noScope),
		put("that is empty", "/orders", "400 INVALID"),
		put("that is a dot", "./orders", "400 INVALID"),
		put("by a way back", "rent-full/../shop/orders", "400 INVALID"),
		put("with a slash of a URL", "rent-full%2forders", "400 INVALID"),
		put("in wide letters", "ｒent-full/orders", "400 INVALID"),
		put("with a space", " rent-full/orders", "400 INVALID"),
		put("with a NUL", `rent-full\u0000/orders`, "400 INVALID"),
		calling("a full namespace by a raw put", "rent", "/q/rent-full/orders", "x", outOfIt),
		calling("a full namespace by a raw put with a slash of a URL", "rent", "/q/rent-full%2forders", "x", outOfIt),
		calling("a full namespace by a raw put in upper case", "rent", "/q/RENT-FULL/orders", "x", noScope),
		calling("a full namespace by a raw put with a slash before it", "rent", "/q//rent-full/orders", "x", "400 INVALID"),
		calling("a full namespace by a raw put that names another queue as well", "rent",
			"/q/rent-full/orders?queue=rent-0/orders", "x", "400 INVALID"),
		calling("a full namespace by a job that may come again", "rent", "/v1/put", fullJobs+`,"id":"a","again":true}`,
			outOfIt),
		calling("a full namespace by a job that is far off", "rent", "/v1/put", fullJobs+`,"delay":"8760h"}`, outOfIt),
		calling("a full namespace by the second job of a batch", "rent", "/v1/put-batch",
			`{"jobs":[{"queue":"shop/orders"},`+fullJobs+`}]}`, "FORBIDDEN QUOTA"),
		calling("a full namespace by a request id that was another's", "rent", "/v1/put",
			fullJobs+`,"requestId":"r-1#/rent-0"}`, outOfIt),
	}
}

// quotaAdmins change quotas, or make jobs in other ways, without the scope.
func quotaAdmins() []attack {
	return []attack{
		calling("a quota of one's own", "rent", "/v1/set-namespace", `{"name":"rent-full","maxJobs":0}`, noScope),
		calling("no quota of one's own", "rent", "/v1/delete-namespace", `{"name":"rent-full"}`, noScope),
		calling("a quota by the admin of a namespace's queues", "admin", "/v1/set-namespace", `{"name":"shop","maxJobs":1}`,
			noScope),
		calling("a neighbour's quota", "rent", "/v1/set-namespace", `{"name":"shop","maxJobs":1}`, noScope),
		calling("a look at a neighbour's quota", "rent", "/v1/get-namespace", `{"name":"shop"}`, noScope),
		calling("the list of quotas", "rent", "/v1/list-namespaces", `{}`, noScope),
		calling("a redrive into a full namespace", "rent", "/v1/redrive", `{"queue":"rent-full/orders","max":100}`, noScope),
		calling("queues made in a full namespace", "rent", "/v1/create-queue", `{"queue":"rent-full/more","partitions":2}`,
			noScope),
		calling("a full queue's limits", "rent", "/v1/update-queue",
			`{"queue":"rent-full/orders","settings":{"maxJobs":1000}}`, noScope),
		calling("room made by a purge", "rent", "/v1/purge-queue", `{"queue":"rent-full/orders"}`, noScope),
		calling("a restore into a full namespace", "rent", "/belfry.v1.AdminService/Restore", "\x00\x00\x00\x00\x02{}",
			"FORBIDDEN", "Content-Type", "application/connect+json"),
	}
}
