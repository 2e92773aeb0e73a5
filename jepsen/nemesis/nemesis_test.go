package nemesis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/jepsen/lab"
	"github.com/belfrydb/belfry/jepsen/network"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestEveryNumber: the fault of each number is injected, or NotInjected says which workload brings
// it, or which feature it waits for.
func TestEveryNumber(t *testing.T) {
	injected, said := map[int]bool{}, map[int]bool{}
	for _, f := range All() {
		injected[f.Number] = true
	}
	for _, f := range NotInjected() {
		said[f.Number] = true
		if (f.Workload == "") == (f.Feature == "") || f.Fault == "" {
			t.Errorf("%+v: want a fault, and either a workload or a feature", f)
		}
		if f.Workload != "" && injected[f.Number] {
			t.Errorf("fault %d is injected, and said to be brought by the workload %s", f.Number, f.Workload)
		}
	}
	for number := 1; number <= FaultsMax; number++ {
		if !injected[number] && !said[number] {
			t.Errorf("fault %d is not injected, and nothing says why", number)
		}
	}
	for number := range injected {
		if number < 1 || number > FaultsMax {
			t.Errorf("there is no fault %d", number)
		}
	}
}

func TestNames(t *testing.T) {
	names := Names(All())
	slices.Sort(names)
	for i, name := range names {
		if i > 0 && name == names[i-1] {
			t.Errorf("%s is there twice", name)
		}
		if name == "all" || name == "none" || strings.ContainsAny(name, "+, ") {
			t.Errorf("%q cannot be asked for", name)
		}
	}
	for _, f := range All() {
		if f.What == "" || f.Inject == nil {
			t.Errorf("%s: says nothing, or does nothing", f.Name)
		}
	}
}

func TestPick(t *testing.T) {
	for _, c := range []struct {
		names string
		want  []string
		disk  []bool
	}{
		{"none", nil, nil},
		{"", nil, nil},
		{"wipe,kill-all", []string{"wipe", "kill-all"}, []bool{false, false}},
		{"power-all", []string{"power-all"}, []bool{true}},
		{"pause-one+power-all,restart", []string{"pause-one+power-all", "restart"}, []bool{true, false}},
	} {
		picked, err := Pick(c.names)
		if err != nil {
			t.Fatalf("%q: %v", c.names, err)
		}
		var disks []bool
		for _, f := range picked {
			disks = append(disks, f.NeedsDisk)
		}
		if diff := cmp.Diff(c.want, Names(picked)) + cmp.Diff(c.disk, disks); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.names, diff)
		}
	}
	if all, err := Pick("all"); err != nil || len(all) != len(All()) {
		t.Errorf("all: %d of %d, %v", len(all), len(All()), err)
	}
	for _, names := range []string{"kill-al", "kill-all,", "kill-all+", "+", "kill-all+nothing", "kill-all,none"} {
		if picked, err := Pick(names); err == nil {
			t.Errorf("%q: picked %q", names, Names(picked))
		} else if !strings.Contains(err.Error(), "kill-all") {
			t.Errorf("%q: the error does not say what there is: %v", names, err)
		}
	}
}

// fake returns a fault that writes down what it does.
func fake(name string, did *[]string, err error) Fault {
	return Fault{Name: name, Inject: func(context.Context, *Scene) (string, Heal, error) {
		if err != nil {
			return "", nil, err
		}
		*did = append(*did, name)
		return "did " + name, func(context.Context) error {
			*did = append(*did, "healed "+name)
			return nil
		}, nil
	}}
}

// TestTogether: faults that strike at once are healed in the opposite order, also those that had
// begun when another could not be injected.
func TestTogether(t *testing.T) {
	var did []string
	f := together("a+b", []Fault{fake("a", &did, nil), fake("b", &did, nil)})
	text, heal, err := f.Inject(t.Context(), &Scene{})
	if err != nil || text != "did a; did b" {
		t.Fatalf("%q, %v", text, err)
	}
	if err := heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b", "healed b", "healed a"}, did); diff != "" {
		t.Error(diff)
	}
	did = nil
	broken := errors.New("no")
	f = together("a+b", []Fault{fake("a", &did, nil), fake("b", &did, broken)})
	if _, _, err := f.Inject(t.Context(), &Scene{}); !errors.Is(err, broken) {
		t.Errorf("have %v", err)
	}
	if diff := cmp.Diff([]string{"a", "healed a"}, did); diff != "" {
		t.Error(diff)
	}
}

// TestRun: each fault strikes once, is held and healed, and is written down; one that cannot be
// injected ends the run.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var did []string
		s := &Scene{Rand: rand.New(rand.NewPCG(1, 1)), Now: func() time.Duration { return time.Since(began) },
			Logger: slog.New(slog.DiscardHandler)}
		var log Log
		rhythm := Rhythm{Calm: time.Second, Hold: 2 * time.Second, Once: true}
		if err := Run(t.Context(), s, []Fault{fake("a", &did, nil), fake("b", &did, nil)}, rhythm, &log); err != nil {
			t.Fatal(err)
		}
		faults := log.Faults()
		if len(faults) != 2 || len(did) != 4 {
			t.Fatalf("have %+v, which did %q", faults, did)
		}
		for _, f := range faults {
			if held := f.To - f.From; held < 1 || held > 3 {
				t.Errorf("%s was held for %v s", f.Name, held)
			}
		}
		err := Run(t.Context(), s, []Fault{fake("c", &did, errors.New("cannot"))}, rhythm, &log)
		if err == nil || !strings.Contains(err.Error(), "the nemesis c: cannot") {
			t.Errorf("have %v", err)
		}
	})
}

// TestAmbush: what passes before the answer that counts is let through, and so is what is asked.
func TestAmbush(t *testing.T) {
	for _, after := range []bool{false, true} {
		killed := 0
		a := &ambush{kill: func() { killed++ }, after: after, struck: make(chan struct{}, 1)}
		a.left.Store(2)
		var said []string
		for _, p := range []network.Passage{
			{}, {Passed: true}, {Answer: true}, {Answer: true, Passed: true}, {Answer: true}, {Answer: true, Passed: true},
			{Answer: true},
		} {
			said = append(said, fmt.Sprint(a.hear(p), killed))
		}
		want := []string{"0 0", "0 0", "0 0", "0 0", "1 1", "0 1", "1 1"}
		if after {
			want = []string{"0 0", "0 0", "0 0", "0 0", "0 0", "0 1", "0 1"}
		}
		if diff := cmp.Diff(want, said); diff != "" || len(a.struck) != 1 {
			t.Errorf("after=%v (-want +got):\n%s", after, diff)
		}
	}
}

// TestBitFlip: what became of a flipped bit is told from the file, and it is flipped back under
// what was appended.
func TestBitFlip(t *testing.T) {
	had := "abcdefgh\x00\x00"
	for _, c := range []struct {
		what string
		now  string
		want fate
	}{
		{"nothing", "abbdefgh\x00\x00", unread},
		{"something appended", "abbdefghij", unread},
		{"the bit overwritten", "abcdefgh\x00\x00", rewritten},
		{"a byte behind it overwritten", "abbdefgx\x00\x00", rewritten},
		{"cut off", "abbd", rewritten},
	} {
		path := filepath.Join(t.TempDir(), "file")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(had)
		flip := &bitFlip{path: path, at: 2, bit: 0, had: []byte("abbdefgh\x00\x00")}
		if err := flip.write(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "abbdefgh\x00\x00" {
			t.Fatalf("flipped: %q, %v", got, err)
		}
		write(c.now)
		if got, err := flip.after(); err != nil || got != c.want {
			t.Errorf("%s: have %q, %v, want %q", c.what, got, err, c.want)
		}
		if c.want != unread {
			continue
		}
		if err := flip.repair(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "abc"+c.now[3:] {
			t.Errorf("%s: repaired to %q, %v", c.what, got, err)
		}
	}
	flip := &bitFlip{path: filepath.Join(t.TempDir(), "gone")}
	if got, err := flip.after(); err != nil || got != forgotten {
		t.Errorf("a file that is gone: have %q, %v", got, err)
	}
}

// TestClients: the harness asks nodes as a client does, but is no client: cutting it off is no
// fault.
func TestClients(t *testing.T) {
	s := &Scene{Rand: rand.New(rand.NewPCG(1, 1)), Clients: func() []string { return []string{lab.Harness} },
		Lab: &lab.Lab{}}
	if have := s.clients(); len(have) > 0 {
		t.Errorf("clients: %q", have)
	}
	for name, inject := range map[string]func(context.Context, *Scene) (string, Heal, error){
		"client-cut": clientCut, "client-reset": clientReset} {
		if text, _, err := inject(t.Context(), s); !errors.Is(err, errNoClients) {
			t.Errorf("%s without clients: %q, %v", name, text, err)
		}
	}
}

// TestBrokenOff: the end of the time that faults have does not cut a heal short; an interrupt does,
// after it had a while.
func TestBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := make(chan struct{})
		s := &Scene{Rand: rand.New(rand.NewPCG(1, 1)), Now: func() time.Duration { return 0 },
			Logger: slog.New(slog.DiscardHandler), BrokenOff: broken}
		const heals = time.Minute
		slow := Fault{Name: "slow", Inject: func(context.Context, *Scene) (string, Heal, error) {
			return "", func(ctx context.Context) error {
				if !pause(ctx, heals) {
					return context.Cause(ctx)
				}
				return nil
			}, nil
		}}
		over, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.strike(over, slow, time.Hour, &Log{}); err != nil {
			t.Errorf("a heal after the time was over: %v", err)
		}
		began := time.Now()
		interrupted, interrupt := context.WithCancel(t.Context())
		interrupt()
		close(broken)
		if err := s.strike(interrupted, slow, time.Hour, &Log{}); !errors.Is(err, context.Canceled) ||
			time.Since(began) != brokenOffMax {
			t.Errorf("a heal that was broken off after %v: %v", time.Since(began), err)
		}
	})
}

// TestNoticesHang: a hung disk must be noticed, unless nothing was written to it or the node was
// killed; what was said before does not count.
func TestNoticesHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := storageFailed + ": an earlier disk\n"
		for _, c := range []struct {
			what, log string
			held      int64
			dead      bool
			count     string
			fails     bool
		}{
			{what: "noticed", log: before + storageFailed + ": it hangs\n", held: 3, count: "hung disks that were noticed"},
			{what: "not noticed", log: before, held: 3, fails: true},
			{what: "not written to", log: before, count: "hung disks that were not written to"},
			{what: "killed", log: before, held: 3, dead: true},
		} {
			s, counts := counted(1)
			n := &lab.Node{Name: "n1", Log: filepath.Join(t.TempDir(), "log")}
			if err := os.WriteFile(n.Log, []byte(c.log), 0o600); err != nil {
				t.Fatal(err)
			}
			var held atomic.Int64
			held.Store(c.held)
			ctx, cancel := context.WithTimeout(t.Context(), hungMax)
			err := s.noticesHang(ctx, n, int64(len(before)), &held, func() bool { return !c.dead })
			cancel()
			if (err != nil) != c.fails || c.count != "" && counts[c.count] != 1 {
				t.Errorf("%s: %v, counted %v", c.what, err, counts)
			}
		}
	})
}

// TestTransfer: a leadership is asked to move to a node that does not have it.
func TestTransfer(t *testing.T) {
	s, _ := counted(1)
	status := &belfryv1.GetClusterResponse{Shards: []*belfryv1.Shard{{Shard: 7, Leader: "n2",
		Voters: []string{"n1", "n2", "n3"}}}}
	to := map[string]bool{}
	for range 50 {
		r := s.transfer(status)
		if r.GetShard() != 7 {
			t.Fatalf("have %v", r)
		}
		to[r.GetTo()] = true
	}
	if !to["n1"] || !to["n3"] || len(to) != 2 {
		t.Errorf("moved to %v", to)
	}
	for _, none := range []*belfryv1.GetClusterResponse{nil,
		{Shards: []*belfryv1.Shard{{Leader: "n1", Voters: []string{"n1"}}}}} {
		if r := s.transfer(none); r != nil {
			t.Errorf("of %v: have %v", none, r)
		}
	}
}

// TestEmptied: a node is not empty while it is a member of a shard, even if no other node hears of
// its replica.
func TestEmptied(t *testing.T) {
	shard := func(voters, nonvoters []string) *belfryv1.Shard {
		return &belfryv1.Shard{Voters: voters, Nonvoters: nonvoters}
	}
	others := []string{"n1", "n2", "n3"}
	for _, c := range []struct {
		shards []*belfryv1.Shard
		want   bool
	}{
		{[]*belfryv1.Shard{shard(others, nil), shard(others, nil)}, true},
		{[]*belfryv1.Shard{shard(others, nil), shard([]string{"n1", "n4"}, nil)}, false},
		{[]*belfryv1.Shard{shard(others, []string{"n4"})}, false},
		{[]*belfryv1.Shard{shard(nil, nil)}, false},
		{nil, false},
	} {
		if have := emptied(&belfryv1.GetClusterResponse{Shards: c.shards}, "n4"); have != c.want {
			t.Errorf("%v: have %v", c.shards, have)
		}
	}
}

// TestNamesDamage: what a node says of damage counts, what it says of anything else does not.
func TestNamesDamage(t *testing.T) {
	for line, want := range map[string]bool{
		"belfry: storage: /runs/checksum-ignored/data/n3/stable is damaged at offset 0: checksum 02d4667d, computed " +
			"f77d7bf2": true,
		`{"level":"WARN","msg":"starting without the addresses of other nodes"}`:                         true,
		`{"level":"WARN","msg":"clearing a write cut off by a crash","found":"entry checksum mismatch"}`: false,
		`{"level":"INFO","msg":"ready","data":"/runs/checksum-ignored/data/n3"}`:                         false,
	} {
		text := "{\"msg\":\"one\"}\n" + line + "\n"
		if got := namesDamage(text, "/runs/checksum-ignored/data/n3", "/runs/checksum-ignored"); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

// TestCountInstall: a node that was down and was sent no snapshot is counted as that.
func TestCountInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, counts := counted(1)
		n := &lab.Node{Name: "n1", Log: filepath.Join(t.TempDir(), "log")}
		if err := os.WriteFile(n.Log, []byte("..."+installed+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, said := range []int64{0, 10} {
			if err := s.countInstall(t.Context(), n, said); err != nil {
				t.Error(err)
			}
		}
		want := map[string]int64{"nodes that had been down and were sent a snapshot": 1,
			"nodes that had been down and found the log that they lacked": 1}
		if diff := cmp.Diff(want, counts); diff != "" {
			t.Error(diff)
		}
	})
}

// TestCountTwin: a copy of a node that never wrote a word did not run.
func TestCountTwin(t *testing.T) {
	for text, want := range map[string]bool{"\n": false, "\n{}\n": true} {
		s, counts := counted(1)
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.countTwin(path, true); (err == nil) != want || (len(counts) == 1) != want {
			t.Errorf("%q: %v, counted %v", text, err, counts)
		}
	}
}

// TestApart: what goes on beside other faults chooses the same, however much those choose
// meanwhile.
func TestApart(t *testing.T) {
	choose := func(between int) (chosen []int) {
		s, _ := counted(1)
		own := s.apart()
		for range 5 {
			for range between {
				s.Rand.IntN(100)
			}
			chosen = append(chosen, own.Rand.IntN(100))
		}
		return chosen
	}
	if diff := cmp.Diff(choose(0), choose(3)); diff != "" {
		t.Error(diff)
	}
}

// TestNewestLike: of the snapshots of each group the newest is found.
func TestNewestLike(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"0/snapshots/0f.snap", "0/snapshots/1a.snap", "0/log/2.wal", "1/snapshots/03.snap",
		"1/other/9.snap"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := newestLike(dir, "snapshots/*.snap")
	want := []string{filepath.Join(dir, "1", "snapshots", "03.snap"), filepath.Join(dir, "0", "snapshots", "1a.snap")}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
