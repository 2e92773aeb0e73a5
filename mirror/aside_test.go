package mirror_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// TestSetAside moves what Belfry cannot take out of the way as it is, brings the others over, and
// gives all of it back.
func TestSetAside(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	soon := time.Now().Add(time.Hour).UnixMilli()
	offer(t, r, "orders", "a", "b")
	for n, bad := range []struct {
		score  any
		member string
	}{
		{-5, member(1, "negative")},
		{"1700000000123.5", member(2, "fraction")},
		{"inf", member(3, "infinite")},
		{"-inf", member(4, "infinite")},
		{"1e17", member(5, "exponent")},
		{"3093527980800000", member(6, "far")},
		{soon, ""},
		{soon, "short"},
		{soon, member(7, strings.Repeat("x", 1<<20+1))},
		{soon, member(8, strings.Repeat("y", 5<<20))},
	} {
		add(t, r, bad.score, bad.member)
		if n%2 == 0 {
			offer(t, r, "orders", string(rune('c'+n))) // among good ones
		}
	}
	for _, place := range []string{"an orphan", "another"} {
		if err := r.RPush(t.Context(), listKey, place).Err(); err != nil {
			t.Fatal(err)
		}
	}
	before := entries(t, r, "orders")
	counts, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders", SetAside: true, Share: 1})
	if err != nil || counts.SetAside != 10 || counts.Acked != 7 || counts.Committed != 7 || counts.Orphans != 2 {
		t.Fatalf("the import counted %+v, %v", counts, err)
	}
	aside := scores(t, r, "belfry_aside:{orders}")
	for member, score := range aside {
		if before[member] != score {
			t.Errorf("%.40q has the score %s aside, had %s", member, score, before[member])
		}
	}
	if len(aside) != 10 || len(entries(t, r, "orders")) != 0 || delayed(t, c, "orders") != 7 {
		t.Errorf("%d are aside, %d left, %d in Belfry", len(aside), len(entries(t, r, "orders")), delayed(t, c, "orders"))
	}
	var checks []pair.Check
	back, err := mirror.Rollback(t.Context(), r, c, mirror.ExportOptions{RedisQueue: "orders", Share: 1,
		Checked: func(all []pair.Check) { checks = all }})
	if err != nil || back.Aside != 10 || back.Original != 7 || back.Orphans != 2 {
		t.Errorf("the rollback counted %+v, %v", back, err)
	}
	for _, check := range checks {
		if check.OK != (check.What != "a process of Redisson listens") {
			t.Errorf("it checked %+v", check)
		}
	}
	if after := entries(t, r, "orders"); !maps.Equal(before, after) {
		t.Errorf("%d entries came, %d are back, and they are not the same", len(before), len(after))
	}
	places := r.LRange(t.Context(), listKey, 0, -1).Val()
	if orphans := slices.DeleteFunc(slices.Clone(places), func(m string) bool {
		_,
			ok := before[m]
		return ok
	}); len(places) != 19 || !slices.Equal(orphans, []string{"an orphan", "another"}) {
		t.Errorf("the list has %d places, without due times %q", len(places), orphans)
	}
	if n := r.Exists(t.Context(), "belfry_aside:{orders}", "belfry_handover:{orders}",
		"belfry_orphans:{orders}").Val(); n != 0 {
		t.Errorf("%d keys of the mirror still have entries", n)
	}
}

// TestFollowerStopsAtBadEntry has one come while an import follows: it is told, and the entry is
// where it was.
func TestFollowerStopsAtBadEntry(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	offer(t, r, "orders", "a")
	first := true
	_, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders", Follow: true, Share: 1,
		Progress: func(mirror.ImportCounts) {
			if first {
				first = false
				add(t, r, "-5", member(1, "x"))
				offer(t, r, "orders", "b")
			}
		}})
	var bad *mirror.BadEntry
	if !errors.As(err, &bad) || string(bad.Member) != member(1, "x") || bad.Score != "-5" ||
		!strings.Contains(err.Error(), "negative") {
		t.Errorf("the import ended with %v", err)
	}
	if diff := cmp.Diff(map[string]string{member(1, "x"): "-5"}, entries(t, r, "orders")); diff != "" {
		t.Errorf("entries of Redis (-want +got):\n%s", diff)
	}
	if n := delayed(t, c, "orders"); n != 2 {
		t.Errorf("Belfry has %d jobs", n)
	}
}

// TestClaimsStayBounded has payloads of 1 MiB, as large as a body may be, after small ones: from
// the list, and as ghosts.
func TestClaimsStayBounded(t *testing.T) {
	for _, ghosts := range []bool{false, true} {
		r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
		soon := time.Now().Add(time.Hour).UnixMilli()
		for n := range 31 { // a script reads 32 at a time by then
			add(t, r, soon+int64(n), member(byte(n), "small"))
		}
		for n := range 20 {
			add(t, r, soon+int64(100+n), member(byte(100+n), strings.Repeat("x", 1<<20)))
		}
		if ghosts {
			if err := r.Del(t.Context(), listKey).Err(); err != nil {
				t.Fatal(err)
			}
		}
		var last, most int64
		counts, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "orders", Share: 1,
			Progress: func(n mirror.ImportCounts) {
				last, most = n.Claimed, max(most, n.Claimed-last-31*isOne(last == 0))
			}})
		if err != nil || counts.Acked != 51 || counts.Committed != 51 {
			t.Fatalf("the import counted %+v, %v", counts, err)
		}
		if most > 4 {
			t.Errorf("one claim took %d entries of 1 MiB", most)
		}
	}
}

func isOne(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// TestBytesStay has payloads that are no text.
func TestBytesStay(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	want := map[string]bool{"\xff\xfe\x00": true, "": true, "\x00": true, "订单": true, "a\nb": true}
	offer(t, r, "\xff{q}\x00", "\xff\xfe\x00", "", "\x00", "订单", "a\nb")
	if _, err := mirror.Import(t.Context(), r, c, mirror.ImportOptions{RedisQueue: "\xff{q}\x00",
		Queue: "orders"}); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for job, err := range c.List(t.Context(), "orders", client.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		whole, err := c.Get(t.Context(), "orders", job.ID)
		if err != nil {
			t.Fatal(err)
		}
		got[string(whole.Body)] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bodies (-want +got):\n%s", diff)
	}
}
