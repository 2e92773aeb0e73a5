package usage

import (
	"testing"
	"unsafe"

	"github.com/belfrydb/belfry/fsm"
)

// TestNamespaces: the sums follow the counts of queues as these come, change and go. A namespace
// without queues takes no memory.
func TestNamespaces(t *testing.T) {
	n := New()
	expect := func(what, name string, queues int, want fsm.Usage) {
		t.Helper()
		if n.Queues(name) != queues || n.Usage(name) != want {
			t.Errorf("%s: %d queues use %+v, want %d and %+v", what, n.Queues(name), n.Usage(name), queues, want)
		}
	}
	expect("at first", "ns", 0, fsm.Usage{})
	name := []byte("ns/a")
	a, b, other, plain := n.Add(unsafe.String(&name[0], len(name))), n.Add("ns/b"), n.Add("other/a"), n.Add("plain")
	copy(name, "is used again")
	a.Count(&fsm.Counts{Delayed: 1, Ready: 2, Reserved: 3, Dead: 4, Bytes: 100})
	b.Count(&fsm.Counts{Ready: 5, Bytes: 50})
	other.Count(&fsm.Counts{Ready: 1, Bytes: 1})
	plain.Count(&fsm.Counts{Ready: 1, Bytes: 1})
	expect("all", "ns", 2, fsm.Usage{Jobs: 15, Bytes: 150, InFlight: 3})
	expect("another", "other", 1, fsm.Usage{Jobs: 1, Bytes: 1})
	expect("none", "", 1, fsm.Usage{})
	a.Count(&fsm.Counts{Reserved: 1, Bytes: 10})
	expect("fewer jobs", "ns", 2, fsm.Usage{Jobs: 6, Bytes: 60, InFlight: 1})
	n.Remove("ns/a", &a)
	expect("one queue less", "ns", 1, fsm.Usage{Jobs: 5, Bytes: 50})
	n.Remove("ns/b", &b)
	n.Remove("plain", &plain)
	expect("no queue", "ns", 0, fsm.Usage{})
	expect("no plain queue", "", 0, fsm.Usage{})
	if len(n.byName) != 1 {
		t.Errorf("%d namespaces are held, want the one with a queue", len(n.byName))
	}
}
