package format

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestTexts: numbers, durations and times as the pages write them.
func TestTexts(t *testing.T) {
	c := Clock{Now: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), Zone: time.FixedZone("", 2*3600)}
	in := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(c.Now.Add(d)) }
	const thin = "\u202f"
	for _, tt := range [][2]string{
		{Grouped(uint32(0)), "0"}, {Grouped(uint32(999)), "999"}, {Grouped(uint64(1000)), "1" + thin + "000"},
		{Grouped(^uint64(0)), "18" + thin + "446" + thin + "744" + thin + "073" + thin + "709" + thin + "551" + thin + "615"},
		{Size(1023), "1023 B"}, {Size(1536), "1.5 KiB"}, {Size(^uint64(0)), "16.0 EiB"},
		{Rate(0), "0"}, {Rate(0.5), "0.50"}, {Rate(1234.6), "1" + thin + "235"},
		{Span(0), "0 s"}, {Span(-time.Second), "-1 s"}, {Span(1500), "1 µs"}, {Span(2 * time.Millisecond), "2 ms"},
		{Span(1500 * time.Millisecond), "1.5 s"}, {Span(90 * time.Second), "1 m 30 s"}, {Span(2 * time.Hour), "2 h"},
		{Span(49 * time.Hour), "2 d 1 h"}, {Span(1000 * 24 * time.Hour), "1" + thin + "000 d"},
		{Duration(nil), ""}, {Duration(durationpb.New(time.Minute)), "1 m"},
		{Plural(1, "node"), "1 node"}, {Plural(2, "node"), "2 nodes"},
		{Word(belfryv1.JobState_JOB_STATE_DEAD), "dead"}, {Word(belfryv1.TaskAct_TASK_ACT_COUNT), "count"},
		{c.NowText(), "2026-07-01 14:00:00 +02:00"}, {c.Text(in(0)), "2026-07-01 14:00:00.000 +02:00"},
		{c.Relative(in(0)), "now"}, {c.Relative(in(-time.Minute)), "1 m ago"}, {c.Relative(in(time.Hour)), "in 1 h"},
	} {
		if tt[0] != tt[1] {
			t.Errorf("%q, want %q", tt[0], tt[1])
		}
	}
}
