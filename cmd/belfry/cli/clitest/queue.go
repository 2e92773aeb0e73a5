package clitest

import (
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// FullQueue is a queue of which everything is known.
func FullQueue() *belfryv1.Queue {
	attempts, paused := uint32(0), true
	return &belfryv1.Queue{
		Name: "shop/orders", Partitions: 3, SettingsVersion: 4, Bytes: 5 << 20,
		Counts:         &belfryv1.JobCounts{Delayed: 1234567, Ready: 5, Reserved: 4, Dead: 3},
		OldestReadyAge: In(90 * time.Second), NextDueAt: At(1500 * time.Millisecond),
		Lateness: &belfryv1.Lateness{
			P50: In(800 * time.Microsecond), P99: In(2 * time.Millisecond), Max: In(3 * time.Second), Jobs: 1000,
		},
		Rates: &belfryv1.QueueRates{PutsPerSecond: 1.5, ReservesPerSecond: 2, AcksPerSecond: 0.25},
		Totals: &belfryv1.QueueTotals{
			Puts: 2000000, Reserves: 10, Acks: 6, Nacks: 2, Lapses: 1, Releases: 3, Deaths: 4, Cancels: 5, Expiries: 7,
			Redrives: 1,
		},
		DedupWindowHeld: In(10 * time.Minute), AsOf: At(0), Due: FullDue(),
		Settings: &belfryv1.QueueSettings{
			Ttr: In(30 * time.Second), MaxAttempts: &attempts, RetryDelays: []*durationpb.Duration{In(0), In(2 * time.Minute)},
			DedupForever: &paused, MaxBytes: proto.Uint64(1 << 30), MaxJobs: proto.Uint32(1000), Paused: &paused,
			PausedUntil: At(time.Hour),
			Overdue: &belfryv1.OverduePolicy{
				Mode: belfryv1.OverdueMode_OVERDUE_MODE_SPREAD, Period: In(time.Hour), OverdueAfter: In(time.Minute),
			},
			ExpireTo: belfryv1.ExpireTo_EXPIRE_TO_DEAD.Enum(),
		},
	}
}

// FullDue has jobs in every part of a histogram.
func FullDue() *belfryv1.DueHistogram {
	const day = 24 * time.Hour
	slice := func(after time.Duration, jobs uint32) *belfryv1.DueSlice {
		return &belfryv1.DueSlice{Start: At(after), Jobs: jobs}
	}
	return &belfryv1.DueHistogram{
		Overdue: 5, NextMinute: 3, NextHour: 1003, NextDay: 5003, NextMonth: 5004, Later: 1229563,
		Minutes: []*belfryv1.DueSlice{slice(0, 3), slice(4*time.Minute, 500), slice(13*time.Minute, 200),
			slice(14*time.Minute, 300)},
		Hours: []*belfryv1.DueSlice{slice(0, 1003), slice(3*time.Hour, 4000)},
		Days:  []*belfryv1.DueSlice{slice(-9*time.Hour, 5003), slice(2*day-9*time.Hour, 1)},
	}
}
