package mirrortrial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/cmd/belfry/processtest"
	"github.com/belfrydb/belfry/mirror"
)

// process is one `belfry mirror …` that runs.
type process struct {
	command *exec.Cmd
	out     bytes.Buffer
	said    saying
	ended   chan struct{} // closed when it has ended, after err was set
	err     error
}

// saying is what a process writes. Others may look meanwhile.
type saying struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *saying) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *saying) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// mirrorArgs completes the arguments of a command of `mirror`.
func (s *stage) mirrorArgs(q *queue, verb string, more ...string) []string {
	return append([]string{"mirror", verb, s.redis.URL() + "?client_name=belfry-mirror", "--queue", q.name, "--server",
		s.server.URL()}, more...)
}

// run starts the command. It is killed with the test at the latest.
func (s *stage) run(args ...string) *process {
	path, err := program.Path()
	if err != nil {
		s.t.Error(err)
	}
	p := &process{command: exec.CommandContext(s.t.Context(), path, args...), ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = &p.out, &p.said
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.err = p.command.Start(); p.err != nil {
		s.t.Error(p.err)
		close(p.ended)
		return p
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	return p
}

// signal sends a signal and waits for the end.
func (p *process) signal(signal syscall.Signal) {
	if p.command.Process != nil {
		_ = p.command.Process.Signal(signal) // it may have ended
	}
	<-p.ended
}

// runs reports whether the process has not ended.
func (p *process) runs() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// tail is the last of what the process wrote to standard error.
func (p *process) tail() string { return processtest.Tail(p.said.String(), 5) }

// importAll brings over what is left, without other programs in the way.
func (s *stage) importAll(q *queue, more ...string) mirror.ImportCounts {
	s.t.Helper()
	p := s.run(s.mirrorArgs(q, "import", append(more, "-o", "json")...)...)
	<-p.ended
	var counts mirror.ImportCounts
	if p.err != nil {
		s.t.Fatalf("the import of %s ended with %v:\n%s", q.name, p.err, p.tail())
	}
	if err := json.Unmarshal(p.out.Bytes(), &counts); err != nil {
		s.t.Fatalf("the import of %s wrote %q: %v", q.name, p.out.String(), err)
	}
	return counts
}

// killing starts commands and kills them, one after the other for each queue.
type killing struct {
	*stage
	left atomic.Int64 // kills
	args func(q *queue) []string
	// mark is the key that has what a killed command has begun and not finished.
	mark string
	// later is called after each kill, done when a command ended by itself, as it should. Both may be
	// nil.
	later func(ctx context.Context, q *queue)
	done  func(ctx context.Context, q *queue)

	mu      sync.Mutex
	kills   int
	hits    int // of them found something begun
	begun   int64
	endings map[string]int // of commands that ended by themselves
}

const (
	// early is the part of commands that are killed before they do anything.
	early      = 0.1
	earlyMax   = 1500 * time.Millisecond
	fencePause = 2 * time.Millisecond
)

// run kills until all is done, and shakes Redis meanwhile.
func (k *killing) run(kills int) {
	k.left.Store(int64(kills))
	k.endings = map[string]int{}
	all := make(chan struct{})
	var running sync.WaitGroup
	for _, q := range k.queues {
		running.Go(func() {
			for k.left.Add(-1) >= 0 && k.t.Context().Err() == nil {
				k.one(k.t.Context(), q)
			}
		})
	}
	go func() {
		running.Wait()
		close(all)
	}()
	k.shake(rand.New(rand.NewPCG(rand.Uint64(), 0)), all)
}

// shake cuts connections to Redis, restarts and freezes it, by turns, until a channel is closed,
// and at least once each.
func (s *stage) shake(random *rand.Rand, until <-chan struct{}) {
	s.t.Helper()
	faults := []func(){
		func() { s.redis.CutClients() },
		s.redis.Restart, // killed
		func() {
			s.redis.Pause()
			waitFor(s.t.Context(), time.Duration(random.Int64N(int64(time.Second))))
			s.redis.Resume()
		},
		func() { s.redis.CutClients() },
		func() {
			s.redis.Stop()
			s.redis.Restart()
		},
	}
	for n := 0; ; n++ {
		alarm := time.NewTimer(time.Second/2 + time.Duration(random.Int64N(int64(2*time.Second))))
		select {
		case <-until:
			if n >= len(faults) {
				return
			}
		case <-alarm.C:
		}
		faults[n%len(faults)]()
	}
}

// fence is the last that Redis has seen of a queue; empty if there is none, or Redis does not
// answer.
func (s *stage) fence(ctx context.Context, q *queue) string {
	return s.rdb.HGet(ctx, q.key("belfry_mirror"), "fence").Val()
}

// fenceBefore is fence of a Redis that may be away for a moment: what is taken for the fence of one
// process must not be its predecessor's.
func (s *stage) fenceBefore(ctx context.Context, q *queue) string {
	for {
		fence, err := s.rdb.HGet(ctx, q.key("belfry_mirror"), "fence").Result()
		if err == nil || errors.Is(err, redis.Nil) || ctx.Err() != nil {
			return fence
		}
		waitFor(ctx, lookPause)
	}
}

// one starts a command, kills it at a moment when it has the hold, and notes what it left behind. A
// command that ends by itself is no kill.
func (k *killing) one(ctx context.Context, q *queue) {
	before := k.fenceBefore(ctx, q)
	p := k.stage.run(append(k.args(q), "--hold", "1s")...) // the next has to wait for as long
	defer p.signal(syscall.SIGKILL)
	tick := time.NewTicker(fencePause)
	defer tick.Stop()
	alarm := time.NewTimer(waitMax)
	defer alarm.Stop()
	if rand.Float64() < early {
		alarm.Reset(rand.N(earlyMax))
	}
	for has := false; ; {
		select {
		case <-p.ended:
			k.ended(ctx, q, p, has)
			return
		case <-alarm.C:
			p.signal(syscall.SIGKILL)
			k.killed(ctx, q)
			return
		case <-tick.C:
			if now := k.fence(ctx, q); !has && now != "" && now != before {
				has = true
				alarm.Reset(rand.N(time.Duration(rand.Int64N(int64(400*time.Millisecond))) + 1)) // short ones more often
			}
		}
	}
}

// killed notes what a killed command left behind.
func (k *killing) killed(ctx context.Context, q *queue) {
	begun, err := k.size(ctx, q)
	k.mu.Lock()
	k.kills++
	if err == nil && begun > 0 {
		k.hits++
		k.begun += begun
	}
	k.mu.Unlock()
	if k.later != nil {
		k.later(ctx, q)
	}
}

// size is how much a killed command has begun and not finished.
func (k *killing) size(ctx context.Context, q *queue) (int64, error) {
	if q.source != "" {
		return k.rdb.HLen(ctx, q.key(k.mark)).Result()
	}
	sizes, err := k.sizes(ctx, q)
	return sizes[strings.TrimPrefix(k.mark, "belfry_")], err
}

// ended notes that a command ended by itself.
func (k *killing) ended(ctx context.Context, q *queue, p *process, has bool) {
	k.left.Add(1)
	if p.err == nil && k.done != nil {
		k.done(ctx, q)
		return
	}
	text, known := ending("", p, has)
	if p.err != nil && !known {
		k.t.Errorf("%s: a command ended with %q", q.name, text)
	}
	k.mu.Lock()
	k.endings[text]++
	k.mu.Unlock()
}

// print says what the kills did.
func (k *killing) print() {
	k.t.Helper()
	k.t.Logf("%d kills, %d of them in the middle of something: %d entries", k.kills, k.hits, k.begun)
	for text, n := range k.endings {
		k.t.Logf("%d commands ended with %q", n, text)
	}
}
