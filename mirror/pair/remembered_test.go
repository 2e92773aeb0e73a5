package pair

import (
	"testing"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
)

// TestDedupAppears: an import that begins in the midst of the end of another has the queue
// remember, and knows how it was.
func TestDedupAppears(t *testing.T) {
	for _, at := range []string{"before", "while"} {
		t.Run(at, func(t *testing.T) {
			c := belfrytest.Start(t).Client(t)
			if _, err := c.Admin().CreateQueue(t.Context(), "all", 1, nil); err != nil {
				t.Fatal(err)
			}
			one, two := New(Options{Belfry: c, RedisQueue: "r1", Queue: "all", Share: 1}),
				New(Options{Belfry: c, RedisQueue: "r2", Queue: "all", Share: 1})
			if err := one.RememberIDs(t.Context(), "all"); err != nil {
				t.Fatal(err)
			}
			n := notes{c, "all"}
			was, found, err := n.was(t.Context())
			if err != nil || !found || was {
				t.Fatalf("it was %v, %v, %v", was, found, err)
			}
			if err := n.forget(t.Context(), markID(one.control)); err != nil {
				t.Fatal(err)
			}
			if at == "while" { // the marks were looked at, and the mark comes before the note is forgotten
				if err := two.markDedup(t.Context(), "all"); err != nil {
					t.Fatal(err)
				}
			}
			again, err := one.setBack(t.Context(), n, was)
			if err != nil || again != (at == "while") {
				t.Errorf("one came meanwhile: %v, %v", again, err)
			}
			if at == "before" {
				if err := two.RememberIDs(t.Context(), "all"); err != nil {
					t.Fatal(err)
				}
			}
			if !forever(t, c) {
				t.Error("ids are forgotten while an import is under way")
			}
			if was, found, err := n.was(t.Context()); err != nil || !found || was {
				t.Errorf("it was %v, %v, %v", was, found, err)
			}
			if err := two.RestoreDedup(t.Context(), "all"); err != nil || forever(t, c) {
				t.Errorf("the end of the second: %v, ids are remembered: %v", err, forever(t, c))
			}
		})
	}
}

// forever looks whether the queue all remembers ids without end.
func forever(t *testing.T, c *client.Client) bool {
	t.Helper()
	queue, err := c.Admin().Queue(t.Context(), "all")
	if err != nil {
		t.Fatal(err)
	}
	forever := queue.Settings.DedupForever
	return forever != nil && *forever
}
