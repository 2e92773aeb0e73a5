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
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/jepsen/network"
)

// TestEveryNumber: each fault of RELIABILITY §4.2 is injected, or it is said who brings it, or what it waits for.
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

// TestTogether: faults that strike at once are healed in the opposite order, also those that had begun when another could not be injected.
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

// TestRun: each fault strikes once, is held and healed, and is written down; one that cannot be injected ends the run.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var did []string
		s := &Scene{Rand: rand.New(rand.NewPCG(1, 1)), Now: func() time.Duration { return time.Since(began) }, Logger: slog.New(slog.DiscardHandler)}
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
			{}, {Passed: true}, {Answer: true}, {Answer: true, Passed: true}, {Answer: true}, {Answer: true, Passed: true}, {Answer: true},
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

// TestBitFlip: what became of a flipped bit is told from the file, and it is flipped back under what was appended.
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
		if err := flip.mend(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "abc"+c.now[3:] {
			t.Errorf("%s: mended to %q, %v", c.what, got, err)
		}
	}
	flip := &bitFlip{path: filepath.Join(t.TempDir(), "gone")}
	if got, err := flip.after(); err != nil || got != forgotten {
		t.Errorf("a file that is gone: have %q, %v", got, err)
	}
}
