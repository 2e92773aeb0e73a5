package gossip

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// ProblemKind says what is wrong with another node, or with this one.
type ProblemKind string

// The kinds.
const (
	// ForeignCluster is a node that belongs to another cluster.
	ForeignCluster ProblemKind = "foreign_cluster"
	// WrongKey is a node whose messages cannot be opened here, or which cannot open those of this
	// node.
	WrongKey ProblemKind = "wrong_key"
	// NameClash is two live nodes with one name: two incarnations, or one data directory in use twice.
	NameClash ProblemKind = "name_clash"
)

// Problem is something about another node that an operator has to fix.
type Problem struct {
	Kind ProblemKind
	// Addr is the gossip address of the node concerned. Its port is 0 if only an incoming message
	// showed the node: it does not listen at the port that sent that.
	Addr netip.AddrPort
	// Other is the gossip address of the second node of a name clash.
	Other netip.AddrPort
	// Cluster is the id of a foreign cluster.
	Cluster string
	// Name is the name, or the server id, that two nodes use.
	Name string
	// Text says it in a sentence.
	Text string
	// First and Last are when it was noticed first and last.
	First, Last time.Time
}

// problemsMax bounds what is remembered: anyone may send anything.
const problemsMax = 64

// problemKey is what makes two problems the same.
type problemKey struct {
	kind        ProblemKind
	addr, other netip.AddrPort
	subject     string
}

// problems remembers what was reported, so that each problem is logged once.
type problems struct {
	logger *slog.Logger
	mu     sync.Mutex
	seen   map[problemKey]*Problem
}

// report logs a problem unless it was before. It reports whether it is new.
func (p *problems) report(found Problem) bool {
	found.First = time.Now()
	found.Last = found.First
	addr := found.Addr
	if found.Kind == WrongKey {
		// Where a stream comes from says only which host it is.
		addr = netip.AddrPortFrom(addr.Addr(), 0)
	}
	key := problemKey{found.Kind, addr, found.Other, found.Cluster + found.Name}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.seen[key]; known != nil {
		known.Last = found.Last
		if known.Addr.Port() == 0 && found.Addr.Port() != 0 {
			known.Addr, known.Text = found.Addr, found.Text
		}
		return false
	}
	if len(p.seen) >= problemsMax {
		p.forgetOldest()
	}
	p.seen[key] = &found
	p.logger.Warn("gossip: another node needs attention", "problem", string(found.Kind), "addr", placeOf(found.Addr),
		"text", found.Text)
	return true
}

func (p *problems) forgetOldest() {
	var oldest problemKey
	var at time.Time
	for key, known := range p.seen {
		if at.IsZero() || known.Last.Before(at) {
			oldest, at = key, known.Last
		}
	}
	delete(p.seen, oldest)
}

// list returns the problems, those noticed first at the front.
func (p *problems) list() []Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Problem, 0, len(p.seen))
	for _, known := range p.seen {
		list = append(list, *known)
	}
	slices.SortFunc(list, func(a, b Problem) int { return cmp.Or(a.First.Compare(b.First), a.Addr.Compare(b.Addr)) })
	return list
}
