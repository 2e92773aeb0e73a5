package top

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// sightOf is what there is to see at a moment: three nodes of which one is silent, and two queues
// with so many puts and acks.
func sightOf(after time.Duration, puts, acks uint64) *sight {
	return &sight{
		Cluster: &belfryv1.GetClusterResponse{
			Nodes: []*belfryv1.Node{
				{Name: "n1", State: belfryv1.NodeState_NODE_STATE_LIVE, Leads: 2, Replicas: 2, Address: "10.0.0.1:7400"},
				{Name: "n2", State: belfryv1.NodeState_NODE_STATE_LIVE, Draining: true, Replicas: 1, Address: "10.0.0.2:7400"},
				{Name: "n3", State: belfryv1.NodeState_NODE_STATE_SILENT, Replicas: 2, Address: "10.0.0.3:7400"},
			},
			Shards: []*belfryv1.Shard{{}, {}}, Problems: []string{"n3 does not answer"},
		},
		Queues: &belfryv1.ListQueuesResponse{
			Queues: []*belfryv1.Queue{clitest.FullQueue(), {
				Name: "a-queue-of-a-very-long-name/and-more", Counts: &belfryv1.JobCounts{
					Ready: 9, Delayed: 1,
				}, Settings: &belfryv1.QueueSettings{}, Bytes: 7,
				Totals: &belfryv1.QueueTotals{Puts: puts, Acks: acks}, Due: &belfryv1.DueHistogram{NextHour: 1},
			}},
			Due: clitest.FullDue(),
		},
		at: clitest.Now.Add(after),
	}
}

const topText = `belfry n1:7400   09:00:02   3 nodes, 2 shards: 1 problem
  n3 does not answer
  n1           live            leads 2 of 2 replicas  10.0.0.1:7400
  n2           live, draining  leads 0 of 1 replica  10.0.0.2:7400
  n3           silent          leads 0 of 2 replicas  10.0.0.3:7400

due   5 overdue; within 1m 3, 1h 1,003, 1d 5,003, 30d 5,004; later 1,229,563
hour  .   @        -+                                               max 500/m

jobs  1,234,568 delayed, 14 ready, 4 reserved, 3 dead in 2 queues; 5.0 MiB
rate  50 put, 2.5 acked a second

QUEUE                         READY  OLDEST  LATE P99    DELAYED   HOUR  RESERVED  DEAD  PUT/S  ACKED/S
a-queue-of-a-very-long-nam..      9       -         -          1      1         0     0     50      2.5
(paused) shop/orders              5   1m30s       2ms  1,234,567  1,003         4     3      0        0
`

// TestTopPicture draws what was seen, and what happened since it was last.
func TestTopPicture(t *testing.T) {
	p := picture{columns: 110, rows: 40, server: "n1:7400"}
	lines := drawTop(sightOf(2*time.Second, 200, 5), sightOf(0, 100, 0), &topFlags{sort: "ready"}, p)
	if diff := cmp.Diff(topText, strings.Join(lines, "\n")+"\n"); diff != "" {
		t.Errorf("the picture (-want +got):\n%s", diff)
	}
	for by, first := range map[string]string{
		"delayed": "(paused) shop", "put": "a-queue", "name": "a-queue", "dead": "(paused) shop",
		"reserved": "(paused) shop", "hour": "(paused) shop", "acked": "a-queue",
	} {
		lines := drawTop(sightOf(2*time.Second, 200, 5), sightOf(0, 100, 0), &topFlags{sort: by}, p)
		if got := lines[len(lines)-2]; !strings.HasPrefix(got, first) {
			t.Errorf("by %s the first is %q", by, got)
		}
	}
	for _, size := range [][2]int{{80, 24}, {40, 10}, {10, 3}, {1, 1}, {0, 0}} {
		lines := drawTop(sightOf(time.Second, 0, 0), nil, &topFlags{}, picture{
			columns: size[0], rows: size[1], trouble: strings.Repeat("x", 200), blocks: true,
		})
		if len(lines) > size[1] {
			t.Errorf("%d lines on %d rows", len(lines), size[1])
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > size[0] {
				t.Errorf("%d columns on %d: %q", n, size[0], line)
			}
		}
	}
	made := sightOf(2*time.Second, 7, 0) // deleted and made again
	if got := ratesOf(made, sightOf(0, 100, 0)); got[made.Queues.Queues[1].Name] != (rates{}) {
		t.Errorf("a queue that was made anew has %v", got)
	}
}

// overfull is a sight with more of everything than a small screen has room for.
func overfull(problems, nodes, queues int) (s, before *sight) {
	at := func(n uint64, after time.Duration) *sight {
		s := sightOf(after, 0, 0)
		s.Cluster.Problems, s.Cluster.Nodes, s.Queues.Queues = nil, nil, nil
		for i := range problems {
			s.Cluster.Problems = append(s.Cluster.Problems,
				fmt.Sprintf("shard %d: the replica of n3 has applied 92 of 585 entries, and was not reached by its leader for "+
					"the last 12 seconds", i))
		}
		for i := range nodes {
			state := belfryv1.NodeState_NODE_STATE_LIVE
			if i == nodes-1 {
				state = belfryv1.NodeState_NODE_STATE_SILENT
			}
			s.Cluster.Nodes = append(s.Cluster.Nodes, &belfryv1.Node{
				Name: fmt.Sprintf("belfry-%d", i), State: state, Leads: 12, Replicas: 36,
				Address: fmt.Sprintf("belfry-%d.belfry.default.svc.cluster.local:7400", i),
			})
		}
		for i := range queues {
			q := clitest.FullQueue()
			q.Name, q.Totals = fmt.Sprintf("a-very-long-namespace/and-a-queue-%d", i), &belfryv1.QueueTotals{Puts: n, Acks: n}
			q.Counts = &belfryv1.JobCounts{Delayed: 123456789, Ready: 1234567, Reserved: 123456, Dead: 12345}
			s.Queues.Queues = append(s.Queues.Queues, q)
		}
		s.Queues.Due.Later = 4294967295
		return s
	}
	return at(200_000, 2*time.Second), at(0, 0)
}

// TestTopFits80x24 draws on the screen that every terminal has. No line is wider and there are no
// more lines, no line of the table is cut in a column, and each part keeps room: what is wrong,
// which nodes are not live, and the first queues.
func TestTopFits80x24(t *testing.T) {
	for _, test := range []struct{ problems, nodes, queues int }{
		{0, 1, 1},
		{1, 3, 40},
		{12, 3, 40},
		{0, 9, 40},
		{12, 9, 40},
		{100, 100, 1000},
	} {
		s, before := overfull(test.problems, test.nodes, test.queues)
		for _, trouble := range []string{"", "UNAVAILABLE: " + strings.Repeat("no server answers ", 6)} {
			p := picture{columns: 80, rows: 24, server: "belfry.example.org:7400", trouble: trouble, blocks: true}
			lines := drawTop(s, before, &topFlags{sort: "ready"}, p)
			text := strings.Join(lines, "\n")
			if len(lines) > 24 {
				t.Errorf("%+v: %d lines", test, len(lines))
			}
			for _, line := range lines {
				if n := utf8.RuneCountInString(line); n > 80 {
					t.Errorf("%+v: %d columns: %q", test, n, line)
				}
			}
			heading := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "QUEUE ") })
			if heading < 0 || len(lines)-heading-1 < min(test.queues, 2) || !strings.HasSuffix(lines[heading], "ACKED/S") {
				t.Errorf("%+v: the table of queues has no room:\n%s", test, text)
				continue
			}
			if q := lines[heading+1]; !strings.Contains(q, "1,234,567") || !strings.Contains(q, "123,456,789") ||
				!strings.HasSuffix(q, "100,000") {
				t.Errorf("%+v: the line of a queue lacks a number: %q", test, q)
			}
			for _, want := range []string{fmt.Sprintf("  belfry-%d", test.nodes-1), "silent", "later 4,294,967,295",
				" a second"} {
				if !strings.Contains(text, want) {
					t.Errorf("%+v: there is no %q in\n%s", test, want, text)
				}
			}
			if test.problems > 0 && !strings.Contains(text, "shard 0: the replica") {
				t.Errorf("%+v: there is no problem in\n%s", test, text)
			}
		}
	}
}

// TestTopOnce shows the state once where there is no terminal, and as JSON, and reads no more
// queues than it shows.
func TestTopOnce(t *testing.T) {
	pages := 0
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		if _, ok := r.(*belfryv1.GetClusterRequest); ok {
			return sightOf(0, 0, 0).Cluster, nil
		}
		pages++
		return &belfryv1.ListQueuesResponse{
			Queues: []*belfryv1.Queue{{Name: fmt.Sprintf("q%d", pages)}}, NextPageToken: "more",
		}, nil
	})
	got := h.Run("top", "q")
	if got.Code != 0 || pages != topPages || !strings.Contains(got.Out, "in the first 10 queues by name") ||
		!strings.Contains(got.Out, "\nq10 ") || strings.Contains(got.Out, "\x1b") {
		t.Errorf("%d pages, %+v", pages, got)
	}
	got = h.Run("top", "-o", "json")
	var both struct {
		Cluster struct{ Nodes []any }
		Queues  struct{ Queues []any }
	}
	if err := json.Unmarshal([]byte(got.Out), &both); err != nil || len(both.Cluster.Nodes) != 3 ||
		len(both.Queues.Queues) != topPages {
		t.Errorf("%v, %+v", err, got)
	}
	if got := h.Run("top", "--interval", "1ms"); got.Code != cli.CodeUsage || !strings.Contains(got.Err, "--interval") {
		t.Errorf("%+v", got)
	}
}

// TestTopWithoutALeader shows what is wrong with a cluster of which a shard has no leader, and the
// queues as replicas have them. If no node has them, it shows all but the queues, and the exit code
// says so.
func TestTopWithoutALeader(t *testing.T) {
	forbidden := false
	h := newHarness(t, func(r proto.Message) (proto.Message, error) {
		list, ok := r.(*belfryv1.ListQueuesRequest)
		switch {
		case !ok:
			return sightOf(0, 0, 0).Cluster, nil
		case forbidden || !list.Stale: // NO_LEADER would be waited for
			return nil, clitest.WireError(connect.CodePermissionDenied, "FORBIDDEN", "not these")
		default:
			return sightOf(0, 0, 0).Queues, nil
		}
	})
	got := h.Run("top")
	if got.Code != 0 || !strings.Contains(got.Out, "n3 does not answer") ||
		!strings.Contains(got.Out, "because a shard has no leader") || !strings.Contains(got.Out, "\na-queue") {
		t.Errorf("with replicas: %+v", got)
	}
	forbidden = true
	got = h.Run("top")
	if got.Code != cli.CodeForbidden || !strings.Contains(got.Out, "n3 does not answer") ||
		!strings.Contains(got.Out, "queues  not known: FORBIDDEN: not these") || strings.Contains(got.Out, "jobs  ") {
		t.Errorf("without: %+v", got)
	}
	got = h.Run("top", "-o", "json")
	if got.Code != cli.CodeForbidden || !strings.Contains(got.Out, "n3 does not answer") || !json.Valid([]byte(got.Out)) {
		t.Errorf("as JSON: %+v", got)
	}
	stale, fresh := sightOf(2*time.Second, 200, 5), sightOf(0, 100, 0)
	stale.stale = true
	if all := ratesOf(stale, fresh); all != nil {
		t.Errorf("rates of what a replica had: %v", all)
	}
	if all := ratesOf(sightOf(4*time.Second, 300, 5), &sight{
		Queues: &belfryv1.ListQueuesResponse{}, unread: errors.New("no answer"),
	}); all != nil {
		t.Errorf("rates since nothing was read: %v", all)
	}
}
