package clustertrial

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/cmd/belfry/processtest"
)

var (
	fairnessDue   = flag.Int("trial.due", 2000, "due jobs that TestFairness gives the loud tenant")
	fairnessPhase = flag.Duration("trial.quiet", 2*time.Second,
		"how long TestFairness measures each time, with and without the loud tenant")
	fairnessRounds = flag.Int("trial.rounds", 1, "how often TestFairness measures with and without the loud tenant")
	fairnessNodes  = flag.Int("trial.nodes", 1, "nodes of the cluster of TestFairness")
)

const (
	// quietPeriod is the time between two puts of the quiet tenant, quietDelay the delay of its jobs.
	quietPeriod = 100 * time.Millisecond
	quietDelay  = 200 * time.Millisecond
	// fairnessMost is the aim for how many times as late the quiet tenant's jobs are beside the loud
	// one.
	fairnessMost = 2
	// loudVariable has the test program be the loud tenant instead: the addresses, the queue and the
	// number of due jobs, parted by blanks.
	loudVariable = "BELFRY_TRIAL_LOUD"
	// loudCallers take and replace due jobs as fast as they can, every second one loudBatch of them at
	// once.
	loudCallers = 64
	loudBatch   = 100
	// loudNice is how much nicer than the test the loud tenant's process is: in earnest it has
	// machines of its own.
	loudNice = 10
)

// TestFairness has a loud tenant with very many due jobs, which takes and replaces them as fast as
// the cluster lets it, and a quiet one in the same shard, which puts ten jobs a second. It prints
// how late the quiet one's jobs are with and without the other, in turns. It does not run beside
// other trials of this package.
func TestFairness(t *testing.T) {
	var names []string
	for i := range *fairnessNodes {
		names = append(names, fmt.Sprintf("n%d", i+1))
	}
	c := newCluster(t, names...)
	c.start(names...)
	c.awaitHealthyAs(min(factor, len(names)))
	loudQueue := "loud/jobs"
	queue := c.queueBeside(loudQueue)
	loud := startLoud(c, loudQueue)
	ledger, f := processtest.NewLedger(), &figures{trial: "fairness"}
	stop := c.beQuiet(ledger, queue)
	var quietly, beside []processtest.Span
	for range *fairnessRounds {
		quietly = append(quietly, passTime())
		loud.say("go")
		beside = append(beside, passTime())
		loud.say("rest")
	}
	taken := loud.end()
	stop()
	without, with := latenesses(ledger, quietly), latenesses(ledger, beside)
	account, err := ledger.Close()
	if err != nil {
		t.Error(err)
	}
	f.count("nodes", len(names))
	f.count("due jobs of the loud tenant", *fairnessDue)
	f.enter("jobs that it took and replaced", taken/(float64(*fairnessRounds)*fairnessPhase.Seconds()), "/s", nil)
	f.durations("lateness without it", without)
	f.durations("lateness beside it", with)
	for _, share := range []float64{0.5, 0.9, 0.99} {
		f.enter(fmt.Sprintf("p%g beside it to that without", 100*share), float64(with.At(share))/float64(without.At(share)),
			"", []float64{fairnessMost})
	}
	f.account(account)
	f.print(t)
}

// awaitHealthyAs is awaitHealthy for as many voters of each shard as there can be.
func (c *cluster) awaitHealthyAs(voters int) {
	c.t.Helper()
	c.await("a healthy cluster", func(s *admin.Cluster) bool {
		return len(s.Nodes) == len(c.running()) && complete(s, voters) && even(s)
	})
}

// queueBeside returns a queue of another namespace that is in the shard of the given one.
func (c *cluster) queueBeside(loud string) string {
	c.t.Helper()
	shard := c.shardOf(loud)
	for i := 0; ; i++ {
		if name := fmt.Sprintf("quiet/jobs-%d", i); c.shardOf(name) == shard {
			return name
		}
	}
}

// beQuiet puts and takes the quiet tenant's jobs until the function is called that it returns.
func (c *cluster) beQuiet(ledger *processtest.Ledger, queue string) (stop func()) {
	putting, stopPuts := context.WithCancel(c.t.Context())
	consuming, stopAll := context.WithCancel(c.t.Context())
	sdk := c.client()
	var puts, takes sync.WaitGroup
	puts.Go(func() {
		tick := time.NewTicker(quietPeriod)
		defer tick.Stop()
		for putting.Err() == nil {
			puts.Go(func() { ledger.PutJob(c.t.Context(), sdk, queue, quietDelay) })
			select {
			case <-tick.C:
			case <-putting.Done():
			}
		}
	})
	takes.Go(func() { ledger.Consume(consuming, sdk, queue) })
	end := func() {
		stopPuts()
		puts.Wait()
		if err := ledger.Await(c.t.Context()); err != nil && c.t.Context().Err() == nil {
			c.t.Error(err)
		}
		stopAll()
		takes.Wait()
	}
	c.t.Cleanup(func() {
		stopPuts()
		stopAll()
	})
	return end
}

// passTime lets a phase pass, and returns it without its first tenth.
func passTime() processtest.Span {
	from := time.Now().Add(*fairnessPhase / 10)
	rest := time.NewTimer(*fairnessPhase)
	<-rest.C
	return processtest.Span{From: from, Until: time.Now()}
}

func latenesses(ledger *processtest.Ledger, spans []processtest.Span) (all processtest.Durations) {
	for _, span := range spans {
		all = append(all, ledger.Lateness(span)...)
	}
	return all
}

// loudTenant is the process of the loud tenant.
type loudTenant struct {
	t       *testing.T
	command *exec.Cmd
	in      io.WriteCloser
	out     io.Reader
}

// startLoud starts the loud tenant, and returns when its jobs are put.
func startLoud(c *cluster, queue string) *loudTenant {
	c.t.Helper()
	var urls []string
	for _, m := range c.members {
		urls = append(urls, m.url)
	}
	l := &loudTenant{t: c.t, command: exec.CommandContext(c.t.Context(), os.Args[0])}
	l.command.Env = append(os.Environ(),
		fmt.Sprintf("%s=%s %s %d", loudVariable, strings.Join(urls, ","), queue, *fairnessDue))
	l.command.Stderr = os.Stderr
	l.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if l.in, err = l.command.StdinPipe(); err == nil {
		l.out, err = l.command.StdoutPipe()
	}
	if err == nil {
		err = l.command.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = l.command.Process.Kill() }) // it may have ended
	if _, err := fmt.Fscan(l.out, new(string)); err != nil {
		c.t.Fatalf("the loud tenant did not put its jobs: %v", err)
	}
	return l
}

// say has the tenant go or rest.
func (l *loudTenant) say(word string) {
	l.t.Helper()
	if _, err := fmt.Fprintln(l.in, word); err != nil {
		l.t.Fatal(err)
	}
}

// end ends the tenant and returns how many jobs it took.
func (l *loudTenant) end() (taken float64) {
	l.t.Helper()
	if err := l.in.Close(); err != nil {
		l.t.Error(err)
	}
	if _, err := fmt.Fscan(l.out, &taken); err != nil || taken == 0 {
		l.t.Errorf("the loud tenant took %v jobs: %v", taken, err)
	}
	if err := l.command.Wait(); err != nil {
		l.t.Errorf("the loud tenant: %v", err)
	}
	return taken
}

// beLoud is the process of the loud tenant. What it is told to do it reads from standard input, and
// it ends with that.
func beLoud(what string) error {
	var urls, queue string
	var due int
	if _, err := fmt.Sscan(what, &urls, &queue, &due); err != nil {
		return err
	}
	priority, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0) // 20 less the niceness
	if err == nil {
		err = syscall.Setpriority(syscall.PRIO_PROCESS, 0, min(19, 20-priority+loudNice))
	}
	if err != nil {
		return err
	}
	sdk, err := client.New(urls)
	if err != nil {
		return err
	}
	defer sdk.Close()
	ctx := context.Background()
	for left := due; left > 0; left -= 1000 {
		if _, err := sdk.PutBatch(ctx, loudPuts(queue, min(left, 1000))); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	var taken int
	for word := ""; ; {
		if _, err := fmt.Scan(&word); err != nil {
			fmt.Println(taken)
			return nil //nolint:nilerr // the end of what it is told
		}
		if word == "go" {
			n, err := loudUntil(ctx, sdk, queue)
			if err != nil {
				return err
			}
			taken += n
		}
	}
}

// loudPuts returns puts of jobs that are due in a moment, so that they go the way of all that are
// delayed.
func loudPuts(queue string, n int) []client.Put {
	put := client.Put{
		Queue: queue, Body: make([]byte, 100),
		Options: []client.PutOption{client.In(time.Millisecond), client.MaxAttempts(0)},
	}
	return slices.Repeat([]client.Put{put}, n)
}

// loudUntil takes and replaces jobs until the next word comes, and returns how many.
func loudUntil(ctx context.Context, sdk *client.Client, queue string) (taken int, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	var callers sync.WaitGroup
	var mu sync.Mutex
	for i := range loudCallers {
		most := 1 + i%2*(loudBatch-1)
		callers.Go(func() {
			for ctx.Err() == nil {
				n, err := takeAndReplace(ctx, sdk, queue, most)
				mu.Lock()
				taken += n
				mu.Unlock()
				if err != nil && ctx.Err() == nil {
					stop(err)
				}
			}
		})
	}
	_, scanned := fmt.Scan(new(string))
	stop(scanned)
	callers.Wait()
	if cause := context.Cause(ctx); scanned == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return taken, cause
	}
	return taken, nil
}

func takeAndReplace(ctx context.Context, sdk *client.Client, queue string, most int) (taken int, err error) {
	jobs, err := sdk.Reserve(ctx, client.ReserveOptions{Queues: []string{queue}, Max: most})
	if err != nil || len(jobs) == 0 {
		return 0, err
	}
	leases := make([]string, len(jobs))
	for i, job := range jobs {
		leases[i] = job.Lease
	}
	if _, err = sdk.AckBatch(ctx, leases); err == nil {
		_, err = sdk.PutBatch(ctx, loudPuts(queue, len(jobs)))
	}
	return len(jobs), err
}
