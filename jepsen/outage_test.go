package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/jepsen/history"
	"github.com/belfrydb/belfry/jepsen/report"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestOutages: shard 1 answers puts each second but from 5 to 9, shard 2 each second.
func TestOutages(t *testing.T) {
	h := history.New()
	answer := func(second int, request, response proto.Message) {
		at := time.Duration(second) * time.Second
		h.Add(&history.Op{Invoked: at, Returned: at, Request: request, Response: response})
	}
	for second := range 21 {
		if second <= 5 || second >= 9 {
			answer(second, &belfryv1.PutRequest{}, &belfryv1.PutResponse{Witness: &belfryv1.Witness{Shard: 1}})
		}
		answer(second, &belfryv1.PutRequest{}, &belfryv1.PutResponse{Witness: &belfryv1.Witness{Shard: 2}})
		answer(second, &belfryv1.GetRequest{}, &belfryv1.GetResponse{Witness: &belfryv1.Witness{Shard: 1}})
	}
	h.Add(&history.Op{Invoked: 7 * time.Second, Returned: 8 * time.Second, Request: &belfryv1.PutRequest{}})
	for _, one := range []struct {
		name     string
		from, to float64
		longest  time.Duration
	}{
		{"before", 1, 3, time.Second},
		{"from its beginning to the next answer", 6.5, 7, 2500 * time.Millisecond},
		{"the whole of it", 2, 12, 4 * time.Second},
		{"the end of it", 8.5, 8.6, time.Second / 2},
		{"begun at the end of the fault", 4, 5, 4 * time.Second},
		{"from the end of the load", 20.5, 22, 0},
		{"until the end of the load", 19.5, 22, 500 * time.Millisecond},
	} {
		got := outages(h, []report.Fault{{From: one.from, To: one.to}}, 20*time.Second)
		if got[0] != one.longest {
			t.Errorf("%s: %v, not %v", one.name, got[0], one.longest)
		}
	}
}

// TestOutageTable wants the longest first, the lower of two middle ones as the median, and nothing
// but what was measured.
func TestOutageTable(t *testing.T) {
	var out bytes.Buffer
	if err := printOutages(&out, map[string][]float64{"delay": {0.25}, "power-all": {4, 1, 2, 3},
		"a+b": {4}}); err != nil {
		t.Fatal(err)
	}
	var got [][]string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Fields(line))
	}
	want := [][]string{{"4.0", "4.0", "1", "a+b"}, {"2.0", "4.0", "4", "power-all"}, {"0.2", "0.2", "1", "delay"}}
	if diff := cmp.Diff(want, got[len(got)-len(want):]); diff != "" {
		t.Error(diff)
	}
}
