package finder

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// lists answers with pages of jobs, by queue and state. Each call takes a fifth of a search.
type lists struct {
	now   time.Time
	pages map[string]int // pages there are
	calls []string
	err   map[string]error
}

func (l *lists) List(_ context.Context, req *belfryv1.ListRequest) (*belfryv1.ListResponse, error) {
	key := fmt.Sprintf("%s/%d", req.Queue, req.State)
	page := len(req.PageToken)
	l.calls = append(l.calls, fmt.Sprintf("%s#%d", key, page))
	l.now = l.now.Add(timeMax / 5)
	if err := l.err[key]; err != nil {
		return nil, err
	}
	res := &belfryv1.ListResponse{Searched: uint64(100 * (page + 1)), Jobs: []*belfryv1.Job{{Queue: req.Queue,
		Id: fmt.Sprintf("%s#%d", key, page)}}}
	if page+1 < l.pages[key] {
		res.NextPageToken = strings.Repeat("x", page+1)
	}
	return res, nil
}

// queues have delayed and dead jobs.
func queues(names ...string) (all []*belfryv1.Queue) {
	for _, name := range names {
		all = append(all, &belfryv1.Queue{Name: name, Counts: &belfryv1.JobCounts{Delayed: 1, Dead: 1}})
	}
	return all
}

// TestSearchGoesOn: a search ends when its time is over, wherever that is, and goes on at that place,
// so that every page of every state is read once.
func TestSearchGoesOn(t *testing.T) {
	l := &lists{pages: map[string]int{"a/1": 3, "b/4": 7}}
	s := &Search{Jobs: l, Queues: queues("a", "b", "c"), Text: "x", Now: func() time.Time { return l.now }}
	var found []string
	searches := 0
	for searches = 1; ; searches++ {
		out, err := s.Do(t.Context())
		if err != nil || searches > 9 {
			t.Fatalf("%d searches, %v", searches, err)
		}
		for _, j := range out.Jobs {
			found = append(found, j.Id)
		}
		if out.Next == nil {
			if out.Searched != 1400 {
				t.Errorf("%d jobs were searched, want 1400", out.Searched)
			}
			break
		}
		s.Place = ReadPlace(out.Next.String())
		if s.Place != *out.Next {
			t.Errorf("the place %v is read as %v", *out.Next, s.Place)
		}
	}
	want := []string{"a/1#0", "a/1#1", "a/1#2", "a/4#0", "b/1#0", "b/4#0", "b/4#1", "b/4#2", "b/4#3", "b/4#4", "b/4#5",
		"b/4#6", "c/1#0", "c/4#0"}
	if diff := cmp.Diff(want, found); diff != "" || searches != 3 || len(l.calls) != len(want) {
		t.Errorf("%d searches and %d calls found (-want +got):\n%s", searches, len(l.calls), diff)
	}
	for _, text := range []string{"", "a", "a b c d", "a 1 x y"} {
		if got := ReadPlace(text); got != (Place{}) {
			t.Errorf("the place %q is read as %v", text, got)
		}
	}
}

// TestSearchErrors: what a person may not see is named, and any other error ends the search.
func TestSearchErrors(t *testing.T) {
	l := &lists{err: map[string]error{"a/1": connect.NewError(connect.CodePermissionDenied, errors.New("no")),
		"a/4": connect.NewError(connect.CodePermissionDenied, errors.New("no")),
		"b/4": connect.NewError(connect.CodeNotFound, errors.New("deleted"))}}
	s := &Search{Jobs: l, Queues: queues("a", "b"), Text: "x", Now: func() time.Time { return l.now }}
	out, err := s.Do(t.Context())
	if err != nil || len(out.Jobs) != 1 || len(out.Denied) != 1 || out.Denied[0] != "a" || out.Next != nil {
		t.Errorf("%+v, %v", out, err)
	}
	l.err = map[string]error{"b/1": connect.NewError(connect.CodeInvalidArgument, errors.New("text: too long"))}
	if _, err := s.Do(t.Context()); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a search that is refused: %v", err)
	}
}
