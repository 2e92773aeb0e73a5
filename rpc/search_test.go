package rpc

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/fault"
)

// searched follows a search to its end, and returns the ids that it found, the pages, and how many jobs
// it looked at.
func searched(t *testing.T, q belfryv1connect.QueueServiceClient, req *belfryv1.ListRequest) (ids []string, pages int,
	looked uint64) {
	t.Helper()
	for {
		page, err := q.List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range page.Jobs {
			if j.Body != nil {
				t.Errorf("job %s is listed with its body", j.Id)
			}
			ids = append(ids, j.Id)
		}
		pages++
		if page.Searched < looked {
			t.Errorf("page %d: %d jobs searched after %d", pages, page.Searched, looked)
		}
		looked = page.Searched
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			return ids, pages, looked
		}
	}
}

// checkRefusal checks that a call was refused for a reason, with a text that has the name of a field.
func checkRefusal(t *testing.T, err error, reason belfryv1.Reason, field string) {
	t.Helper()
	if f, ok := fault.FromConnect(err); !ok || f.Reason != reason || !strings.HasPrefix(f.Message, field+": ") {
		t.Errorf("%v, want %v of %s", err, reason, field)
	}
}

// putMany puts n jobs with the body "body".
func putMany(t *testing.T, q belfryv1connect.QueueServiceClient, queue string, n int) {
	t.Helper()
	for n > 0 {
		batch := &belfryv1.PutBatchRequest{}
		for range min(n, 1000) {
			batch.Jobs = append(batch.Jobs, &belfryv1.PutRequest{
				Queue: queue, Body: &belfryv1.PutRequest_Text{Text: "body"},
				When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Hour)},
			})
		}
		if _, err := q.PutBatch(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		n -= len(batch.Jobs)
	}
}

// TestSearch: a list can be searched by id, text and cause, over all partitions, and by pages.
func TestSearch(t *testing.T) {
	s := serve(t)
	q, a := s.bothClients()
	if _, err := a.CreateQueue(t.Context(), &belfryv1.CreateQueueRequest{Queue: "wide", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if _, err := q.Put(t.Context(), &belfryv1.PutRequest{
			Queue: "wide", Id: fmt.Sprintf("order-%03d", i), Headers: map[string]string{"shop": fmt.Sprintf("s%d", i%7)},
			When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(time.Hour + time.Duration(i)*time.Second)},
			Body: &belfryv1.PutRequest_Text{Text: fmt.Sprintf(`{"customer": %d}`, i/100)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		req  *belfryv1.ListRequest
		want int
	}{
		"an id":              {&belfryv1.ListRequest{IdPrefix: "order-123"}, 1},
		"ids":                {&belfryv1.ListRequest{IdPrefix: "order-12"}, 10},
		"the middle of ids":  {&belfryv1.ListRequest{Text: "r-12"}, 10},
		"a body":             {&belfryv1.ListRequest{Text: `"customer": 2`}, 100},
		"a header":           {&belfryv1.ListRequest{Text: "s6"}, 42},
		"a header and an id": {&belfryv1.ListRequest{Text: "s6", IdPrefix: "order-00"}, 1},
		"nothing":            {&belfryv1.ListRequest{Text: "S6"}, 0},
		"no error":           {&belfryv1.ListRequest{Cause: fsm.NoErrorText}, 300},
	} {
		for _, size := range []int32{1, 7, 1000} {
			tc.req.Queue, tc.req.PageSize, tc.req.PageToken = "wide", size, ""
			ids, pages, looked := searched(t, q, tc.req)
			seen := map[string]bool{}
			for _, id := range ids {
				seen[id] = true
			}
			if len(ids) != tc.want || len(seen) != tc.want || looked != 300 || pages > tc.want/int(size)+4 {
				t.Errorf("%s, %d a page: %d jobs, %d of them different, on %d pages, from %d jobs; want %d", name, size,
					len(ids), len(seen), pages, looked, tc.want)
			}
		}
	}
}

// TestSearchGoesOn: a call looks at a bounded number of jobs, and the next page goes on from there.
func TestSearchGoesOn(t *testing.T) {
	s := serve(t)
	q, _ := s.bothClients()
	putMany(t, q, "long", 120_000)
	page, err := q.List(t.Context(), &belfryv1.ListRequest{Queue: "long", Text: "not there"})
	if err != nil {
		t.Fatal(err)
	}
	if page.Searched == 0 || page.Searched > 101_000 || page.NextPageToken == "" {
		t.Errorf("the first page is of %d jobs, next token %q", page.Searched, page.NextPageToken)
	}
	if _, pages, looked := searched(t, q, &belfryv1.ListRequest{Queue: "long", Text: "not there"}); pages < 2 ||
		looked != 120_000 {
		t.Errorf("%d jobs were looked at on %d pages", looked, pages)
	}
}

// TestSearchRefusals: what is too long, and the page token of another search.
func TestSearchRefusals(t *testing.T) {
	s := serve(t)
	q, _ := s.bothClients()
	putMany(t, q, "q", 10)
	for field, req := range map[string]*belfryv1.ListRequest{
		"idPrefix": {IdPrefix: strings.Repeat("i", 257)}, "text": {Text: strings.Repeat("t", 257)},
		"cause": {Cause: strings.Repeat("c", 1025)},
	} {
		req.Queue = "q"
		_, err := q.List(t.Context(), req)
		checkRefusal(t, err, belfryv1.Reason_REASON_TOO_LARGE, field)
	}
	page, err := q.List(t.Context(), &belfryv1.ListRequest{Queue: "q", Text: "body", PageSize: 1})
	if err != nil || page.NextPageToken == "" {
		t.Fatalf("%v, %v", page, err)
	}
	for _, other := range []*belfryv1.ListRequest{{}, {Text: "bod"}, {IdPrefix: "body"}, {Text: "body", Cause: "x"}} {
		other.Queue, other.PageToken = "q", page.NextPageToken
		_, err := q.List(t.Context(), other)
		checkRefusal(t, err, belfryv1.Reason_REASON_INVALID, "pageToken")
	}
}

// TestClientsAreNoted: a job says who holds it, whichever way it was reserved.
func TestClientsAreNoted(t *testing.T) {
	s := serve(t)
	s.node.Format = fsm.LatestFormat
	q, _ := s.bothClients()
	for way, reserve := range map[string]func(queue string){
		"unary": func(queue string) {
			s.send(http.MethodPost, "/v1/reserve", `{"queues":["`+queue+`"]}`, "Belfry-Client", "worker-1")
		},
		"raw": func(queue string) { s.send(http.MethodGet, "/q/"+queue, "", "Belfry-Client", "worker-1") },
		"work": func(queue string) {
			ctx, call := connect.NewClientContext(t.Context())
			call.RequestHeader().Set("Belfry-Client", "worker-1")
			stream, err := belfryv1connect.NewQueueServiceClient(h2c(t), s.url).Work(ctx)
			if err != nil {
				t.Fatal(err)
			}
			w := &workClient{t: t, stream: stream}
			w.send(&belfryv1.WorkRequest{Credits: &belfryv1.Credits{Queues: []string{queue}, Credits: 1}})
			for len(w.receive().Jobs) == 0 {
			}
			t.Cleanup(func() { _ = w.end() })
		},
	} {
		if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: way, Id: "x"}); err != nil {
			t.Fatal(err)
		}
		reserve(way)
		got, err := q.Get(t.Context(), &belfryv1.GetRequest{Queue: way, Id: "x"})
		if err != nil || got.Job.Client != "worker-1@127.0.0.1" || got.Job.ReservedAt == nil {
			t.Fatalf("%s: held by %q since %v, %v", way, got.GetJob().GetClient(), got.GetJob().GetReservedAt(), err)
		}
		list, err := q.List(t.Context(), &belfryv1.ListRequest{Queue: way, State: belfryv1.JobState_JOB_STATE_RESERVED})
		if err != nil || len(list.Jobs) != 1 || list.Jobs[0].Client != got.Job.Client {
			t.Errorf("%s: the list says %v, %v", way, list, err)
		}
	}
}

// TestFailuresAreNoted: a job has its last three failed attempts, and its queue counts them.
func TestFailuresAreNoted(t *testing.T) {
	s := serve(t)
	s.node.Format = fsm.LatestFormat
	q, a := s.bothClients()
	if _, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "mail", Id: "x"}); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		reserved, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: []string{"mail"}})
		if err != nil || len(reserved.Jobs) != 1 {
			t.Fatal(reserved, err)
		}
		if _, err := q.Nack(t.Context(), &belfryv1.NackRequest{
			Lease: reserved.Jobs[0].Lease, Delay: durationpb.New(0), Error: fmt.Sprintf("smtp %d", n),
		}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := q.Get(t.Context(), &belfryv1.GetRequest{Queue: "mail", Id: "x"})
	if err != nil {
		t.Fatal(err)
	}
	var attempts []string
	for _, at := range got.Job.Attempts {
		attempts = append(attempts, fmt.Sprintf("%d %s %s %v %v", at.Number, at.Client, at.Error, at.Lapsed,
			at.BeganAt != nil && at.EndedAt != nil))
	}
	if diff := cmp.Diff([]string{
		"2 127.0.0.1 smtp 1 false true", "3 127.0.0.1 smtp 2 false true", "4 127.0.0.1 smtp 3 false true",
	}, attempts); diff != "" || got.Job.Client != "" {
		t.Errorf("the attempts (-want +got):\n%s", diff)
	}
	hour, err := a.GetQueue(t.Context(), &belfryv1.GetQueueRequest{Queue: "mail", Minutes: true})
	if err != nil || hour.MinutesSince == nil {
		t.Fatal(hour, err)
	}
	var puts, reserves, failures uint32
	for _, m := range hour.Minutes {
		puts, reserves, failures = puts+m.Puts, reserves+m.Reserves, failures+m.Failures
	}
	if puts != 1 || reserves != 4 || failures != 4 {
		t.Errorf("%d puts, %d reserves, %d failures in the last hour", puts, reserves, failures)
	}
}

// TestClientNames: a name that cannot be shown is refused with its limit.
func TestClientNames(t *testing.T) {
	s := serve(t)
	for name, want := range map[string]string{
		strings.Repeat("n", 65): "Belfry-Client: 65 bytes; the limit is 64", "tab\there": "U+0009", "\xff": "not valid UTF-8",
	} {
		got := s.send(http.MethodPost, "/v1/reserve", `{"queues":["q"]}`, "Belfry-Client", name)
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, want) {
			t.Errorf("%q: %d %s, want %s", name, got.status, got.body, want)
		}
	}
}
