package soak

import (
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// at is a shard time in seconds.
func at(seconds float64) fsm.Time { return fsm.Time(seconds * float64(time.Second)) }

// line is one command with its result, at a time in seconds.
type line struct {
	clock   float64
	command fsm.Command
	result  fsm.Result
}

func putLine(clock float64, id string, serial uint64, due float64) line {
	return line{clock, &fsm.Put{Queue: "q", ID: id, Given: fsm.GivenMaxAttempts, MaxAttempts: 2}, fsm.Result{Created: true, Serial: serial, Due: at(due)}}
}

func grantLine(clock float64, serial, fence uint64, attempt uint32, until float64) line {
	g := fsm.Grant{Queue: "q", Serial: serial, Fence: fence, Attempt: attempt, Until: at(until)}
	return line{clock, &fsm.Reserve{Queues: []string{"q"}}, fsm.Result{Grants: []fsm.Grant{g}}}
}

func ackLine(clock float64, serial, fence uint64, code fsm.Code) line {
	return line{clock, &fsm.Ack{Ref: fsm.Ref{Queue: "q", Serial: serial, Fence: fence}}, fsm.Result{Code: code}}
}

func releaseLine(clock float64, serial, fence uint64, due float64) line {
	return line{clock, &fsm.Release{Ref: fsm.Ref{Queue: "q", Serial: serial, Fence: fence}}, fsm.Result{State: fsm.Ready, Due: at(due)}}
}

func extendLine(clock float64, serial, fence uint64, until float64) line {
	return line{clock, &fsm.Extend{Ref: fsm.Ref{Queue: "q", Serial: serial, Fence: fence}}, fsm.Result{Until: at(until)}}
}

func leadLine(clock float64, grace time.Duration) line {
	return line{clock, &fsm.Lead{Grace: grace}, fsm.Result{}}
}

// The books find what is wrong with a log, and nothing wrong with a log that is right.
func TestLedger(t *testing.T) {
	put, grant := putLine(1, "a", 1, 5), grantLine(5, 1, 2, 1, 15)
	cancel := line{3, &fsm.Cancel{Queue: "q", ID: "a"}, fsm.Result{State: fsm.Delayed}}
	nack := line{6, &fsm.Nack{Ref: fsm.Ref{Queue: "q", Serial: 1, Fence: 2}}, fsm.Result{State: fsm.Delayed, Due: at(20)}}
	replayed := grant
	replayed.result.Replayed = true
	for name, tc := range map[string]struct {
		log  []line
		want string // empty if nothing is wrong
	}{
		"a whole life":                    {[]line{put, grant, ackLine(14, 1, 2, fsm.OK), ackLine(20, 1, 2, fsm.OK)}, ""},
		"a lapse":                         {[]line{put, grant, ackLine(15, 1, 2, fsm.StaleLease), grantLine(15, 1, 3, 2, 20)}, ""},
		"a late ack that nobody overtook": {[]line{put, grant, ackLine(15, 1, 2, fsm.OK)}, "a stale lease is refused"},
		"an ack with an old fence":        {[]line{put, grant, grantLine(15, 1, 3, 2, 20), ackLine(16, 1, 2, fsm.OK)}, "a stale lease is refused"},
		"a live lease called stale":       {[]line{put, grant, ackLine(14, 1, 2, fsm.StaleLease)}, "a lease lasts"},
		"a grant before the due time":     {[]line{put, grantLine(4, 1, 2, 1, 15)}, "never early"},
		"a put that is due before its delay": {[]line{{1, &fsm.Put{Queue: "q", Delay: 4 * time.Second},
			fsm.Result{Created: true, Serial: 1, Due: at(4)}}}, "never early"},
		// The machine prolongs leases to whole milliseconds, rounded up.
		"an ack in the millisecond in which the grace ends": {[]line{put, grant, leadLine(14.5002, time.Second), ackLine(15.5006, 1, 2, fsm.OK)}, ""},
		"an ack after the grace":                            {[]line{put, grant, leadLine(14.5002, time.Second), ackLine(15.502, 1, 2, fsm.OK)}, "a stale lease is refused"},
		"two holders":                                       {[]line{put, grant, grantLine(14, 1, 3, 2, 20)}, "one holder"},
		"a grant of what was acked":                         {[]line{put, grant, ackLine(14, 1, 2, fsm.OK), grantLine(16, 1, 3, 2, 20)}, "what ended"},
		"a grant of what was cancelled":                     {[]line{put, cancel, grant}, "what ended"},
		"a grant of what was never put":                     {[]line{grant}, "nothing from nowhere"},
		"a fence that does not grow":                        {[]line{put, grant, grantLine(15, 1, 2, 2, 20)}, "fences grow"},
		"a serial that comes again":                         {[]line{put, putLine(1, "b", 1, 5)}, "serials grow"},
		"an id that is put twice":                           {[]line{put, putLine(1, "a", 2, 5)}, "an id is put once"},
		"an attempt too many":                               {[]line{put, grant, grantLine(15, 1, 3, 2, 20), grantLine(20, 1, 4, 3, 25)}, "attempts end"},
		"an attempt not counted":                            {[]line{put, grant, grantLine(15, 1, 3, 1, 20)}, "attempts are counted"},
		"a release gives the attempt back":                  {[]line{put, grant, releaseLine(6, 1, 2, 5), grantLine(6, 1, 3, 1, 20)}, ""},
		"a nack is early":                                   {[]line{put, grant, nack, grantLine(19, 1, 3, 2, 25)}, "never early"},
		"an extended lease":                                 {[]line{put, grant, extendLine(14, 1, 2, 30), ackLine(29, 1, 2, fsm.OK)}, ""},
		"an extension that shortens":                        {[]line{put, grant, extendLine(14, 1, 2, 14.5)}, "extend never shortens"},
		"a new leader's grace is kept":                      {[]line{put, grant, leadLine(14.5, time.Second), grantLine(15.2, 1, 3, 2, 20)}, "one holder"},
		"a new leader's grace prolongs":                     {[]line{put, grant, leadLine(14.5, time.Second), ackLine(15.2, 1, 2, fsm.OK)}, ""},
		"an answer from memory":                             {[]line{put, grant, replayed}, ""},
		"a put answered as another's": {[]line{put, {2, &fsm.Put{Queue: "q", ID: "b"}, fsm.Result{Serial: 1}}},
			"a put is answered as its first"},
		"a reserved job is cancelled": {[]line{put, grant, {6, &fsm.Cancel{Queue: "q", ID: "a"}, fsm.Result{State: fsm.Reserved}}},
			"a reserved job is not cancelled"},
		"an ended job is cancelled": {[]line{put, cancel, cancel}, "what ended is not cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory()
			books := newLedger(h)
			for i, l := range tc.log {
				books.enter(uint64(i+1), at(l.clock), l.command, l.result)
			}
			switch {
			case tc.want == "" && len(h.violations) > 0:
				t.Errorf("found %q", h.violations)
			case tc.want != "" && (len(h.violations) == 0 || !strings.Contains(h.violations[0], tc.want)):
				t.Errorf("found %q, want %q", h.violations, tc.want)
			}
		})
	}
}
