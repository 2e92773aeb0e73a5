// Package fsmtest has values with every field set, and golden files, for the tests of fsm and of
// its rooms.
package fsmtest

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// EveryCommand returns one command of each kind with every field set to a value of its own.
func EveryCommand() []fsm.Command {
	ref := fsm.Ref{Queue: "ns/orders", Partition: 2, Serial: 300, Fence: 70000}
	return []fsm.Command{
		&fsm.Put{
			Queue: "ns/orders", Partition: 1, Partitions: 3, ID: "order-42", Again: true,
			Given: fsm.GivenDelay | fsm.GivenTTR | fsm.GivenPriority | fsm.GivenMaxAttempts |
				fsm.GivenRetryDelays | fsm.GivenTTL,
			Delay: 30 * time.Minute, TTR: time.Minute, TTL: 24 * time.Hour, Priority: -7, MaxAttempts: 5,
			RetryDelays: []time.Duration{0, 2 * time.Minute, 10 * time.Minute},
			Headers: []fsm.Header{
				{Name: "a", Value: "1"},
				{Name: "traceparent", Value: "00-ab-cd-01"},
			}, Body: []byte("close order 42"),
		},
		&fsm.Reserve{Queues: []string{"orders", "ns/mail"}, Max: 10, TTR: time.Minute, Bytes: 4 << 20},
		&fsm.Ack{Ref: ref},
		&fsm.Nack{Ref: ref, Delay: 10 * time.Second, DelayGiven: true, Error: "smtp 421", Dead: true},
		&fsm.Release{Ref: ref, Delay: time.Second},
		&fsm.Extend{Ref: ref, TTR: time.Minute},
		&fsm.Cancel{Queue: "orders", ID: "order-42", Force: true},
		&fsm.Reschedule{Queue: "orders", ID: "1-7", Given: fsm.GivenDueAt, Delay: 0, DueAt: 1_800_000_000_123_456_789},
		&fsm.Redrive{Queue: "orders", IDs: []string{"a", "0-9"}, Max: 3},
		&fsm.Purge{Queue: "orders", States: fsm.Set(fsm.Delayed, fsm.Dead), Max: 100},
		&fsm.Configure{Queue: "orders", Partition: 1, Partitions: 3, Version: 9, Settings: EverySetting()},
		&fsm.Open{Queue: "orders", Partition: 1, Partitions: 3},
		&fsm.DeleteQueue{Queue: "orders"},
		&fsm.Expire{},
		&fsm.Lead{Grace: time.Second},
		&fsm.ResetClock{To: 1_800_000_000_123_456_789, Grace: time.Second},
		EveryImport(),
	}
}

// EveryKeyCommand returns the commands of fsm.KeysFormat: those that it added, and those of EveryCommand
// that have more fields in it, with all of them set.
func EveryKeyCommand() []fsm.Command {
	commands := EveryCommand()
	put, cancel := *commands[0].(*fsm.Put), *commands[6].(*fsm.Cancel)
	put.Key, put.OnExisting, put.MaxWait, put.IfVersion = "customer-7", fsm.NextExisting, time.Minute, 300
	cancel.Key = "customer-7"
	reschedule, configure := *commands[7].(*fsm.Reschedule), *commands[10].(*fsm.Configure)
	reschedule.Key, configure.Settings.Keys = "customer-8", EveryKeySetting()
	return []fsm.Command{
		&put, &cancel, &reschedule, &configure,
		&fsm.PauseKey{Queue: "orders", Key: "customer-7", Resume: true},
		&fsm.PurgeKey{Queue: "orders", Key: "customer-7", States: fsm.Set(fsm.Delayed, fsm.Dead), Max: 100},
	}
}

// EveryFIFOCommand returns the commands of fsm.FIFOFormat: those that it added, and those of earlier
// formats that have more fields in it, with all of them set.
func EveryFIFOCommand() []fsm.Command {
	commands := EveryCommand()
	put, nack, release := *EveryKeyCommand()[0].(*fsm.Put), *commands[3].(*fsm.Nack), *commands[4].(*fsm.Release)
	put.FIFO, put.Priority = true, 1<<31
	nack.PriorityGiven, nack.Priority, release.PriorityGiven, release.Priority = true, -3, true, fsm.PriorityMax
	schedule := *EveryScheduleCommand()[0].(*fsm.PutSchedule)
	schedule.Job.FIFO, schedule.Job.Priority = true, 1024
	return []fsm.Command{
		&put, &nack, &release, &schedule,
		&fsm.Kick{Queue: "ns/orders", Serial: 300, Max: 100},
		&fsm.ReserveJob{Queue: "ns/orders", Serial: 300, TTR: time.Minute},
	}
}

// EveryScheduleCommand returns the commands about schedules with every field set.
func EveryScheduleCommand() []fsm.Command {
	s := EverySchedule()
	return []fsm.Command{
		&fsm.PutSchedule{
			Queue: "ns/orders", Partition: 1, Partitions: 3, Name: "report", Spec: s.Spec, Policy: s.Policy, Job: s.Job,
			IfVersion: 300, Next: 1_800_000_000_000_000_021, NextAfter: 1_800_000_000_000_000_020, ZoneData: "2026a",
		},
		&fsm.DeleteSchedule{Queue: "ns/orders", Name: "report", CancelWaiting: true, IfVersion: 300},
		&fsm.PauseSchedules{Queue: "ns/orders", Names: []string{"report", "mail"}, Resume: true, Note: "stocktaking"},
		&fsm.Fire{
			Queue: "ns/orders", Name: "report", Serial: 300, Version: 301, Nominal: 1_800_000_000_000_000_021,
			Missed: 400, LastMissed: 1_800_000_000_000_000_022, Put: 1_800_000_000_000_000_023,
			Due: 1_800_000_000_000_000_024, Next: 1_800_000_000_000_000_025, ZoneData: "2026a",
		},
		&fsm.RunSchedule{Queue: "ns/orders", Name: "report", Times: []fsm.Time{1_800_000_000_000_000_021, 5}},
	}
}

// EverySchedule returns a schedule with every field set.
func EverySchedule() fsm.Schedule {
	return fsm.Schedule{
		Queue: "ns/orders", Name: "report", Serial: 300, Version: 2, RuleVersion: 1,
		Spec: fsm.ScheduleSpec{
			Cron: "30 2 * * *", Every: time.Hour, Phase: time.Minute, TimeZone: "Europe/Berlin", DST: 2,
			Start: 1_800_000_000_000_000_026, End: 1_800_000_000_000_000_027, Jitter: time.Second,
			Exclude: []string{"* * 1 1 *", "* * 24 12 *"},
		},
		Policy: fsm.SchedulePolicy{
			CatchUp: fsm.CatchUpAll, Window: time.Hour, Overlap: fsm.OverlapOneWaiting, MaxFires: 500, PauseOnDead: true,
		},
		Job: fsm.Put{
			Given: fsm.GivenTTR | fsm.GivenTTL | fsm.GivenPriority | fsm.GivenMaxAttempts | fsm.GivenRetryDelays,
			TTR:   time.Minute, TTL: time.Hour, Priority: -3, MaxAttempts: 4, RetryDelays: []time.Duration{time.Second},
			Headers: []fsm.Header{{Name: "a", Value: "1"}}, Body: []byte("report"), Key: "customer-7",
		},
		Created: 1_800_000_000_000_000_028, Changed: 1_800_000_000_000_000_029, Next: 1_800_000_000_000_000_030, Replan: true,
		Pending: true, Then: 1_800_000_000_000_000_036,
		ZoneData: "2026b", Paused: true, Note: "stocktaking", Last: 1_800_000_000_000_000_031,
		Counts: fsm.ScheduleCounts{Fired: 600, Missed: 601, Skipped: 602, Backfilled: 603}, Jobs: []uint64{604, 605},
		Recent: []fsm.Firing{
			{Result: fsm.Missed, Nominal: 1_800_000_000_000_000_032, At: 1_800_000_000_000_000_033, Count: 606},
			{Result: fsm.Fired, Nominal: 1_800_000_000_000_000_034, At: 1_800_000_000_000_000_035, Count: 1},
		},
	}
}

// EveryKeySetting returns settings of keys with every field set.
func EveryKeySetting() fsm.KeySettings {
	return fsm.KeySettings{
		Concurrency: 300, Rate: fsm.KeyRate{Count: 10, Per: time.Minute, Burst: 20}, Ordered: true, Fair: true,
		HoldOnDead: true, Refused: true,
	}
}

// EverySuccessor returns a successor with every field set that it has.
func EverySuccessor() *fsm.Successor {
	return &fsm.Successor{
		Job: fsm.Job{
			Version: 3, Priority: 7, Due: 1_800_000_000_003_000_000, FirstDue: 1_800_000_000_003_000_000,
			Created: 1_800_000_000_000_000_004, Given: fsm.GivenTTR | fsm.GivenTTL, TTR: time.Minute,
			TTL: 1_800_000_000_005_000_000, Headers: []fsm.Header{{Name: "b", Value: "2"}}, Body: []byte("close it now"),
			BodyBytes: 12,
		},
		Content: [16]byte{15: 2},
	}
}

// EverySetting returns settings with every field set, but those of keys.
func EverySetting() fsm.Settings {
	return fsm.Settings{
		TTR: 40 * time.Second, MaxAttempts: 9, MaxAttemptsSet: true, RetryDelays: []time.Duration{time.Second, time.Hour},
		DedupWindow: 20 * time.Minute, DedupWindowSet: true, DedupForever: true, MaxInFlight: 11, MaxJobs: 12, MaxBytes: 13,
		PutsPerSecond: 14, Overdue: fsm.SpreadOverdue, OverduePeriod: time.Minute, OverdueAfter: time.Hour,
		ExpireToDead: true,
		Paused:       true, PausedUntil: 15,
	}
}

// EveryImport returns an Import with every field set.
func EveryImport() *fsm.Import {
	return &fsm.Import{
		Restore: [16]byte{1, 2, 3}, Step: fsm.ImportRecords, Sequence: 300, Floor: 70000, Overdue: fsm.ImportSpread,
		Period: time.Minute,
		Since:  1_800_000_000_000_000_000, Total: 500,
		Records: []fsm.BackupRecord{
			{Kind: fsm.BackupQueue, Data: []byte("queue")},
			{Kind: fsm.BackupJob, Data: []byte("job")},
			{Kind: fsm.BackupTombstone, Data: []byte{}},
		},
	}
}

// EveryGrant returns a grant with every field set, and one of a queue with other values.
func EveryGrant() []fsm.Grant {
	return []fsm.Grant{
		{
			Queue: "ns/orders", Partition: 2, Serial: 300, Fence: 70000, Attempt: 3, Due: 1_800_000_000_001_000_000,
			Until: 1_800_000_060_002_000_000,
		},
		{Queue: "mail", Partition: 1, Serial: 301, Fence: 70001, Attempt: 1, Due: 1, Until: 2},
	}
}

// EveryQuery returns one query of each kind with every field set to a value of its own.
func EveryQuery() []fsm.Query {
	return []fsm.Query{
		&fsm.JobQuery{Queue: "ns/orders", ID: "order-42", Key: "customer-7", Ended: true},
		&fsm.ListQuery{
			Queue: "orders", State: fsm.Dead, DueAfter: 1_800_000_000_000_000_001, DueBefore: 1_800_000_000_000_000_002,
			After: fsm.Cursor{Due: 1_800_000_000_000_000_003, Serial: 300}, Max: 1000,
		},
		&fsm.QueueQuery{Queue: "ns/orders"},
		&fsm.QueuesQuery{Prefix: "ns/", After: "ns/mail", Max: 200},
		&fsm.RecallQuery{Caller: "ns", RequestID: "request#0.1", Content: [16]byte{15: 1}},
		&fsm.HeldQuery{Grants: EveryGrant()},
		&fsm.SearchQuery{
			ListQuery: fsm.ListQuery{
				Queue: "orders", State: fsm.Dead, DueAfter: 1_800_000_000_000_000_001, DueBefore: 1_800_000_000_000_000_002,
				After: fsm.Cursor{Due: 1_800_000_000_000_000_003, Serial: 300}, Max: 500,
			},
			Match: fsm.Match{IDPrefix: "order-", Text: "4711", Cause: "smtp #", Key: "customer-7"}, Scan: 1024,
		},
		&fsm.MinuteQuery{Queue: "ns/orders"},
		&fsm.SchedulesQuery{Queue: "ns/orders", Prefix: "re", After: "report", Max: 100, Names: []string{"report", "mail"}},
		&fsm.ScheduleQuery{Queue: "ns/orders", Name: "report"},
		&fsm.KeysQuery{Queue: "ns/orders", Prefix: "customer-", State: fsm.Ready, From: 300, Scan: 1000},
	}
}

// EveryFIFOQuery returns the queries that fsm.FIFOFormat added with every field set.
func EveryFIFOQuery() []fsm.Query {
	return []fsm.Query{&fsm.SerialQuery{Serial: 300}, &fsm.FirstQuery{Queue: "ns/orders", State: fsm.Dead}}
}

// EveryAttempt returns as many attempts as a job keeps, one with every field set.
func EveryAttempt() []fsm.Attempt {
	return []fsm.Attempt{
		{
			Number: 1, Began: 1_800_000_000_000_000_012, Ended: 1_800_000_000_000_000_013, Lapsed: true,
			Client: "worker-2@10.0.0.8", Error: "smtp 420",
		},
		{Number: 2, Ended: 1_800_000_000_000_000_014, Client: "worker-1@10.0.0.7", Error: "smtp 421"},
		{},
	}
}

// EveryReading returns every field of a job and of a queue set to a value of its own: two jobs of
// one queue and one of another, one without body, and one with a generated id.
func EveryReading() fsm.Reading {
	job := fsm.Job{
		Queue: "ns/orders", Partition: 2, Serial: 300, ID: "order-42", State: fsm.Reserved, Priority: -7,
		Due: 1_800_000_000_001_000_000, FirstDue: 1_800_000_000_002_000_000, Created: 1_800_000_000_000_000_003,
		Given: fsm.GivenTTR | fsm.GivenTTL, TTR: time.Minute, MaxAttempts: 5, RetryDelays: []time.Duration{0, time.Minute},
		TTL: 1_800_000_000_004_000_000, Headers: []fsm.Header{
			{Name: "a", Value: "1"},
			{Name: "traceparent", Value: "00-ab-cd-01"},
		}, Body: []byte("close order 42"),
		BodyBytes: 14, Attempt: 3, Fence: 70000, Until: 1_800_000_060_005_000_000, LeaseTTR: 2 * time.Minute, Redrives: 6,
		LastError: "smtp 421", Died: 1_800_000_000_000_000_007,
		End:    &fsm.End{At: 1_800_000_000_000_000_010, AttemptUnknown: true},
		Client: "worker-1@10.0.0.7", Leased: 1_800_000_000_000_000_011, Attempts: EveryAttempt(),
		Key: "customer-7", Version: 2, Place: 400, Next: EverySuccessor(),
		FIFO: true, Uses: &fsm.Uses{Reserves: 300, Lapses: 301, Releases: 302, Buries: 303, Kicks: 304},
	}
	generated := fsm.Job{Queue: "ns/orders", Partition: 2, Serial: 301, ID: "2-301", Generated: true, Body: []byte{}}
	settings := EverySetting()
	settings.Keys = EveryKeySetting()
	return fsm.Reading{
		Kind: fsm.KindHeldQuery, Code: fsm.Invalid, Clock: 1_800_000_000_000_000_008, Now: 1_800_000_000_000_000_009,
		More: true,
		Keys: []fsm.Key{{
			Name: "customer-7", Delayed: 1, Ready: 200, Reserved: 3, Dead: 4, Paused: true,
			NextToken: 1_800_000_000_000_000_015, Blocked: fsm.BlockedByPause, HeadDue: 1_800_000_000_000_000_016,
		}, {Name: "k"}}, Next: 301,
		Jobs: []fsm.Job{job, generated, {Queue: "mail", ID: "x", BodyBytes: 1 << 20}},
		Queues: []fsm.Queue{{
			Name: "ns/orders", Partition: 2, Partitions: 3, Version: 9, Settings: settings,
			Counts: fsm.Counts{Delayed: 1, Ready: 2, Reserved: 3, Dead: 4, Bytes: 5},
			Counters: fsm.Counters{
				Put: 1, Duplicate: 2, Granted: 3, Acked: 4, Nacked: 5, Released: 6, Lapsed: 7, Extended: 8, Cancelled: 9,
				Expired: 10, Died: 11, Redriven: 12, Rescheduled: 13, Purged: 14,
			}, OldestReady: 15, NextDue: 16, Created: 17, Tombstones: 18, DedupSince: 19,
			Due: fsm.Due{
				Overdue: 20, Minute: 21, Hour: 22, Day: 23, Month: 24, Later: 25,
				Minutes: []fsm.DueSlice{
					{Start: 26 * fsm.Minute, Jobs: 27},
					{Start: fsm.TimeMax / fsm.Minute * fsm.Minute, Jobs: 28},
				},
				Hours: []fsm.DueSlice{{Start: 29 * fsm.Hour, Jobs: 30}}, Days: []fsm.DueSlice{{Start: 31 * fsm.Day, Jobs: 32}},
			},
			Recent: &fsm.Recent{
				Window: 33, Puts: 34, Grants: 35, Acks: 36, Late: [fsm.LateBuckets]uint64{0: 37, 5: 38, fsm.LateBuckets - 1: 39},
				LateMax: 40,
			},
			Format: 2, Parked: new(uint64(41)), Urgent: 42,
		}, {Name: "mail"}},
		Scanned: 41, Last: fsm.Cursor{Due: 42, Serial: 43}, Since: 44,
		Minutes: []fsm.QueueMinute{{
			Start: 45 * fsm.Minute, Puts: 46, Grants: 47, Acks: 48, Failures: 49, LateP50: 50, LateP99: 51,
		}, {}},
		Schedules: []fsm.Schedule{EverySchedule(), {Queue: "mail", Name: "x", Serial: 2, Job: fsm.Put{Body: []byte{}}}},
	}
}
