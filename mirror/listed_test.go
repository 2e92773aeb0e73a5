package mirror_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// TestInspectLists shows what cannot be brought over, before an import and after it was set aside:
// where, why, how long, and no byte that a terminal heeds.
func TestInspectLists(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	offer(t, r, "orders", "good")
	add(t, r, "-5", member(1, "negative"))
	add(t, r, "1e17", "\x1b[31mred\xff"+strings.Repeat("x", 1<<20))
	if err := r.RPush(t.Context(), listKey, "an orphan").Err(); err != nil {
		t.Fatal(err)
	}
	wholes := map[int]string{25: member(1, "negative"), 9: "an orphan", 1048585: "\x1b[31mred\xff" +
		strings.Repeat("x", mirror.WholeBytes-9)}
	look := func(bad, orphans string) {
		t.Helper()
		found, err := mirror.Inspect(t.Context(), r, "orders")
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, one := range found.Listed {
			if want := wholes[one.Bytes]; string(one.Whole) != want {
				t.Errorf("of %d bytes it has %q, want %q", one.Bytes, one.Whole, want)
			}
			got[one.Key+" "+one.Score] = fmt.Sprintf("%d %.20s %.20s", one.Bytes, one.Member, one.Why)
		}
		want := map[string]string{
			bad + " -5":    `25 \brand\x00\x00\x00\x the score "-5" is ne`,
			bad + " 1e+17": `1048585 \x1b[31mred\xffxxxxx the score "1e+17" is`,
			orphans + " ":  "9 an orphan it is in the list on",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("listed (-want +got):\n%s", diff)
		}
	}
	look(timerKey, listKey)
	if counts, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders", SetAside: true,
		Share: 1}); err != nil || counts.SetAside != 2 || counts.Orphans != 1 {
		t.Fatalf("the import counted %+v, %v", counts, err)
	}
	look("belfry_aside:{orders}", "belfry_orphans:{orders}")
}

// TestInspectListsSome: of very many there are some of each key.
func TestInspectListsSome(t *testing.T) {
	r := redistest.Start(t).Client()
	want := map[string]int{}
	for key, command := range map[string]string{timerKey: "ZADD", "belfry_aside:{orders}": "ZADD", listKey: "RPUSH",
		"belfry_orphans:{orders}": "RPUSH"} {
		args := []any{command, key}
		for n := range mirror.ListedMax + 20 {
			if command == "ZADD" {
				args = append(args, n+1)
			}
			args = append(args, fmt.Sprint(command, n))
		}
		if err := r.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		want[key] = mirror.ListedMax
	}
	found, err := mirror.Inspect(t.Context(), r, "orders")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, one := range found.Listed {
		got[one.Key]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}
