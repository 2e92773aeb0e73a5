package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// enforceMax bounds how long the kernel may take to get other rules.
const enforceMax = 10 * time.Second

// Set gives the link from one to another another rule for a service; the zero Rule takes it away. A
// link between groups of a partition drops everything whatever its rule is, until Heal. It returns
// when the rule holds for what passes from then on.
func (n *Network) Set(ctx context.Context, w Link, r Rule) error {
	n.steering.Lock()
	defer n.steering.Unlock()
	if err := errors.Join(n.checkLink(w), r.check()); err != nil {
		return fmt.Errorf("a rule for %s to %s: %w", w.From, w.To, err)
	}
	n.table.change(func() {
		for _, service := range w.Service.services() {
			n.table.rules[way{w.From, w.To, service}] = r
		}
	})
	return n.enforce(ctx)
}

// Link names a directed link of a service, or of all services.
type Link struct {
	From, To string
	Service  Service
}

// checkLink refuses a link on which nothing could ever pass. The caller holds steering.
func (n *Network) checkLink(w Link) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := func(name string) bool { return n.nodes[name] != nil || n.clients[name] != nil || name == Outside }
	var problems []error
	for _, name := range []string{w.From, w.To} {
		if !known(name) {
			problems = append(problems, fmt.Errorf("there is no node or client %q", name))
		}
	}
	switch {
	case w.From == w.To:
		problems = append(problems, errors.New("a link has two ends"))
	case n.nodes[w.From] == nil && n.nodes[w.To] == nil:
		problems = append(problems, errors.New("one end is a node"))
	case (n.clients[w.From] != nil || n.clients[w.To] != nil) && w.Service != Client && w.Service != All:
		problems = append(problems, fmt.Errorf("a client has no connections for %s", w.Service))
	}
	if w.Service < All || w.Service > Gossip {
		problems = append(problems, fmt.Errorf("there is no %s", w.Service))
	}
	return errors.Join(problems...)
}

// Partition cuts names in different groups off from each other, in both directions and for all
// services. A name may be in several groups, and then reaches the members of each. A name in no
// group reaches all names. A partition replaces the one before it and leaves the rules of Set as
// they are.
func (n *Network) Partition(ctx context.Context, groups ...[]string) error {
	n.steering.Lock()
	defer n.steering.Unlock()
	for _, name := range slices.Concat(groups...) {
		n.mu.Lock()
		known := n.nodes[name] != nil || n.clients[name] != nil
		n.mu.Unlock()
		if !known {
			return fmt.Errorf("a partition: there is no node or client %q", name)
		}
	}
	own := make([][]string, 0, len(groups))
	for _, group := range groups {
		own = append(own, slices.Clone(group))
	}
	n.table.change(func() { n.table.groups = own })
	return n.enforce(ctx)
}

// Heal ends the partition and takes away all rules.
func (n *Network) Heal(ctx context.Context) error {
	n.steering.Lock()
	defer n.steering.Unlock()
	n.table.change(func() {
		n.table.groups = nil
		clear(n.table.rules)
	})
	return n.enforce(ctx)
}

// enforce has the kernel drop what is to be dropped; on loopback the proxies do. The caller holds
// steering.
func (n *Network) enforce(ctx context.Context) error {
	if n.spaces == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, enforceMax)
	defer cancel()
	n.mu.Lock()
	all := append(values(n.nodes), values(n.clients)...)
	n.mu.Unlock()
	slices.SortFunc(all, func(a, b *member) int { return strings.Compare(a.name, b.name) })
	var drops []drop
	for _, from := range all {
		for _, to := range all {
			for _, service := range All.services() {
				if from.reaches(to, service) && n.table.dropped(way{from.name, to.name, service}) {
					drops = append(drops, drop{from, to, service})
				}
			}
		}
	}
	return n.spaces.enforce(ctx, drops)
}

// reaches reports whether there is such a link. A client has but one service, and no other clients.
func (m *member) reaches(other *member, s Service) bool {
	bothNodes := m.host.IsValid() && other.host.IsValid()
	oneNode := m.host.IsValid() || other.host.IsValid()
	return m != other && (bothNodes || oneNode && s == Client)
}

// silent reports whether it is the proxy that lets nothing pass: the kernel drops packets only
// between members, and only in namespaces.
func (n *Network) silent(w way, r Rule) bool {
	return r.Drop && (n.spaces == nil || w.from == Outside || w.to == Outside)
}
