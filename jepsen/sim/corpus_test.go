package sim

import (
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/jepsen/sim/tally"
)

// The corpus are worlds that were wrong once or are odd, run before all others. A line of
// testdata/corpus.txt has a seed; the verdict, which is "valid" or a rule; a mistake of
// planted_test.go that is planted, or "-"; a count with how much of it there is at least, or "-";
// and why it is kept.
const corpusFile = "testdata/corpus.txt"

// corpusLine is one world of the corpus.
type corpusLine struct {
	seed                  uint64
	verdict, mistake, odd string
	reason                string
}

func readCorpus(t *testing.T) []corpusLine {
	t.Helper()
	text, err := os.ReadFile(corpusFile)
	if err != nil {
		t.Fatal(err)
	}
	var list []corpusLine
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, " | ")
		if len(fields) != 5 {
			t.Fatalf("%s: %q has not five fields", corpusFile, line)
		}
		seed, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			t.Fatalf("%s: %q: %v", corpusFile, line, err)
		}
		list = append(list, corpusLine{seed, fields[1], fields[2], fields[3], fields[4]})
	}
	return list
}

func TestCorpus(t *testing.T) {
	plants := allPlanted()
	for _, c := range readCorpus(t) {
		cfg := Config{}
		if c.mistake != "-" {
			i := slices.IndexFunc(plants, func(p planted) bool { return p.name == c.mistake })
			if i < 0 {
				t.Errorf("seed %d: there is no mistake %q", c.seed, c.mistake)
				continue
			}
			cfg = Config{ModelEvery: math.MaxUint64, mistakes: plants[i].make}
		}
		o := Run(c.seed, cfg)
		verdict := "valid"
		if o.Violation != nil {
			verdict = o.Violation.Rule
		}
		if verdict != c.verdict {
			t.Errorf("%s (%s): expected %s\n%v", c.reason, c.mistake, c.verdict, o)
		}
		if c.odd != "-" && !hasAtLeast(t, o.Tally, c.odd) {
			t.Errorf("seed %d: not as odd any more as %q says (%s); another seed must take its place", c.seed, c.odd, c.reason)
		}
	}
}

// hasAtLeast reports whether a world has as much of something as a text like "entries that survived
// their leader >= 3" says.
func hasAtLeast(t *testing.T, counted tally.Tally, text string) bool {
	t.Helper()
	name, least, ok := strings.Cut(text, " >= ")
	kind := slices.Index(tally.Names(), name)
	n, err := strconv.ParseUint(least, 10, 64)
	if !ok || kind < 0 || err != nil {
		t.Fatalf("%s: %q is no count and its least value", corpusFile, text)
	}
	return counted[kind] >= n
}
