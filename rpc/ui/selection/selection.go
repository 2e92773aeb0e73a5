// Package selection says which jobs of a queue a page is about, and what a person can do to all of
// them. It makes no calls.
package selection

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/payload"
)

// Selection is the jobs of a queue in one state that fit every field that is set.
type Selection struct {
	Queue string
	State belfryv1.JobState
	// After and Before bound the due time: at or after the one, and before the other.
	After, Before *timestamppb.Timestamp
	// IDPrefix, Text, Cause and Key are those of ListRequest. They are not trimmed. No task can be of one
	// key: see ReadForTask.
	IDPrefix, Text, Cause, Key string
}

// Read reads a selection from a query or a form. Without a state it is of delayed jobs. A time without
// an offset is in zone. The error names the field.
func Read(in form.Values, zone *time.Location) (Selection, error) {
	s := Selection{Queue: in("queue"), IDPrefix: in("idPrefix"), Text: in("text"), Cause: in("cause"), Key: in("key")}
	var err error
	if s.State, err = State(in("state")); err != nil {
		return s, err
	}
	if s.State == belfryv1.JobState_JOB_STATE_UNSPECIFIED {
		s.State = belfryv1.JobState_JOB_STATE_DELAYED
	}
	for name, to := range map[string]**timestamppb.Timestamp{"after": &s.After, "before": &s.Before} {
		if text := strings.TrimSpace(in(name)); text != "" {
			if *to, err = form.Time(name, text, zone); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// ReadForTask is Read for an act on all of the jobs. Tasks know no keys, so one that was of a key would
// act on the jobs of all others too.
func ReadForTask(in form.Values, zone *time.Location) (Selection, error) {
	s, err := Read(in, zone)
	if err == nil && s.Key != "" {
		err = form.Errorf("key", "an act on all jobs that match cannot be of one key; nothing was done")
	}
	return s, err
}

// State reads the name of a state that a job can be in; nothing is JOB_STATE_UNSPECIFIED.
func State(name string) (belfryv1.JobState, error) {
	i := slices.IndexFunc(States(), func(s belfryv1.JobState) bool { return format.Word(s) == name })
	switch {
	case name == "":
		return belfryv1.JobState_JOB_STATE_UNSPECIFIED, nil
	case i < 0:
		return 0, form.Errorf("state", "%q is none of delayed, ready, reserved, dead", name)
	default:
		return States()[i], nil
	}
}

// States are the states that a job can be in.
func States() []belfryv1.JobState {
	return []belfryv1.JobState{belfryv1.JobState_JOB_STATE_DELAYED, belfryv1.JobState_JOB_STATE_READY,
		belfryv1.JobState_JOB_STATE_RESERVED, belfryv1.JobState_JOB_STATE_DEAD}
}

// OfTask returns the jobs that a task is about.
func OfTask(t *belfryv1.Task) Selection {
	return Selection{Queue: t.Queue, State: t.State, After: t.DueAfter, Before: t.DueBefore, IDPrefix: t.IdPrefix,
		Text: t.Text, Cause: t.Cause}
}

// Searches reports whether the jobs are found by looking at each of a state.
func (s *Selection) Searches() bool {
	return s.IDPrefix != "" || s.Text != "" || s.Cause != "" || s.Key != ""
}

// Narrowed reports whether the selection may leave out jobs of its state.
func (s *Selection) Narrowed() bool { return s.Searches() || s.After != nil || s.Before != nil }

// Pairs are the names and values of the selection for a query or for hidden fields. Its times are in
// UTC.
func (s *Selection) Pairs() []string {
	text := func(t *timestamppb.Timestamp) string {
		if t == nil {
			return ""
		}
		return t.AsTime().Format(time.RFC3339Nano)
	}
	return []string{"queue", s.Queue, "state", format.Word(s.State), "after", text(s.After), "before", text(s.Before),
		"idPrefix", s.IDPrefix, "text", s.Text, "cause", s.Cause, "key", s.Key}
}

// List returns the request for a page of the jobs, behind the page that gave the token.
func (s *Selection) List(size int32, token string) *belfryv1.ListRequest {
	return &belfryv1.ListRequest{Queue: s.Queue, State: s.State, DueAfter: s.After, DueBefore: s.Before,
		IdPrefix: s.IDPrefix, Text: s.Text, Cause: s.Cause, Key: s.Key, PageSize: size, PageToken: token}
}

// Task returns the request for a task about all of the jobs, which must be of no key.
func (s *Selection) Task(act belfryv1.TaskAct) *belfryv1.StartTaskRequest {
	return &belfryv1.StartTaskRequest{Queue: s.Queue, State: s.State, DueAfter: s.After, DueBefore: s.Before,
		IdPrefix: s.IDPrefix, Text: s.Text, Cause: s.Cause, Act: act}
}

// Words describes the jobs in a sentence without an end, such as "dead jobs of mail/retry". What
// others wrote is made visible.
func (s *Selection) Words(c format.Clock) string {
	words := format.Word(s.State) + " jobs of " + s.Queue
	var with []string
	if s.After != nil {
		with = append(with, "due from "+c.Text(s.After))
	}
	if s.Before != nil {
		with = append(with, "due before "+c.Text(s.Before))
	}
	for _, part := range [][2]string{
		{"an id that begins with", s.IDPrefix}, {"the text", s.Text}, {"the cause", s.Cause}, {"the key", s.Key},
	} {
		if part[1] != "" {
			with = append(with, "with "+part[0]+" “"+payload.Visible(part[1])+"”")
		}
	}
	if len(with) > 0 {
		words += ", " + strings.Join(with, ", ")
	}
	return words
}

// CountOf returns how many jobs are in a state.
func CountOf(c *belfryv1.JobCounts, state belfryv1.JobState) uint64 {
	switch state {
	case belfryv1.JobState_JOB_STATE_DELAYED:
		return uint64(c.GetDelayed())
	case belfryv1.JobState_JOB_STATE_READY:
		return uint64(c.GetReady())
	case belfryv1.JobState_JOB_STATE_RESERVED:
		return uint64(c.GetReserved())
	case belfryv1.JobState_JOB_STATE_DEAD:
		return uint64(c.GetDead())
	default:
		return 0
	}
}
