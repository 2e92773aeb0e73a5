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

// TestStopAnswersOtherNodes has calls wait at a node that stops, for clients of another node: they get an answer, not a broken connection.
func TestStopAnswersOtherNodes(t *testing.T) {
	cfg := config(t, t.TempDir())
	cfg.NodeID = "a"
	a := start(t, cfg)
	cfg = config(t, t.TempDir())
	cfg.NodeID, cfg.Join = "b", []string{a.GossipAddress()}
	b := start(t, cfg)
	var queues []string
	eventually(t, "both nodes to lead as many shards", func() bool { // else leaders move on
		queues = ledBy(a, 2)
		return len(queues) > 0 && len(queues) == len(ledBy(b, 2)) && len(queues)*2 == a.Status().ShardCount
	})
	answers := make(chan string, 10)
	for range cap(answers) {
		go func() { answers <- reserve(b, queues[0]) }()
	}
	eventually(t, "the calls to wait at the leader", func() bool { return a.Waiting() == cap(answers) })
	stop(t, a)
	for range cap(answers) {
		if answer := <-answers; strings.Contains(answer, "UNKNOWN_OUTCOME") {
			t.Errorf("a call that waited: %s", answer)
		}
	}
}

// reserve waits for a job and returns the answer.
func reserve(s *server.Server, queue string) string {
	body := strings.NewReader(fmt.Sprintf(`{"queues":[%q],"wait":"60s"}`, queue))
	response, err := http.Post(s.URL()+"/v1/reserve", "application/json", body) //nolint:noctx // the test has a time limit of its own
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(answer)
}
