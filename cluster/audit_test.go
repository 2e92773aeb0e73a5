package cluster

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/cluster/routing/routingtest"
)

// TestAskAudit asks all nodes for what they say of themselves. A node that does not serve clients yet,
// or that is gone, has an error instead.
func TestAskAudit(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		a := newMember(t, network, dir, "a", nil)
		b, c := newMember(t, network, dir, "b", a), newMember(t, network, dir, "c", a)
		await(t, "an even cluster", func() bool { return settled(a.cluster, 3, a, b, c) })
		ask := func() (all string) {
			for _, n := range a.cluster.AskAudit(t.Context(), []byte("query")) {
				switch {
				case n.Err == nil:
					all += fmt.Sprintf("%s=%s ", n.Name, n.Answer)
				case n.Answer == nil && errors.Is(n.Err, errNoAudit):
					all += n.Name + " failed "
				case n.Answer == nil && (errors.Is(n.Err, errUnreachable) || errors.Is(n.Err, errNoAnswer)):
					all += n.Name + " silent "
				}
			}
			return all
		}
		if got := ask(); got != "a failed b failed c failed " {
			t.Errorf("before any node serves clients: %s", got)
		}
		for name, m := range map[string]*member{"a": a, "b": b} {
			m.cluster.AnswerAudit(func(query []byte) ([]byte, error) { return fmt.Appendf(nil, "%s of %s", query, name), nil })
		}
		c.cluster.AnswerAudit(func([]byte) ([]byte, error) { return nil, errors.New("a bad query") })
		if got := ask(); got != "a=query of a b=query of b c silent " {
			t.Errorf("three nodes: %s", got)
		}
		c.cluster.AnswerAudit(func([]byte) ([]byte, error) { return nil, nil })
		b.stop()
		if got := ask(); got != "a=query of a b silent c= " {
			t.Errorf("without b: %s", got)
		}
		b.start(nil)
	})
}
