package queue

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/belfrydb/belfry/rpc/auth"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/drain"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// Config has what a Service needs. All fields are required.
type Config struct {
	// Router finds the shards of queues.
	Router shardcall.Router
	// Rules are what requests are checked against. The service never changes them.
	Rules *check.Rules
	// Drain ends the polls that wait.
	Drain *drain.Signal
	// Codec reads and writes the binary messages of the fast path.
	Codec codec.Binary
}

// Service answers belfry.v1.QueueService: it is a belfryv1connect.QueueServiceHandler. Every method
// checks its request in full before it proposes a command. The errors of all methods are faults.
// They may be called from any goroutine.
type Service struct {
	router shardcall.Router
	rules  *check.Rules
	drain  *drain.Signal
	codec  codec.Binary
	// polls are the polls over several shards that have a request id.
	polls      attempts
	interrupts interrupts
	// putRotation spreads puts without id over the partitions of a queue. pollRotation says which
	// partition a poll asks first.
	putRotation  atomic.Uint32
	pollRotation rotation
	// puts and acks hold the memory of finished batches of the fast path, for reuse.
	puts, acks sync.Pool
	// searches has a token for each search under way, by shard: each costs a shard about as much as it
	// may.
	searches []chan struct{}
}

// New returns a service.
func New(cfg Config) *Service {
	s := &Service{router: cfg.Router, rules: cfg.Rules, drain: cfg.Drain, codec: cfg.Codec}
	for range cfg.Router.Node.ShardCount() {
		s.searches = append(s.searches, make(chan struct{}, searchesMax))
	}
	return s
}

// Wait waits until every poll has released the jobs that it was granted after its answer, or until
// ctx ends. No poll may begin meanwhile.
func (s *Service) Wait(ctx context.Context) error { return s.polls.wait(ctx) }

// nextInterrupt returns a channel that is closed when a poll that waits must look again.
func (s *Service) nextInterrupt() <-chan struct{} {
	return s.interrupts.next(s.router.Catalog, s.drain.Started)
}

// auditEntries logs a line in the audit log if some entries of a call were refused. Each entry of
// such a call has its own answer.
func (s *Service) auditEntries(ctx context.Context, procedure string, refused auth.RefusedEntries) {
	if refused.Count > 0 {
		s.rules.Authorizer.Failures.AuditEntries(ctx, procedure, refused)
	}
}
