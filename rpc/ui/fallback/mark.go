package fallback

import (
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/format"
)

// keptMin is from which age on figures are said to be old.
const keptMin = 5 * time.Second

// KeptText says, after other words, how old figures are that a page shares with others, if that is some
// seconds.
func KeptText(age Age) string {
	if age.Kept < keptMin {
		return ""
	}
	return ", figures up to " + format.Span(age.Kept.Truncate(time.Second)) + " old"
}

// Mark says that the figures of a page are those of replicas, and how old the oldest of them is; nothing
// if leaders answered.
func Mark(age Age, c format.Clock) g.Node {
	if !age.Stale {
		return nil
	}
	text := "A shard has no leader that answers. The figures are those of its replicas"
	if !age.AsOf.IsZero() {
		text += ", and up to " + format.Span(max(c.Now.Sub(age.AsOf), 0)) + " old"
	}
	return warning(text + ".")
}

// catalogOld is for how long a node may have heard from no leader of the catalog before its pages say
// so. An election takes one to three seconds.
const catalogOld = 5 * time.Second

// MarkCatalog says that what a node knows of the cluster, of settings, namespaces, tokens and tasks is
// old, and how old, because it does not hear the leader of the catalog; nothing if it does.
func MarkCatalog(cluster *belfryv1.GetClusterResponse, c format.Clock) g.Node {
	catalog := cluster.GetCatalog()
	const known = " What this node knows of nodes, settings, namespaces, tokens and tasks"
	switch heard := catalog.GetHeardAt(); {
	case catalog == nil || heard != nil && c.Now.Sub(heard.AsTime()) < catalogOld:
		return nil
	case heard == nil:
		return warning("This node has not heard from the leader of the catalog since its start." + known + " may be old.")
	default:
		age := format.Span(c.Now.Sub(heard.AsTime()))
		return warning("This node has not heard from the leader of the catalog for " + age + "." + known +
			" is as old.")
	}
}

func warning(text string) g.Node {
	return h.P(h.Class("warning"), h.Role("status"), g.Text(text))
}
