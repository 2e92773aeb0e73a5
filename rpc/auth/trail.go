package auth

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A Trail keeps at most trailCallsMax calls, which together have at most trailBytesMax bytes on the
// wire.
const (
	trailCallsMax = 1000
	trailBytesMax = 2 << 20
)

// Trail keeps the last audited calls of this node in memory. Its methods may be called from any
// goroutine.
type Trail struct {
	node string
	now  func() time.Time

	mu sync.Mutex
	// records has the newest call last. No record is changed once it is here.
	records []*belfryv1.AuditRecord
	bytes   int
	// serial is that of the last record, and since the time from which on all calls are kept.
	serial uint64
	since  time.Time
}

// NewTrail returns an empty trail. node is the name of this node, and now the wall clock.
func NewTrail(node string, now func() time.Time) *Trail {
	return &Trail{node: node, now: now, since: now()}
}

// add keeps a call that has just ended, and takes possession of its record. The oldest calls make
// room for it.
func (t *Trail) add(r *belfryv1.AuditRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serial++
	r.Node, r.Serial, r.EndedAt = t.node, t.serial, timestamppb.New(t.now())
	t.records = append(t.records, r)
	t.bytes += proto.Size(r)
	for len(t.records) > trailCallsMax || t.bytes > trailBytesMax {
		t.since = t.records[0].EndedAt.AsTime()
		t.bytes -= proto.Size(t.records[0])
		t.records[0] = nil // the array behind the slice stays for a while
		t.records = t.records[1:]
	}
}

// TrailPage is a selection of the calls of one node.
type TrailPage struct {
	// Records has the newest call first. They must not be changed.
	Records []*belfryv1.AuditRecord
	// Since is the time from which on the node has kept all its calls; Kept is how many it has.
	Since time.Time
	Kept  int
}

// Page returns the newest calls that a query selects, at most so many.
func (t *Trail) Page(q *TrailQuery, most int) TrailPage {
	t.mu.Lock()
	records, since := slices.Clone(t.records), t.since
	t.mu.Unlock()
	page := TrailPage{Since: since, Kept: len(records)}
	page.Records = slices.DeleteFunc(records, func(r *belfryv1.AuditRecord) bool { return !q.Selects(r) })
	slices.SortFunc(page.Records, NewerFirst)
	page.Records = page.Records[:min(len(page.Records), most)]
	return page
}

// TrailQuery selects audited calls.
type TrailQuery struct {
	// Procedures has the paths of calls; empty for all.
	Procedures []string
	// Token is the id of the token of the caller, or Nobody; empty for all.
	Token string
	// FailedOnly selects the calls that failed or were refused.
	FailedOnly bool
	// After selects the calls that come later in the order of NewerFirst; nil for all.
	After *belfryv1.AuditRecord
}

// Nobody stands for the token of a call that carries none.
const Nobody = "nobody"

// Selects reports whether a call satisfies every condition.
func (q *TrailQuery) Selects(r *belfryv1.AuditRecord) bool {
	return (len(q.Procedures) == 0 || slices.Contains(q.Procedures, r.Procedure)) &&
		(q.Token == "" || q.Token == cmp.Or(r.Token, Nobody)) &&
		(!q.FailedOnly || r.Outcome != outcomeOK) &&
		(q.After == nil || NewerFirst(q.After, r) < 0)
}

// NewerFirst orders the calls of all nodes: the newest first, and calls of one time by node and
// serial number.
func NewerFirst(a, b *belfryv1.AuditRecord) int {
	return cmp.Or(b.EndedAt.AsTime().Compare(a.EndedAt.AsTime()), strings.Compare(a.Node, b.Node),
		cmp.Compare(b.Serial, a.Serial))
}
