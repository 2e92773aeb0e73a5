package browsertest

import (
	"strings"
	"testing"
)

// violation is what axe-core finds wrong with a page.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

// The rules of axe-core that a test runs: all, or the one that depends on the theme.
const (
	everyRule = "{}"
	colorRule = "{runOnly: ['color-contrast']}"
)

// testAxe: axe-core finds nothing wrong with any page in either theme. One page with hostile texts
// stands for all of them.
func testAxe(t *testing.T, b *tab, axe string) {
	for _, s := range b.site.screens() {
		if strings.HasPrefix(s.name, "job \"") && !strings.Contains(s.name, "onerror") {
			continue
		}
		b.prefer("light")
		b.visit(s.path)
		b.axe(s.name+", light", axe, everyRule)
		b.prefer("dark")
		b.axe(s.name+", dark", axe, colorRule)
	}
}

// axe runs rules of axe-core on the page.
func (b *tab) axe(where, source, rules string) {
	b.t.Helper()
	if !ask[bool](b, "'axe' in window") {
		ask[bool](b, source+"; true")
	}
	for _, v := range ask[[]violation](b, `axe.run(`+rules+`).then((r) => {
		if (r.passes.length === 0) throw new Error('no rule applies');
		return r.violations.map((v) => ({id: v.id, impact: v.impact, help: v.help,
			nodes: v.nodes.map((n) => ({html: n.html, failureSummary: n.failureSummary}))}));
	})`) {
		b.t.Errorf("%s: %s, %s: %s at %d places, such as %s\n%s", where, v.ID, v.Impact, v.Help, len(v.Nodes),
			cut(v.Nodes[0].HTML), v.Nodes[0].FailureSummary)
	}
}
