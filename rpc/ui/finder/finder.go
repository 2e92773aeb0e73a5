// Package finder looks for jobs of which a person knows a part, in one queue or in all. It stops when
// its time is over, says how far it came, and can go on from there.
package finder

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/selection"
)

const (
	// timeMax is how long a search takes, and one call more.
	timeMax = time.Second
	// FoundMax is how many jobs end a search, and one page more.
	FoundMax = 50
)

// Lister reads jobs, as the client of QueueService does.
type Lister interface {
	List(context.Context, *belfryv1.ListRequest) (*belfryv1.ListResponse, error)
}

// Search says what to look for. All fields but Place are required.
type Search struct {
	Jobs Lister
	// Queues are the queues to look in, by name. Their counts say which states have jobs.
	Queues []*belfryv1.Queue
	// Text is in the id, a header, the last error or the body of the jobs.
	Text string
	// Place is where an earlier search stopped.
	Place Place
	// Now is the wall clock.
	Now func() time.Time
}

// Place is how far a search has come. The zero value is the beginning.
type Place struct {
	// Queue and State are those of the next call, and Token is of the page before it.
	Queue string
	State belfryv1.JobState
	Token string
	// Searched is how many jobs were looked at in states that are done.
	Searched uint64
}

// String writes a place for a query; nothing for the beginning.
func (p Place) String() string {
	if p == (Place{}) {
		return ""
	}
	return strings.Join([]string{p.Queue, strconv.Itoa(int(p.State)), strconv.FormatUint(p.Searched, 10), p.Token}, " ")
}

// ReadPlace reads what String wrote. What it cannot read is the beginning.
func ReadPlace(text string) Place {
	parts := strings.SplitN(text, " ", 4)
	if len(parts) != 4 {
		return Place{}
	}
	state, err := strconv.ParseInt(parts[1], 10, 32)
	searched, bad := strconv.ParseUint(parts[2], 10, 64)
	if err != nil || bad != nil {
		return Place{}
	}
	return Place{Queue: parts[0], State: belfryv1.JobState(state), Token: parts[3], Searched: searched}
}

// Found is what a search found.
type Found struct {
	Jobs []*belfryv1.Job
	// Searched is how many jobs were looked at since the beginning.
	Searched uint64
	// Next is where to go on; nil if everything was looked at.
	Next *Place
	// Denied has the queues whose jobs the person may not see. They were left out.
	Denied []string
}

// Do searches. It looks in every state that has jobs.
func (s *Search) Do(ctx context.Context) (*Found, error) {
	out := &Found{Searched: s.Place.Searched}
	end, token := s.Now().Add(timeMax), s.Place.Token
	for _, q := range s.Queues {
		if q.Name < s.Place.Queue {
			continue
		}
		for _, state := range selection.States() {
			begun := q.Name == s.Place.Queue && state <= s.Place.State
			if begun && state < s.Place.State || !begun && selection.CountOf(q.Counts, state) == 0 {
				continue
			}
			if !begun {
				token = ""
			}
			next, err := s.in(ctx, q.Name, state, token, end, out)
			if err != nil || next != nil {
				out.Next = next
				return out, err
			}
		}
	}
	return out, nil
}

// in searches the jobs of a queue in one state. It returns where to go on if the time is over.
func (s *Search) in(ctx context.Context, queue string, state belfryv1.JobState, token string, end time.Time,
	out *Found) (*Place, error) {
	of, before := selection.Selection{Queue: queue, State: state, Text: s.Text}, out.Searched
	for {
		if !s.Now().Before(end) || len(out.Jobs) >= FoundMax {
			return &Place{Queue: queue, State: state, Token: token, Searched: before}, nil
		}
		res, err := s.Jobs.List(ctx, of.List(FoundMax, token))
		switch connect.CodeOf(err) {
		case connect.CodePermissionDenied:
			if !slices.Contains(out.Denied, queue) {
				out.Denied = append(out.Denied, queue)
			}
			return nil, nil //nolint:nilnil // there is nothing more to do in this queue
		case connect.CodeNotFound: // it was deleted meanwhile
			return nil, nil //nolint:nilnil // there is nothing more to do in this queue
		}
		if err != nil {
			return nil, err
		}
		out.Jobs = append(out.Jobs, res.Jobs...)
		out.Searched = before + res.Searched
		if token = res.NextPageToken; token == "" {
			return nil, nil //nolint:nilnil // all of this state was looked at
		}
	}
}
