package clustertrial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

const (
	// mailFull and mailRefused are how many jobs die of each of two causes.
	mailFull, mailRefused = 3000, 2000
	// taskRate is slow enough for a node to be killed before a task ends.
	taskRate = "500"
)

// TestTaskOutlivesItsNodes redrives the dead jobs of one cause while the leader of the catalog, which
// carries the task out, is killed; and those of another cause while all nodes are. Each job is
// redriven once, and no other one is.
func TestTaskOutlivesItsNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2", "n3")
	c.start("n1", "n2", "n3")
	c.awaitHealthy()
	sdk := c.client()
	if _, err := sdk.Admin().CreateQueue(t.Context(), "mail", 2, nil); err != nil {
		t.Fatal(err)
	}
	c.die(sdk, "full", mailFull, "mailbox 17 is full")
	c.die(sdk, "refused", mailRefused, "the server 10.0.0.1 refused")

	ended := make(chan error, 1)
	var out string
	go func() {
		var err error
		out, err = program.Run(t.Context(), "redrive", "mail", "--cause", "mailbox # is full", "--rate", taskRate, "--yes",
			"--server", c.urls(), "-o", "json")
		ended <- err
	}()
	c.awaitTask("the first task to redrive jobs", redriven("mailbox"))
	victim := c.member(c.await("the leader of the catalog", func(s *admin.Cluster) bool {
		return s.Catalog.Leader != ""
	}).Catalog.Leader)
	c.killNode(victim)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	var got struct {
		Task struct {
			Changed uint64 `json:"changed,string"`
		}
	}
	// the last second before the kill may be missing
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Task.Changed == 0 || got.Task.Changed > mailFull {
		t.Errorf("the command printed %s: %v", out, err)
	}
	c.expectMail(sdk, map[client.State]string{"READY": "full", "DEAD": "refused"}, mailFull)

	c.start(victim.name)
	c.awaitHealthy()
	if out, err := program.Run(t.Context(), "redrive", "mail", "--match", "10.0.0.1", "--rate", taskRate, "--yes",
		"--no-wait", "--server", c.urls()); err != nil {
		t.Fatal(out, err)
	}
	c.awaitTask("the second task to redrive jobs", redriven("10.0.0.1"))
	for _, m := range c.members {
		c.killNode(m)
	}
	for _, m := range c.members { // none serves before the others run
		m.server.Launch()
		m.up = true
	}
	c.awaitTask("the second task to end", func(task *belfryv1.Task) bool {
		return redriven("10.0.0.1")(task) && task.GetEndedAt() != nil
	})
	c.expectMail(sdk, map[client.State]string{"READY": ""}, mailFull+mailRefused)
}

// redriven tells a task that redrives jobs with a text in their filter, and has done so.
func redriven(text string) func(*belfryv1.Task) bool {
	return func(task *belfryv1.Task) bool {
		return task.GetAct() == belfryv1.TaskAct_TASK_ACT_REDRIVE && task.GetChanged() > 0 &&
			strings.Contains(task.GetCause()+task.GetText(), text)
	}
}

// urls returns the addresses of all nodes, for the command line.
func (c *cluster) urls() string {
	var urls []string
	for _, m := range c.members {
		urls = append(urls, m.url)
	}
	return strings.Join(urls, ",")
}

// die puts jobs whose ids begin with a word, and makes them dead for a reason.
func (c *cluster) die(sdk *client.Client, word string, jobs int, reason string) {
	c.t.Helper()
	puts := make([]client.Put, jobs)
	for i := range puts {
		puts[i] = client.Put{Queue: "mail", Options: []client.PutOption{client.ID(fmt.Sprintf("%s-%d", word, i))}}
	}
	if _, err := sdk.PutBatch(c.t.Context(), puts); err != nil {
		c.t.Fatal(err)
	}
	for left := jobs; left > 0; {
		held, err := sdk.Reserve(c.t.Context(), client.ReserveOptions{
			Queues: []string{"mail"}, Max: 500, TTR: time.Hour, Wait: time.Minute,
		})
		if err != nil {
			c.t.Fatal(err)
		}
		left -= len(held)
		var nacks sync.WaitGroup
		for _, job := range held {
			nacks.Go(func() {
				if err := job.Nack(c.t.Context(), client.Dead(errors.New(reason))); err != nil {
					c.t.Error(err)
				}
			})
		}
		nacks.Wait()
	}
}

// awaitTask asks the running nodes for the tasks until one is as wanted.
func (c *cluster) awaitTask(what string, yes func(*belfryv1.Task) bool) {
	c.t.Helper()
	var last *belfryv1.ListTasksResponse
	var lastErr error
	c.awaitThat(what, func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		admin := belfryv1connect.NewAdminServiceClient(http.DefaultClient, c.running()[0].url)
		last, lastErr = admin.ListTasks(ctx, &belfryv1.ListTasksRequest{Queue: "mail"})
		for _, task := range last.GetTasks() {
			if yes(task) {
				return true
			}
		}
		return false
	}, func() { c.t.Logf("last seen: %v, %v", last, lastErr) })
}

// expectMail checks that the jobs in each state are those whose ids begin with a word, that there are
// no others, and that so many were redriven in all.
func (c *cluster) expectMail(sdk *client.Client, words map[client.State]string, redriven uint64) {
	c.t.Helper()
	found := 0
	for _, state := range []client.State{"DELAYED", "READY", "RESERVED", "DEAD"} {
		word, some := words[state]
		for job, err := range sdk.List(c.t.Context(), "mail", client.ListOptions{State: state, PageSize: 1000}) {
			if err != nil {
				c.t.Fatal(err)
			}
			if found++; !some || !strings.HasPrefix(job.ID, word) {
				c.t.Fatalf("job %s is %s", job.ID, state)
			}
		}
	}
	queue, err := sdk.Admin().Queue(c.t.Context(), "mail")
	if err != nil || found != mailFull+mailRefused || queue.Totals.Redrives != redriven {
		c.t.Errorf("%d jobs, %d redriven, want %d, %d; %v", found, queue.Totals.Redrives, mailFull+mailRefused, redriven, err)
	}
}
