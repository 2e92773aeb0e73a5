package rpc

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// TestMinVotersInStatus: a shard with fewer voters than it must have is a problem, and what could
// be raised is an advice and no problem.
func TestMinVotersInStatus(t *testing.T) {
	const advice = "'belfry cluster settings --min-voters 2'"
	for _, tt := range []struct {
		name            string
		prepare         func(f *fakeCluster)
		problem, advice string
	}{
		{"three nodes", func(*fakeCluster) {}, "", advice},
		{"raised", func(f *fakeCluster) { f.minVoters = 2 }, "", ""},
		{"two nodes answer", func(f *fakeCluster) { f.silence(3) }, "", ""},
		{"one voter", func(f *fakeCluster) {
			f.minVoters = 2
			f.leave(2)
			f.leave(3)
		}, "TOO_FEW_VOTERS with fewer than the 2 voters that min-voters asks for", ""},
		{"one voter, and none is asked for", func(f *fakeCluster) { f.leave(2); f.leave(3) }, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := healthyCluster()
			tt.prepare(f)
			_, a := serveCluster(t, f).bothClients()
			got, err := a.GetCluster(t.Context(), &belfryv1.GetClusterRequest{})
			if err != nil {
				t.Fatal(err)
			}
			has := func(all []string, text string) bool {
				return slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, text) })
			}
			if has(got.Problems, "TOO_FEW_VOTERS") != (tt.problem != "") || !has(append(got.Problems, ""), tt.problem) {
				t.Errorf("problems: %q", got.Problems)
			}
			if len(got.Advice) > 0 != (tt.advice != "") || !has(append(got.Advice, ""), tt.advice) {
				t.Errorf("advice: %q", got.Advice)
			}
		})
	}
}

// TestZoneDataInStatus: nodes with other time-zone data are named in an advice, which is no problem, also
// on the dashboard. A node that does not answer is not.
func TestZoneDataInStatus(t *testing.T) {
	f := healthyCluster()
	f.minVoters = 2
	s := serve(t, withDashboard, func(cfg *Config) { cfg.Cluster = f })
	_, a := s.bothClients()
	status := func() *belfryv1.GetClusterResponse {
		got, err := a.GetCluster(t.Context(), &belfryv1.GetClusterRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := status(); len(got.Advice) > 0 {
		t.Errorf("of equal data: %q", got.Advice)
	}
	f.members[1].ZoneData = "2024a (01234567)"
	want := "time-zone data differ: 2024a (01234567) on n2; 2025c (a5d24815) on n1, n3: schedules fire by the data of " +
		"the node that leads their shard, so run the same version of belfry or the same --zoneinfo everywhere"
	got := status()
	if !slices.Equal(got.Advice, []string{want}) || len(got.Problems) > 0 {
		t.Errorf("advice %q, problems %q", got.Advice, got.Problems)
	}
	wantPages(s, map[string][]string{
		"/ui/cluster":      {"<p>Healthy.</p>", "<li>Advice: " + want + "</li>"},
		"/ui/node?name=n2": {"Time-zone data</th><td>2024a (01234567)</td>"},
	})
	f.silence(2)
	if got := status(); len(got.Advice) > 0 {
		t.Errorf("of the nodes that answer: %q", got.Advice)
	}
}

// TestTooFewVotersOnTheWire: a refused caller is told how many voters there are and must be, and
// may try again.
func TestTooFewVotersOnTheWire(t *testing.T) {
	s := serve(t)
	s.node.Fail = func(uint32) error { return &node.VotersError{Have: 1, Want: 2} }
	q, _ := s.bothClients()
	_, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "q"})
	f, ok := fault.FromConnect(err)
	if !ok || f.Reason != belfryv1.Reason_REASON_TOO_FEW_VOTERS || f.RetryAfter == 0 ||
		f.Outcome() != belfryv1.Outcome_OUTCOME_NOT_APPLIED {
		t.Fatalf("%v, %+v", err, f)
	}
	if !strings.Contains(f.Message, "1 of the 2 voters") {
		t.Errorf("the message is %q", f.Message)
	}
	got := s.post("/v1/put", `{"queue":"q","text":"x"}`)
	if got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, `"have":"1"`) ||
		!strings.Contains(got.body, `"want":"2"`) {
		t.Errorf("%+v", got)
	}
}
