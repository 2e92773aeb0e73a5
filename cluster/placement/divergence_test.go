package placement

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/node"
	"github.com/google/go-cmp/cmp"
)

func TestDiverged(t *testing.T) {
	type digests map[uint64]uint64
	tests := []struct {
		name              string
		voters, nonvoters []string
		reports           map[string]digests
		wrong             map[string]uint64
		undecided         bool
	}{
		{"all alike", []string{"a", "b", "c"}, nil, map[string]digests{"a": {512: 7}, "b": {512: 7, 900: 8}, "c": {512: 7}},
			nil, false},
		{"one of three", []string{"a", "b", "c"}, nil, map[string]digests{"a": {512: 7}, "b": {512: 6}, "c": {512: 7}},
			map[string]uint64{"b": 7}, false},
		{"no index in common", []string{"a", "b", "c"}, nil,
			map[string]digests{"a": {512: 7}, "b": {1024: 6}, "c": {1536: 5}}, nil, false},
		{"one silent", []string{"a", "b", "c"}, nil, map[string]digests{"a": {512: 7}, "b": {512: 6}}, nil, true},
		{"two voters", []string{"a", "b"}, nil, map[string]digests{"a": {512: 7}, "b": {512: 6}}, nil, true},
		{"half of four", []string{"a", "b", "c", "d"}, nil,
			map[string]digests{"a": {512: 7}, "b": {512: 6}, "c": {512: 7}, "d": {512: 6}}, nil, true},
		{"a follower", []string{"a"}, []string{"b"}, map[string]digests{"a": {512: 7}, "b": {512: 6}},
			map[string]uint64{"b": 7}, false},
		{"followers do not vote", []string{"a", "b", "c"}, []string{"d"}, map[string]digests{"a": {512: 7}, "d": {512: 7}},
			nil, false},
		{"two of five", []string{"a", "b", "c", "d", "e"}, nil,
			map[string]digests{"a": {512: 7}, "b": {512: 7}, "c": {512: 7}, "d": {512: 6}, "e": {512: 5}},
			map[string]uint64{"d": 7, "e": 7}, false},
		{"an unknown node", []string{"a"}, nil, map[string]digests{"a": {512: 7}, "x": {512: 6}}, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reports := map[string]*Report{}
			for id, all := range tt.reports {
				g := GroupReport{Group: "shard-0"}
				for index, digest := range all {
					g.Digests = append(g.Digests, node.IndexDigest{Index: index, Digest: digest})
				}
				reports[id] = &Report{ServerID: id, Groups: []GroupReport{g}}
			}
			wrong, undecided := diverged("shard-0", &worldShard{voters: tt.voters, nonvoters: tt.nonvoters}, reports)
			got := map[string]uint64{}
			for id, right := range wrong {
				got[id] = right.Digest
			}
			if tt.wrong == nil {
				tt.wrong = map[string]uint64{}
			}
			if diff := cmp.Diff(tt.wrong, got); diff != "" || undecided != tt.undecided {
				t.Errorf("undecided %v; wrong replicas (-want +got):\n%s", undecided, diff)
			}
		})
	}
}

// logCounts counts the records of a log by their message.
type logCounts struct {
	slog.Handler
	mu   *sync.Mutex
	seen map[string]int
}

// Handle implements slog.Handler.
func (m logCounts) Handle(_ context.Context, r slog.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[r.Message]++
	return nil
}

// Enabled implements slog.Handler.
func (m logCounts) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (m logCounts) WithAttrs([]slog.Attr) slog.Handler { return m }

func (m logCounts) count(message string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[message]
}

func TestPlanExpels(t *testing.T) {
	three := world{factor: 3, nodes: []worldNode{{server: "a"}, {server: "b"}, {server: "c"}}}
	shard := worldShard{leader: "a", voters: []string{"a", "b", "c"}, recorded: []string{"a", "b", "c"},
		caughtUp: []string{"a", "b"}, quarantined: []string{"c"}}
	tests := []struct {
		name   string
		change func(s *worldShard)
		want   []step
	}{
		{"a voter", func(*worldShard) {}, []step{{0, Remove, "c"}}},
		{"not while another is behind", func(s *worldShard) { s.caughtUp = []string{"a"} }, nil},
		{"a follower", func(s *worldShard) { s.voters, s.nonvoters = []string{"a", "b"}, []string{"c"} },
			[]step{{0, Remove, "c"}}},
		{"not back while it is aside", func(s *worldShard) { s.voters, s.recorded = []string{"a", "b"}, nil }, nil},
		{"back once it has left", func(s *worldShard) { s.voters, s.recorded, s.quarantined = []string{"a", "b"}, nil, nil },
			[]step{{0, AddNonvoter, "c"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, s := three, shard
			tt.change(&s)
			w.shards = []worldShard{s}
			if got := plan(w); !slices.Equal(got, tt.want) {
				t.Errorf("planned %v, want %v", got, tt.want)
			}
		})
	}
}

// TestUndecidedReplicas: where most voters do not agree on a state, no replica is set aside. That
// is logged once for as long as it lasts.
func TestUndecidedReplicas(t *testing.T) {
	c := newFakeCluster(1, "a")
	p := c.placer()
	log := logCounts{slog.DiscardHandler, &sync.Mutex{}, map[string]int{}}
	p.logger = slog.New(log)
	w := world{shards: []worldShard{{shard: 0, voters: []string{"a", "b"}}}}
	for _, round := range []struct {
		digest uint64 // of the second
		said   int
	}{{6, 1}, {6, 1}, {7, 1}, {6, 2}} {
		reports := map[string]*Report{}
		for id, digest := range map[string]uint64{"a": 7, "b": round.digest} {
			g := GroupReport{Group: catalog.ShardGroup(0), Digests: []node.IndexDigest{{Index: 512, Digest: digest}}}
			reports[id] = &Report{ServerID: id, Groups: []GroupReport{g}}
		}
		p.compare(t.Context(), &w, &worldShard{}, reports)
		if got := log.count("replicas differ and none of their states is that of most voters"); got != round.said {
			t.Errorf("with %d at the second it was said %d times, want %d", round.digest, got, round.said)
		}
	}
	const wrong = "a replica differs from the others"
	if log.count(wrong) != 0 {
		t.Error("one of them was called wrong")
	}
	reports := map[string]*Report{}
	for id, digest := range map[string]uint64{"a": 7, "b": 6, "c": 7} {
		g := GroupReport{Group: catalog.ShardGroup(0), Digests: []node.IndexDigest{{Index: 512, Digest: digest}}}
		reports[id] = &Report{ServerID: id, Groups: []GroupReport{g}}
	}
	w.shards[0].voters = []string{"a", "b", "c"}
	p.compare(t.Context(), &w, &worldShard{}, reports)
	if log.count(wrong) != 1 {
		t.Errorf("of one that differs from two it was said %d times", log.count(wrong))
	}
}
