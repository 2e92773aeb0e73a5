package cron_test

// A dstRow is a change of a zone's clock, an expression near it, and when each policy fires in a
// window around it: after from, at to at the latest, in UTC.
type dstRow struct {
	name     string
	zone     string
	cron     string
	from, to string
	once     []string
	literal  []string
	skip     []string
}

// dstTable has the table of the specification (its rows begin with "spec"), and the cases between
// its lines.
var dstTable = []dstRow{
	{
		name: "spec: New York, gap", zone: "America/New_York", cron: "30 2 * * *",
		from: "2027-03-13T12:00:00Z", to: "2027-03-15T12:00:00Z",
		once:    []string{"2027-03-14T07:00:00Z", "2027-03-15T06:30:00Z"},
		literal: []string{"2027-03-15T06:30:00Z"},
		skip:    []string{"2027-03-15T06:30:00Z"},
	},
	{
		name: "spec: New York, fold", zone: "America/New_York", cron: "30 1 * * *",
		from: "2027-11-06T12:00:00Z", to: "2027-11-08T12:00:00Z",
		once:    []string{"2027-11-07T05:30:00Z", "2027-11-08T06:30:00Z"},
		literal: []string{"2027-11-07T05:30:00Z", "2027-11-07T06:30:00Z", "2027-11-08T06:30:00Z"},
		skip:    []string{"2027-11-07T05:30:00Z", "2027-11-08T06:30:00Z"},
	},
	{
		name: "spec: Berlin, gap", zone: "Europe/Berlin", cron: "30 2 * * *",
		from: "2027-03-27T12:00:00Z", to: "2027-03-29T12:00:00Z",
		once:    []string{"2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"},
		literal: []string{"2027-03-29T00:30:00Z"},
		skip:    []string{"2027-03-29T00:30:00Z"},
	},
	{
		name: "spec: Berlin, fold", zone: "Europe/Berlin", cron: "30 2 * * *",
		from: "2027-10-30T12:00:00Z", to: "2027-11-01T12:00:00Z",
		once:    []string{"2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"},
		literal: []string{"2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z", "2027-11-01T01:30:00Z"},
		skip:    []string{"2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"},
	},
	{
		name: "spec: Lord Howe, fold of half an hour", zone: "Australia/Lord_Howe", cron: "45 1 * * *",
		from: "2027-04-03T00:00:00Z", to: "2027-04-05T00:00:00Z",
		once:    []string{"2027-04-03T14:45:00Z", "2027-04-04T15:15:00Z"},
		literal: []string{"2027-04-03T14:45:00Z", "2027-04-03T15:15:00Z", "2027-04-04T15:15:00Z"},
		skip:    []string{"2027-04-03T14:45:00Z", "2027-04-04T15:15:00Z"},
	},
	{
		name: "spec: Lord Howe, gap of half an hour", zone: "Australia/Lord_Howe", cron: "15 2 * * *",
		from: "2027-10-02T00:00:00Z", to: "2027-10-04T00:00:00Z",
		once:    []string{"2027-10-02T15:30:00Z", "2027-10-03T15:15:00Z"},
		literal: []string{"2027-10-03T15:15:00Z"},
		skip:    []string{"2027-10-03T15:15:00Z"},
	},
	{
		name: "spec: Santiago, gap at midnight", zone: "America/Santiago", cron: "0 0 * * *",
		from: "2027-09-04T12:00:00Z", to: "2027-09-06T12:00:00Z",
		once:    []string{"2027-09-05T04:00:00Z", "2027-09-06T03:00:00Z"},
		literal: []string{"2027-09-06T03:00:00Z"},
		skip:    []string{"2027-09-06T03:00:00Z"},
	},
	{
		name: "spec: Cairo, gap at midnight", zone: "Africa/Cairo", cron: "0 0 * * *",
		from: "2027-04-29T12:00:00Z", to: "2027-05-01T12:00:00Z",
		once:    []string{"2027-04-29T22:00:00Z", "2027-04-30T21:00:00Z"},
		literal: []string{"2027-04-30T21:00:00Z"},
		skip:    []string{"2027-04-30T21:00:00Z"},
	},
	{
		name: "spec: Havana, fold at midnight", zone: "America/Havana", cron: "0 0 * * *",
		from: "2027-11-06T12:00:00Z", to: "2027-11-08T12:00:00Z",
		once:    []string{"2027-11-07T04:00:00Z", "2027-11-08T05:00:00Z"},
		literal: []string{"2027-11-07T04:00:00Z", "2027-11-07T05:00:00Z", "2027-11-08T05:00:00Z"},
		skip:    []string{"2027-11-07T04:00:00Z", "2027-11-08T05:00:00Z"},
	},
	{
		name: "spec: Dublin, gap with negative DST", zone: "Europe/Dublin", cron: "30 1 * * *",
		from: "2027-03-27T12:00:00Z", to: "2027-03-29T12:00:00Z",
		once:    []string{"2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"},
		literal: []string{"2027-03-29T00:30:00Z"},
		skip:    []string{"2027-03-29T00:30:00Z"},
	},
	{
		name: "spec: Dublin, fold with negative DST", zone: "Europe/Dublin", cron: "30 1 * * *",
		from: "2027-10-30T12:00:00Z", to: "2027-11-01T12:00:00Z",
		once:    []string{"2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"},
		literal: []string{"2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z", "2027-11-01T01:30:00Z"},
		skip:    []string{"2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"},
	},
	{
		name: "spec: Apia, a day that is not there", zone: "Pacific/Apia", cron: "0 0 * * *",
		from: "2011-12-29T12:00:00Z", to: "2011-12-31T12:00:00Z",
		once:    []string{"2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		literal: []string{"2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		skip:    []string{"2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
	},
	{
		name: "Apia: a job of that day fires when the day would have begun", zone: "Pacific/Apia", cron: "30 2 * * *",
		from: "2011-12-29T13:00:00Z", to: "2011-12-31T13:00:00Z",
		once:    []string{"2011-12-30T10:00:00Z", "2011-12-30T12:30:00Z", "2011-12-31T12:30:00Z"},
		literal: []string{"2011-12-30T12:30:00Z", "2011-12-31T12:30:00Z"},
		skip:    []string{"2011-12-30T12:30:00Z", "2011-12-31T12:30:00Z"},
	},
	{
		name: "several fixed times in one gap are one firing", zone: "America/New_York", cron: "0,15,30,45 2 * * *",
		from: "2027-03-14T00:00:00Z", to: "2027-03-14T12:00:00Z",
		once: []string{"2027-03-14T07:00:00Z"},
	},
	{
		name: "a moved time meets the time at the end of the gap", zone: "America/New_York", cron: "0 1-4 * * *",
		from: "2027-03-14T00:00:00Z", to: "2027-03-14T12:00:00Z",
		once:    []string{"2027-03-14T06:00:00Z", "2027-03-14T07:00:00Z", "2027-03-14T08:00:00Z"},
		literal: []string{"2027-03-14T06:00:00Z", "2027-03-14T07:00:00Z", "2027-03-14T08:00:00Z"},
		skip:    []string{"2027-03-14T06:00:00Z", "2027-03-14T07:00:00Z", "2027-03-14T08:00:00Z"},
	},
	{
		name: "hours as a range are fixed", zone: "America/New_York", cron: "0 0-3 * * *",
		from: "2027-11-07T00:00:00Z", to: "2027-11-07T12:00:00Z",
		once: []string{"2027-11-07T04:00:00Z", "2027-11-07T05:00:00Z", "2027-11-07T07:00:00Z", "2027-11-07T08:00:00Z"},
		literal: []string{"2027-11-07T04:00:00Z", "2027-11-07T05:00:00Z", "2027-11-07T06:00:00Z",
			"2027-11-07T07:00:00Z", "2027-11-07T08:00:00Z"},
		skip: []string{"2027-11-07T04:00:00Z", "2027-11-07T05:00:00Z", "2027-11-07T07:00:00Z", "2027-11-07T08:00:00Z"},
	},
	{
		name: "a star in the hour follows real time in a gap", zone: "America/New_York", cron: "30 * * * *",
		from: "2027-03-14T06:00:00Z", to: "2027-03-14T09:00:00Z",
		once:    []string{"2027-03-14T06:30:00Z", "2027-03-14T07:30:00Z", "2027-03-14T08:30:00Z"},
		literal: []string{"2027-03-14T06:30:00Z", "2027-03-14T07:30:00Z", "2027-03-14T08:30:00Z"},
		skip:    []string{"2027-03-14T06:30:00Z", "2027-03-14T07:30:00Z", "2027-03-14T08:30:00Z"},
	},
	{
		name: "a star in the hour follows real time in a fold", zone: "America/New_York", cron: "30 * * * *",
		from: "2027-11-07T05:00:00Z", to: "2027-11-07T08:00:00Z",
		once:    []string{"2027-11-07T05:30:00Z", "2027-11-07T06:30:00Z", "2027-11-07T07:30:00Z"},
		literal: []string{"2027-11-07T05:30:00Z", "2027-11-07T06:30:00Z", "2027-11-07T07:30:00Z"},
		skip:    []string{"2027-11-07T05:30:00Z", "2027-11-07T07:30:00Z"},
	},
	{
		name: "a step in the hour follows real time", zone: "America/New_York", cron: "0 1-23/2 * * *",
		from: "2027-11-07T04:30:00Z", to: "2027-11-07T09:00:00Z",
		once:    []string{"2027-11-07T05:00:00Z", "2027-11-07T06:00:00Z", "2027-11-07T08:00:00Z"},
		literal: []string{"2027-11-07T05:00:00Z", "2027-11-07T06:00:00Z", "2027-11-07T08:00:00Z"},
		skip:    []string{"2027-11-07T05:00:00Z", "2027-11-07T08:00:00Z"},
	},
	{
		name: "a star in the minute follows real time in a gap", zone: "America/New_York", cron: "*/15 2 * * *",
		from: "2027-03-14T00:00:00Z", to: "2027-03-14T12:00:00Z",
	},
	{
		name: "a star in the minute follows real time in a fold", zone: "America/New_York", cron: "*/30 1 * * *",
		from: "2027-11-07T00:00:00Z", to: "2027-11-07T12:00:00Z",
		once:    []string{"2027-11-07T05:00:00Z", "2027-11-07T05:30:00Z", "2027-11-07T06:00:00Z", "2027-11-07T06:30:00Z"},
		literal: []string{"2027-11-07T05:00:00Z", "2027-11-07T05:30:00Z", "2027-11-07T06:00:00Z", "2027-11-07T06:30:00Z"},
		skip:    []string{"2027-11-07T05:00:00Z", "2027-11-07T05:30:00Z"},
	},
	{
		name: "Monrovia: an offset with seconds ends", zone: "Africa/Monrovia", cron: "0 0 * * *",
		from: "1972-01-05T12:00:00Z", to: "1972-01-08T12:00:00Z",
		once:    []string{"1972-01-06T00:44:30Z", "1972-01-07T00:44:30Z", "1972-01-08T00:00:00Z"},
		literal: []string{"1972-01-06T00:44:30Z", "1972-01-08T00:00:00Z"},
		skip:    []string{"1972-01-06T00:44:30Z", "1972-01-08T00:00:00Z"},
	},
}
