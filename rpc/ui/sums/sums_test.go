package sums

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestSums: sums have room for more than a queue has.
func TestSums(t *testing.T) {
	var all Totals
	var due Due
	for range 2 {
		all.Add(&belfryv1.Queue{Counts: &belfryv1.JobCounts{Delayed: math.MaxUint32, Ready: 1, Reserved: 2, Dead: 3},
			Bytes: 4, Rates: &belfryv1.QueueRates{PutsPerSecond: 0.5, ReservesPerSecond: 1, AcksPerSecond: 2}})
		due.Add(&belfryv1.DueHistogram{Overdue: math.MaxUint32, NextMinute: 1, NextHour: 2, NextDay: 3,
			NextMonth: 4, Later: 5})
	}
	if want := (Totals{2 * math.MaxUint32, 2, 4, 6, 8, 1, 2, 4}); all != want {
		t.Errorf("%+v, want %+v", all, want)
	}
	if want := (Due{2 * math.MaxUint32, 2, 4, 6, 8, 10}); due != want {
		t.Errorf("%+v, want %+v", due, want)
	}
}

// TestSuspects: a queue is named with each of its reasons, those with most dead jobs first.
func TestSuspects(t *testing.T) {
	queues := []*belfryv1.Queue{{Name: "fine", Counts: &belfryv1.JobCounts{Ready: 9},
		OldestReadyAge: durationpb.New(time.Minute)},
		{Name: "paused", Counts: &belfryv1.JobCounts{Ready: 7}, Settings: &belfryv1.QueueSettings{Paused: proto.Bool(true)}},
		{Name: "empty", Settings: &belfryv1.QueueSettings{Paused: proto.Bool(true)}},
		{Name: "late", OldestReadyAge: durationpb.New(61 * time.Second), WaitingConsumers: proto.Uint32(0)},
		{Name: "busy", OldestReadyAge: durationpb.New(62 * time.Second), WaitingConsumers: proto.Uint32(1)}}
	for i := range uint32(25) {
		queues = append(queues, &belfryv1.Queue{Name: fmt.Sprint("dead-", i), Counts: &belfryv1.JobCounts{Dead: i}})
	}
	var all []string
	for _, s := range Suspects(queues[:7]) {
		all = append(all, s.Queue.Name+": "+strings.Join(s.Because, ", "))
	}
	want := []string{"dead-1: 1 dead", "busy: ready for 1 m 2 s", "late: ready for 1 m 1 s, no consumer waits",
		"paused: paused with 7 ready"}
	if strings.Join(all, "; ") != strings.Join(want, "; ") {
		t.Errorf("%q, want %q", all, want)
	}
	if most := Suspects(queues); len(most) != 20 || most[0].Queue.Name != "dead-24" {
		t.Errorf("%d queues from %v", len(most), most[0])
	}
}

// TestNamespaces: the namespaces of queues are listed with their use, behind those with a quota.
func TestNamespaces(t *testing.T) {
	counts := &belfryv1.JobCounts{Delayed: math.MaxUint32, Ready: 1, Reserved: 2, Dead: 3}
	queues := []*belfryv1.Queue{{Name: "none", Counts: counts, Bytes: 9}, {Name: "shop/mails", Counts: counts, Bytes: 4},
		{Name: "shop/orders/late", Counts: counts, Bytes: 5}, {Name: "billing/in", Counts: counts}, {Name: "mail/out"}}
	quotas := []*belfryv1.Namespace{{Name: "unused", MaxJobs: 7}, {Name: "mail"}}
	var got []string
	for _, n := range Namespaces(queues, quotas) {
		got = append(got, fmt.Sprint(n.Namespace.Name, " ", n.HasQuota, " ", n.Queues, " ", n.Jobs, " ", n.Bytes, " ",
			n.InFlight))
	}
	want := []string{"mail true 1 0 0 0", "unused true 0 0 0 0", "billing false 1 4294967301 0 2",
		"shop false 2 8589934602 9 4"}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("%q, want %q", got, want)
	}
}
