package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/server"
	"github.com/belfrydb/belfry/node"
)

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-deadline.C:
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// ledBy returns queues of which the server leads the home shards, all of which have so many voters.
func ledBy(s *server.Server, voters int) (queues []string) {
	st := s.Status()
	for i := range st.Shards {
		g := &st.Shards[i]
		if !g.Serving || len(g.Voters) != voters {
			continue
		}
		for n := 0; ; n++ {
			if name := fmt.Sprintf("q%d", n); node.ShardOf(name, 0, st.ShardCount) == g.Shard {
				queues = append(queues, name)
				break
			}
		}
	}
	return queues
}

// TestStopAnswersOtherNodes has calls wait at a node that stops, for clients of another node: they
// wait on at the next leader, and get its jobs.
func TestStopAnswersOtherNodes(t *testing.T) {
	cfg := config(t, t.TempDir())
	cfg.NodeID = "a"
	a := start(t, cfg)
	nodes := []*server.Server{a}
	for _, name := range []string{"b", "c"} {
		cfg = config(t, t.TempDir())
		cfg.NodeID, cfg.Join = name, []string{a.GossipAddress()}
		nodes = append(nodes, start(t, cfg))
	}
	var queue string
	eventually(t, "the nodes to lead as many shards each", func() bool { // else leaders move on
		all := 0
		for i, s := range nodes {
			led := ledBy(s, len(nodes))
			if all += len(led); len(led) < a.Status().ShardCount/len(nodes) {
				return false
			}
			if i == 0 {
				queue = led[0]
			}
		}
		return all == a.Status().ShardCount
	})
	answers := make(chan string, 10)
	for range cap(answers) {
		go func() {
			_, answer := post(nodes[1], "reserve", fmt.Sprintf(`{"queues":[%q],"wait":"60s"}`, queue))
			answers <- answer
		}()
	}
	eventually(t, "the calls to wait at the leader", func() bool { return a.Waiting() == cap(answers) })
	stop(t, a)
	for i := range cap(answers) {
		eventually(t, "a job to be put", func() bool {
			status, _ := post(nodes[1], "put", fmt.Sprintf(`{"queue":%q,"requestId":"put-%d","text":"x"}`, queue, i))
			return status == http.StatusOK
		})
	}
	for range cap(answers) {
		if answer := <-answers; !strings.Contains(answer, `"lease"`) {
			t.Errorf("a call that waited: %s", answer)
		}
	}
}

// post makes a call and returns the status and the answer.
func post(s *server.Server, path, body string) (status int, answer string) {
	//nolint:noctx // the test has a time limit of its own
	response, err := http.Post(s.URL()+"/v1/"+path, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}
