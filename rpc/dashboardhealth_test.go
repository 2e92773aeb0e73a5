package rpc

import (
	"net/http"
	"strings"
	"testing"
)

// TestDashboardHealth: the pages say what a silent node means, and which nodes must not be restarted
// and why.
func TestDashboardHealth(t *testing.T) {
	well, f := healthyCluster(), healthyCluster()
	f.silence(3)
	s := serve(t, withDashboard, func(cfg *Config) { cfg.Cluster = well })
	wantPages(s, map[string][]string{
		"/ui/":        {": healthy, 1 piece of advice"},
		"/ui/cluster": {"<p>Healthy.</p>", "<li>Advice: min-voters is 1"},
	})
	s = serve(t, withDashboard, func(cfg *Config) { cfg.Cluster = f })
	wantPages(s, map[string][]string{
		"/ui/": {`<strong class="bad">1 problem</strong></p>`},
		"/ui/cluster": {"<li>node n3 does not answer</li>", "<td>it does not answer</td>",
			"no: without it there would be no majority of shard 0, shard 1, shard 2, the catalog"},
		"/ui/node?name=n2": {`<dd class="bad">no</dd><dd class="help">without it there would be no majority of shard 0, shard 1, shard 2, the catalog<`,
			"It goes on serving"},
		"/ui/node?name=n3": {"<dd>it does not answer</dd>", "It does not answer. Drained, its replicas"},
	})
}

// wantPages fails the test unless each page has its texts.
func wantPages(s *served, pages map[string][]string) {
	s.t.Helper()
	for page, shows := range pages {
		got := s.send(http.MethodGet, page, "")
		for _, text := range shows {
			if got.status != http.StatusOK || !strings.Contains(got.body, text) {
				s.t.Errorf("%s: %d, want a page with %q:\n%s", page, got.status, text, got.body)
			}
		}
	}
}
