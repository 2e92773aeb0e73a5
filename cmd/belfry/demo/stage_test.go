package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/client"
)

// perform plays the story in virtual time and returns what happened.
func perform(t *testing.T, fake *fakeQueues) (*board, error) {
	t.Helper()
	b := newBoard(time.Now(), storyLength)
	ctx, cancel := context.WithTimeout(t.Context(), storyLength+endWait)
	defer cancel()
	return b, (&stage{board: b, queues: fake, nodes: fakeNodes{fake.fails}, seed: 1}).play(ctx)
}

// TestStoryInVirtualTime compares each job's life, to the millisecond, with what the story
// promises.
func TestStoryInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := perform(t, newFakeQueues())
		if err != nil {
			t.Fatal(err)
		}
		if err := b.check(); err != nil {
			t.Error(err)
		}
		v := b.view(time.Now())
		lives := make(map[string][]string)
		for _, l := range v.lanes {
			for _, e := range l.events {
				glyph, _ := mark(e.is)
				lives[l.job] = append(lives[l.job], fmt.Sprintf("%s%d", glyph, e.at.Milliseconds()))
			}
		}
		want := map[string][]string{
			"kettle":    {"├0", "◆3000", "✓3700"},
			"payment":   {"├0", "◆2000", "✗2600", "◆4600", "✗5200", "◆9200", "✓9800"},
			"webhook":   {"├0", "◆1000", "✗1500", "◆2500", "✗3000", "◆4000", "†4500", "↻13000", "◆13000", "✓13500"},
			"order-42":  {"├0", "⊘9000"},
			"parcel":    {"├0", "»7000", "◆11000", "✓11600"},
			"report":    {"├0", "◆4000", "+5200", "+6400", "+7600", "✓8800"},
			"backup":    {"├0", "◆6000", "!9000", "◆9000", "━9500", "✓9700"},
			"invoice-7": {"├0", "=5000", "◆12000", "✓12500"},
			"birthday":  {"├0", "◆14000", "✓14600"},
			"goodnight": {"├0", "◆16000", "✓16700"},
		}
		// At one moment the holder that is gone and the one that comes are in no order.
		slices.Sort(lives["backup"])
		slices.Sort(want["backup"])
		if diff := cmp.Diff(want, lives); diff != "" {
			t.Errorf("lives (-want +got):\n%s", diff)
		}
		if want := []turn{{10 * time.Second, "n2", true}, {14 * time.Second, "n2", false}}; !slices.Equal(v.turns, want) {
			t.Errorf("nodes: %v, want %v", v.turns, want)
		}
		if len(v.rings) != choirJobs || quantile(v.late, 1) != 0 {
			t.Errorf("%d of the choir rang, the latest %v late; want %d and none late", len(v.rings), quantile(v.late, 1),
				choirJobs)
		}
	})
}

// TestStoryEndsWithinItsTime leaves room between the last event and the end of the picture.
func TestStoryEndsWithinItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if _, err := perform(t, newFakeQueues()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > storyLength-time.Second {
			t.Errorf("the story takes %v of the picture's %v", took, storyLength)
		}
	})
}

// TestErrorsSayWhatWasBeingDone lets each call fail once it is made.
func TestErrorsSayWhatWasBeingDone(t *testing.T) {
	for method, says := range map[string]string{
		"Put": "putting kettle: broken", "PutBatch": "putting the choir: broken",
		"Reserve " + storyQueue: "reserving from the story: broken",
		"Reserve " + choirQueue: "reserving from the choir: broken", "Ack": "acking a job of the choir: broken",
		"Nack":   "nacking webhook: broken",
		"Extend": "extending report: broken", "Cancel": "cancelling order-42: broken",
		"Reschedule": "rescheduling parcel: broken",
		"Redrive":    "redriving webhook: broken", "StopLeader": "stopping a node: broken",
		"StartAgain": "starting a node again: broken",
	} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFakeQueues()
				fake.fails[method] = errors.New("broken")
				if _, err := perform(t, fake); err == nil || err.Error() != says {
					t.Errorf("got %v, want %q", err, says)
				}
			})
		})
	}
}

// TestBrokenServersAreFoundOut plays the story with servers that break a promise each.
func TestBrokenServersAreFoundOut(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*fakeQueues)
		says  string
	}{
		{"rings early", func(f *fakeQueues) {
			f.handsOut = func(j *client.Job) {
				if j.ID == "birthday" {
					j.DueAt = j.DueAt.Add(5 * time.Millisecond)
				}
			}
		}, "1 jobs rang before their time"},
		{"forgets ids", func(f *fakeQueues) { f.forgets = true }, "invoice-7 was put twice and is there twice"},
		{"takes a lapsed lease", func(f *fakeQueues) { f.acksStale = true }, "want it refused"},
		{"hands out what nobody put", func(f *fakeQueues) {
			f.handsOut = func(j *client.Job) {
				if j.ID == "kettle" {
					j.ID = "stranger"
				}
			}
		}, `job "stranger" has no part in the story`},
		{"loses a job", func(f *fakeQueues) {
			f.handsOut = func(j *client.Job) {
				if j.ID == "goodnight" {
					f.jobs = slices.DeleteFunc(f.jobs, func(other *fakeJob) bool {
						return other.id == "birthday" || other.id == "goodnight"
					})
				}
			}
		}, "goodnight"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFakeQueues()
				test.spoil(fake)
				b, err := perform(t, fake)
				err = errors.Join(err, b.check())
				if err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("got %v, want %q", err, test.says)
				}
			})
		})
	}
}

// TestSeedDecidesTheChoir plays the same choir for the same seed, and another for another.
func TestSeedDecidesTheChoir(t *testing.T) {
	rings := func(seed uint64) (at []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			b := newBoard(time.Now(), storyLength)
			if err := (&stage{board: b, queues: newFakeQueues(), seed: seed}).play(t.Context()); err != nil {
				t.Fatal(err)
			}
			at = slices.Sorted(slices.Values(b.view(time.Now()).rings))
		})
		return at
	}
	if !slices.Equal(rings(1), rings(1)) {
		t.Error("one seed, two choirs")
	}
	if slices.Equal(rings(1), rings(2)) {
		t.Error("two seeds, one choir")
	}
}
