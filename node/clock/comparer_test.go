package clock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock/clocktest"
)

const half = DefaultBound / 2

func TestJudge(t *testing.T) {
	const far = 10 * time.Second
	at := func(stamp, wall time.Duration) Reckoned { return Reckoned{fsm.Time(stamp), fsm.Time(wall)} }
	right := at(0, 0)
	tests := []struct {
		name  string
		known map[string]Reckoned
		// off is how far a's stamps are from the median, fit the nodes that may lead, follow the
		// nodes that anchor their clocks anew.
		off    time.Duration
		fit    string
		follow string
		voters int // if there are more than the known ones
	}{
		{"one alone", map[string]Reckoned{"a": at(far, far)}, 0, "a", "", 0},
		{"all right", map[string]Reckoned{"a": right, "b": right, "c": right}, 0, "abc", "", 0},
		{"within half the bound", map[string]Reckoned{
			"a": at(half, half), "b": right, "c": at(-half, -half),
		}, half, "abc", "", 0},
		{"just beyond", map[string]Reckoned{"a": at(half+1, half+1), "b": right, "c": right}, half + 1, "bc", "", 0},
		{"one far ahead", map[string]Reckoned{"a": at(far, far), "b": right, "c": right}, far, "bc", "", 0},
		{"one far behind", map[string]Reckoned{"a": right, "b": at(-far, -far), "c": right}, 0, "ac", "", 0},
		{"of two the one that is behind", map[string]Reckoned{"a": at(far, far), "b": right}, far, "b", "", 0},
		{"a wall clock stepped, nobody agrees", map[string]Reckoned{
			"a": at(0, far), "b": right, "c": right,
		}, 0, "abc", "", 0},
		{"suspended, the others agree with its wall clock", map[string]Reckoned{
			"a": at(-far, 0), "b": right, "c": right,
		}, 0, "abc", "a", 0},
		{"suspended, and the wall clock is wrong too", map[string]Reckoned{
			"a": at(-far, far), "b": right, "c": right,
		}, -far, "bc", "", 0},
		{"all were suspended", map[string]Reckoned{"a": at(-far, 0), "b": at(-far, 0), "c": at(-far, 1)}, 0, "abc", "abc", 0},
		{"most were suspended", map[string]Reckoned{"a": right, "b": at(-far, 0), "c": at(-far, 0)}, 0, "abc", "bc", 0},
		{"set right after a start in the wrong year", map[string]Reckoned{
			"a": at(far, 0), "b": right, "c": right,
		}, 0, "abc", "a", 0},
		{"four of five", map[string]Reckoned{
			"a": right, "b": right, "c": at(far, far), "d": at(2*far, 2*far),
		}, 0, "ab", "", 0},
		{"suspended, and a third does not answer", map[string]Reckoned{"a": at(-far, 0), "b": right}, 0, "ab", "a", 3},
		{"the wall clock of the one that is ahead is behind, and a third does not answer", map[string]Reckoned{
			"a": at(far, -far), "b": right,
		}, far, "b", "", 3},
		{"two of five, though they agree", map[string]Reckoned{"a": at(-far, 0), "b": right}, 0, "a", "", 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Judge(tt.known, max(tt.voters, len(tt.known)), DefaultBound)
			var fit, follow string
			for _, server := range []string{"a", "b", "c", "d"} {
				if c.Fits(server) {
					fit += server
				}
				if c.Follows(server) {
					follow += server
				}
			}
			if c.Off("a") != tt.off || fit != tt.fit || follow != tt.follow {
				t.Errorf("a is %v off, %q fit, %q follow; want %v, %q, %q", c.Off("a"), fit, follow, tt.off, tt.fit, tt.follow)
			}
			if near := c.NearMedian(); near != len(tt.fit) {
				t.Errorf("%d are near the median, want %d", near, len(tt.fit))
			}
		})
	}
}

// farClock is a peer's clock, as far away as a test says.
type farClock struct {
	off time.Duration
	// there and back are how long question and answer are on their way; the first of them only for the
	// first answer, and so on. The last one stays.
	there, back []time.Duration
	err         error
}

// farClocks implements Clocks in a bubble.
type farClocks struct {
	mu    sync.Mutex
	peers map[string]*farClock
	asked map[string]int
}

func (f *farClocks) ReadClock(ctx context.Context, serverID string) (Reading, error) {
	f.mu.Lock()
	p, n := f.peers[serverID], f.asked[serverID]
	f.asked[serverID]++
	f.mu.Unlock()
	if p == nil {
		<-ctx.Done()
		return Reading{}, context.Cause(ctx)
	}
	clocktest.Elapse(p.there[min(n, len(p.there)-1)])
	now := System().Wall() + fsm.Time(p.off)
	clocktest.Elapse(p.back[min(n, len(p.back)-1)])
	return Reading{Stamp: now, Wall: now}, p.err
}

// far returns a peer whose question and answer take as long as named.
func far(off, there, back time.Duration) *farClock {
	return &farClock{off: off, there: []time.Duration{there}, back: []time.Duration{back}}
}

func newTestClocks(peers map[string]*farClock) (*Comparer, *farClocks) {
	source := &farClocks{peers: peers, asked: map[string]int{}}
	own := NewNode(System(), DefaultBound, func() bool { return false })
	return NewComparer("a", own, DefaultBound, source), source
}

var errPeer = errors.New("the peer does not answer")

func TestReadingAPeersClock(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name string
		peer *farClock
		// off is what the clock is taken to be off, asked how often it was asked for that.
		off   time.Duration
		asked int
		err   error
	}{
		{"at once", far(time.Second, 0, 0), time.Second, 1, nil},
		{"a way that is even", far(time.Second, 20*ms, 20*ms), time.Second, 1, nil},
		{"a way that is uneven costs half of it", far(0, 0, 40*ms), -20 * ms, 1, nil},
		{"a slow way is tried again, and the best counts", &farClock{
			there: []time.Duration{0, 0, 0}, back: []time.Duration{200 * ms, 80 * ms, 160 * ms},
		}, -40 * ms, 3, nil},
		{"the first is slow because it connects", &farClock{
			there: []time.Duration{time.Second, ms}, back: []time.Duration{0, ms},
		}, 0, 2, nil},
		{"too slow to say anything", far(0, 126*ms, 126*ms), 0, 3, errClockSlow},
		{"an error", &farClock{there: []time.Duration{0}, back: []time.Duration{0}, err: errPeer}, 0, 1, errPeer},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, source := newTestClocks(map[string]*farClock{"b": tt.peer})
				for range 2 { // the second finds the first's
					got, err := k.read(t.Context(), "b")
					if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
						t.Fatalf("the error is %v, want %v", err, tt.err)
					}
					if err != nil {
						return
					}
					reading, mono := k.own.Read()
					own := reckon(reading, mono)
					if off := got.Stamp.Sub(own.Stamp); (off - tt.off).Abs() > time.Microsecond {
						t.Errorf("the clock is taken to be %v off, want %v", off, tt.off)
					}
				}
				if source.asked["b"] != tt.asked {
					t.Errorf("asked %d times, want %d", source.asked["b"], tt.asked)
				}
				clocktest.Elapse(Fresh)
				if _, err := k.read(t.Context(), "b"); err != nil || source.asked["b"] == tt.asked {
					t.Errorf("an old reading was used again: %v", err)
				}
			})
		})
	}
}

func TestComparing(t *testing.T) {
	voters := []string{"a", "b", "c"}
	tests := []struct {
		name  string
		peers map[string]*farClock
		fits  bool
		err   error
		// least and most bound how long it may take.
		least, most time.Duration
	}{
		{"all agree", map[string]*farClock{"b": far(0, 0, 0), "c": far(0, 0, 0)}, true, nil, 0, 0},
		{"the first that agrees is enough", map[string]*farClock{"b": far(0, 0, 0)}, true, nil, 0, 0},
		{"one disagrees, the other decides", map[string]*farClock{
			"b": far(-time.Hour, 0, 0), "c": far(0, 0, 90*time.Millisecond),
		}, true, nil, time.Millisecond, time.Second},
		{"two disagree", map[string]*farClock{"b": far(-time.Hour, 0, 0), "c": far(-time.Hour, 0, 0)}, false, nil, 0, 0},
		{"the only other one is behind", map[string]*farClock{"b": far(-time.Hour, 0, 0)}, false, nil, PeerTimeout,
			PeerTimeout},
		{"nobody answers", nil, false, ErrNoMajority, PeerTimeout, PeerTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, _ := newTestClocks(tt.peers)
				start := time.Now()
				c, err := k.Compare(t.Context(), voters)
				if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
					t.Fatalf("the error is %v, want %v", err, tt.err)
				}
				if err == nil && c.Fits("a") != tt.fits {
					t.Errorf("this node fits: %v", c.Fits("a"))
				}
				if took := time.Since(start); took < tt.least || took > tt.most {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// Six shards that begin to be led at once cost one question a peer.
func TestShardsShareReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, source := newTestClocks(map[string]*farClock{
			"b": far(0, time.Millisecond, time.Millisecond), "c": far(0, time.Millisecond, time.Millisecond),
		})
		var comparing sync.WaitGroup
		for range 6 {
			comparing.Go(func() {
				if _, err := k.Compare(t.Context(), []string{"a", "b", "c"}); err != nil {
					t.Error(err)
				}
			})
		}
		comparing.Wait()
		if got := fmt.Sprint(source.asked); got != "map[b:1 c:1]" {
			t.Errorf("asked were %s", got)
		}
	})
}

func TestNodeClock(t *testing.T) {
	const second = time.Second
	tests := []struct {
		name  string
		step  time.Duration
		alone bool
		// off is how far from the wall clock the node is at once and after 100 s, asks tells that it
		// wants others to be asked.
		off, later time.Duration
		asks       bool
	}{
		{"right", 0, false, 0, 0, false},
		{"ahead by half the bound", -half, false, half, half - 50*time.Millisecond, false},
		{"behind by half the bound", half, false, -half, -half + 50*time.Millisecond, false},
		{"far ahead", -10 * second, false, 10 * second, 10*second - 50*time.Millisecond, true},
		{"far behind", 10 * second, false, -10 * second, -10*second + 50*time.Millisecond, true},
		{"far ahead, alone", -10 * second, true, 0, 0, false},
		{"far behind, alone", 10 * second, true, 0, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hand := clocktest.NewHand()
			clock := NewNode(hand, DefaultBound, func() bool { return tt.alone })
			hand.Step(tt.step)
			if off := clock.Wall().Sub(hand.Wall()); off != tt.off {
				t.Errorf("at once it is %v off, want %v", off, tt.off)
			}
			if asks := len(clock.Strayed) > 0; asks != tt.asks {
				t.Errorf("it asks for others: %v", asks)
			}
			for range 100 {
				hand.Run(second)
				clock.Wall()
			}
			if off := clock.Wall().Sub(hand.Wall()); off != tt.later {
				t.Errorf("later it is %v off, want %v", off, tt.later)
			}
			clock.follow()
			if off := clock.Wall().Sub(hand.Wall()); off != 0 {
				t.Errorf("anchored anew it is %v off", off)
			}
		})
	}
}

// A suspension is counted once, and what may be an error of the measurement is not.
func TestSystemClockCountsSuspensions(t *testing.T) {
	clock := &systemClock{start: time.Now()}
	for _, step := range []struct{ total, want time.Duration }{
		{-time.Second, 0}, {time.Millisecond, 0}, {time.Hour, time.Hour}, {time.Hour - time.Millisecond, time.Hour},
		{time.Hour + suspendedLeast - 1, time.Hour}, {2 * time.Hour, 2 * time.Hour},
	} {
		clock.resumed(step.total)
		if got := time.Duration(clock.missed.Load()); got != step.want {
			t.Errorf("after %v in all, %v are counted, want %v", step.total, got, step.want)
		}
	}
	if total, ok := suspendedTime(); ok && total < 0 {
		t.Errorf("the machine was suspended for %v", total)
	}
}

// TestSuspendedTimeIsReadRarely: only if the wall clock has moved against the monotonic one, or after
// some time.
func TestSuspendedTimeIsReadRarely(t *testing.T) {
	clock := &systemClock{start: time.Now()}
	clock.distance.Store(int64(time.Hour))
	clock.checked.Store(int64(time.Minute))
	for _, tt := range []struct {
		since, distance time.Duration
		want            bool
	}{
		{time.Minute, time.Hour, false},
		{time.Minute + suspendedCheck - 1, time.Hour + time.Millisecond, false},
		{time.Minute + suspendedCheck, time.Hour, true},
		{time.Minute, time.Hour + suspendedLeast, true},
		{time.Minute, time.Hour - suspendedLeast, true},
	} {
		if got := clock.mayHaveMissed(tt.since, int64(tt.distance)); got != tt.want {
			t.Errorf("after %v, %v ahead: %v", tt.since, tt.distance, got)
		}
	}
}

// BenchmarkMonotonic is a reading of the monotonic clock: each command needs several.
func BenchmarkMonotonic(b *testing.B) {
	for clock := System(); b.Loop(); {
		clock.Monotonic()
	}
}

// steppedClock is a clock whose wall clock was stepped.
type steppedClock struct {
	Source
	off time.Duration
}

func (s *steppedClock) Wall() fsm.Time { return s.Source.Wall() + fsm.Time(s.off) }

// TestOnlyAMajorityIsFollowed: a node whose wall clock is wrong does not anchor its clock at it
// because the first that answer seem to agree.
func TestOnlyAMajorityIsFollowed(t *testing.T) {
	const late = 90 * time.Millisecond // after the others
	tests := []struct {
		name   string
		step   time.Duration
		voters []string
		peers  map[string]*farClock
	}{
		{"back, of three", -10 * time.Second, []string{"a", "b", "c"}, map[string]*farClock{
			"b": far(0, 0, 0), "c": far(0, 0, late),
		}},
		{"back, of three of which one is silent", -10 * time.Second, []string{"a", "b", "c"},
			map[string]*farClock{"b": far(0, 0, 0)}},
		{
			"ahead, with one of five", 10 * time.Second, []string{"a", "b", "c", "d", "e"},
			map[string]*farClock{
				"b": far(10*time.Second, 0, 0), "c": far(0, 0, late), "d": far(0, 0, late), "e": far(0, 0, late),
			},
		},
		{
			"ahead, with one of four", 10 * time.Second, []string{"a", "b", "c", "d"},
			map[string]*farClock{"b": far(10*time.Second, 0, 0), "c": far(0, 0, late), "d": far(0, 0, late)},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wall := &steppedClock{Source: System()}
				own := NewNode(wall, DefaultBound, func() bool { return false })
				k := NewComparer("a", own, DefaultBound, &farClocks{peers: tt.peers, asked: map[string]int{}})
				wall.off = tt.step
				_, err := k.Compare(t.Context(), tt.voters)
				reading, _ := own.Read()
				if off := reading.Stamp.Sub(System().Wall()).Abs(); off > time.Second {
					t.Errorf("the clock is %v off: it has followed (%v)", off, err)
				}
			})
		})
	}
}
