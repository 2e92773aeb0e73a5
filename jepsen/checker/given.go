package checker

import "time"

// given holds what the run itself saw against the promises: elections, removed nodes, flipped bits,
// and what was measured after the last fault.
func (c *check) given(found *findings) {
	type term struct {
		group string
		term  uint64
	}
	leaders := map[term]string{}
	for _, e := range c.run.Elections {
		found.look(29)
		t := term{e.Group, e.Term}
		if other, ok := leaders[t]; ok && other != e.Node {
			found.violated(29, 0, "%s and %s both led %s in term %d", other, e.Node, e.Group, e.Term)
		}
		leaders[t] = e.Node
	}
	c.removals(found)
	if f := c.run.Flips; f.Injected > 0 {
		found.looked[32] += f.Injected
		if f.Noticed+f.Unread < f.Injected {
			found.violated(32, 0, "%d bits were flipped, %d were noticed and %d lie where nothing is read", f.Injected,
				f.Noticed, f.Unread)
		}
	}
	for _, p := range c.run.Probes {
		found.look(35)
		switch {
		case p.Failure != "":
			found.violated(35, c.run.Healed+p.Took, "%s: %s", p.Name, p.Failure)
		case p.Took > p.Limit:
			found.violated(35, c.run.Healed+p.Took, "%s took %v, %v is allowed", p.Name, p.Took, p.Limit)
		}
	}
}

// removals checks that no node answered a call that was sent to it while it was no member.
func (c *check) removals(found *findings) {
	if len(c.run.Removals) == 0 {
		return
	}
	for _, o := range c.ops {
		for _, r := range c.run.Removals {
			if o.Node != r.Node || o.Invoked <= r.From || r.To != 0 && o.Returned >= r.To {
				continue
			}
			found.look(31)
			if o.OK() {
				found.violated(31, o.Returned, "%s was answered by %s, which was removed at %v", describe(o), r.Node,
					r.From.Round(time.Millisecond))
			}
		}
	}
}
