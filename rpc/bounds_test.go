package rpc

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/fault"
)

// emptyFields is n times an empty field, which has two bytes.
func emptyFields(field protowire.Number, n int) []byte {
	return bytes.Repeat(bytesField(nil, field, nil), n)
}

// emptyValues is JSON of a field with n times a value.
func emptyValues(name, value string, n int) string {
	return `{"` + name + `":[` + strings.TrimSuffix(strings.Repeat(value+",", n), ",") + `]}`
}

// shortHeaders is n headers of five hexadecimal digits each, in one form.
func shortHeaders(n int, write func(name string)) {
	for i := range n {
		write(fmt.Sprintf("%05x", i))
	}
}

// flood is a message of tiny elements, with the fault that it is refused with.
type flood struct {
	name, path string
	message    proto.Message
	json       string
	binary     []byte
	want       string
}

// floods are messages of at least 1 MiB.
func floods() []flood {
	const n = 512 << 10
	var names strings.Builder
	var entries []byte
	shortHeaders(n, func(name string) {
		names.WriteString(`,"` + name + `":""`)
		entries = bytesField(entries, 9, bytesField(nil, 1, []byte(name)))
	})
	return []flood{
		{"jobs", "/v1/put-batch", &belfryv1.PutBatchRequest{}, emptyValues("jobs", "{}", n), emptyFields(1, n),
			"TOO_LARGE: jobs: 524288 entries; the limit is 1000"},
		{"retry delays", "/v1/put", &belfryv1.PutRequest{}, emptyValues("retryDelays", `"0s"`, n), emptyFields(11, n),
			"INVALID: retryDelays: 524288 entries; the limit is 64"},
		{
			"retry delays of jobs", "/v1/put-batch", &belfryv1.PutBatchRequest{},
			`{"jobs":[` + emptyValues("retry_delays", "0", 64) + `,` + emptyValues("retryDelays", "0", n-64) + `]}`,
			bytes.Repeat(bytesField(nil, 1, emptyFields(11, 1024)), n/1024),
			"INVALID: jobs.retryDelays: 524288 entries; the limit is 64000",
		},
		{
			"headers", "/v1/put", &belfryv1.PutRequest{}, `{"queue":"a","headers":{"h":""` + names.String() + `}}`,
			append(bytesField(nil, 9, []byte("\x0a\x01h")), entries...),
			"TOO_LARGE: headers: 524289 entries; the limit is 16384",
		},
		{"leases", "/v1/ack-batch", &belfryv1.AckBatchRequest{}, emptyValues("leases", `""`, n), emptyFields(1, n),
			"TOO_LARGE: leases: 524288 entries; the limit is 1000"},
		{"queues", "/v1/reserve", &belfryv1.ReserveRequest{}, emptyValues("queues", `""`, n), emptyFields(1, n),
			"TOO_LARGE: queues: 524288 entries; the limit is 64"},
		{"ids", "/v1/redrive", &belfryv1.RedriveRequest{}, emptyValues("ids", `""`, n), emptyFields(2, n),
			"TOO_LARGE: ids: 524288 entries; the limit is 1000"},
		{
			"retry delays of a queue", "/v1/update-queue", &belfryv1.UpdateQueueRequest{},
			`{"queue":"a","settings":` + emptyValues("retryDelays", `"0s"`, n) + `}`,
			bytesField(nil, 2, emptyFields(3, n)), "INVALID: settings.retryDelays: 524288 entries; the limit is 64",
		},
		{
			"states", "/v1/purge-queue", &belfryv1.PurgeQueueRequest{}, emptyValues("states", "1", n),
			bytes.Repeat([]byte{2 << 3, 1}, n),
			"TOO_LARGE: states: 524288 entries; the limit is 1000",
		},
		{
			"states packed", "/v1/purge-queue", &belfryv1.PurgeQueueRequest{}, emptyValues("states", `"READY"`, n),
			append(bytesField(nil, 2, bytes.Repeat([]byte{0x81, 0}, n/2)), bytesField(nil, 2, bytes.Repeat([]byte{1}, n/2))...),
			"TOO_LARGE: states: 524288 entries; the limit is 1000",
		},
		{"acks", "", &belfryv1.WorkRequest{}, emptyValues("acks", "{}", n), emptyFields(2, n),
			"TOO_LARGE: acks: 524288 entries; the limit is 58254"},
		{"extends", "", &belfryv1.WorkRequest{}, emptyValues("extends", "{}", n), emptyFields(5, n),
			"TOO_LARGE: extends: 524288 entries; the limit is 58254"},
		{"queues of credits", "", &belfryv1.WorkRequest{}, `{"credits":` + emptyValues("queues", `""`, n) + `}`,
			bytesField(nil, 1, emptyFields(1, n)), "TOO_LARGE: credits.queues: 524288 entries; the limit is 64"},
	}
}

// codecsWith returns both codecs as a server has them.
func codecsWith(limits check.Limits) map[string]connect.Codec {
	b := codec.NewBounds(&limits)
	return map[string]connect.Codec{"JSON": codec.NewJSON(codec.NameJSON, b), "binary": codec.Binary{Bounds: b}}
}

// allocated returns how many bytes f made, freed or not.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestFloodsCostNothing: a message of many tiny elements is refused before anything is made of it.
func TestFloodsCostNothing(t *testing.T) {
	const costMax = 64 << 10
	codecs := codecsWith(check.DefaultLimits())
	for _, c := range floods() {
		for kind, data := range map[string][]byte{"JSON": []byte(c.json), "binary": c.binary} {
			t.Run(c.name+" in "+kind, func(t *testing.T) {
				var err error
				cost := uint64(math.MaxUint64)
				for try := 0; try < 3 && cost > costMax; try++ { // what else runs allocates too, but not each time
					cost = min(cost, allocated(func() { err = codecs[kind].Unmarshal(data, c.message) }))
				}
				if err == nil || err.Error() != c.want || cost > costMax {
					t.Errorf("%v; %d bytes were allocated for %d; want %s", err, cost, len(data), c.want)
				}
			})
		}
	}
}

// TestFloodsTogether sends many such messages to a server at once. What is allocated is what it and
// its clients need to pass bytes on.
func TestFloodsTogether(t *testing.T) {
	s := serve(t)
	c := floods()[0]
	cost := allocated(func() {
		var group sync.WaitGroup
		for i := range floodSize {
			group.Go(func() {
				body, kind := string(c.binary), "application/proto"
				if i%2 == 0 {
					body, kind = c.json, "application/json"
				}
				got := s.send(http.MethodPost, c.path, body, "Content-Type", kind)
				if got.status != http.StatusBadRequest && got.status != http.StatusTooManyRequests {
					t.Errorf("%d %s", got.status, got.body)
				}
			})
		}
		group.Wait()
	})
	if most := uint64(floodSize * 8 * len(c.json)); cost > most {
		t.Errorf("%d bytes were allocated, want at most %d", cost, most)
	}
	if held := s.server.handler.bodyBytesInFlight.Load(); held != 0 {
		t.Errorf("%d bytes are still counted", held)
	}
}

// TestFloodsOverEveryProtocol: the refusal has its reason, code and field over all protocols, and
// on a stream.
func TestFloodsOverEveryProtocol(t *testing.T) {
	s := serve(t)
	jobs := slices.Repeat([]*belfryv1.PutRequest{{}}, 20_000)
	for name, client := range s.clients() {
		_, err := client.PutBatch(t.Context(), &belfryv1.PutBatchRequest{Jobs: jobs})
		f, ok := fault.FromConnect(err)
		if !ok || f.Reason != belfryv1.Reason_REASON_TOO_LARGE || connect.CodeOf(err) != connect.CodeInvalidArgument ||
			f.Field != "jobs" ||
			!strings.Contains(err.Error(), "jobs: 20000 entries; the limit is 1000") {
			t.Errorf("%s: %v of %q", name, err, f.Field)
		}
	}
	for name, client := range s.workClients() {
		stream := s.work(client, 1, "a")
		stream.send(&belfryv1.WorkRequest{Credits: &belfryv1.Credits{Queues: slices.Repeat([]string{"a"}, 20_000)}})
		err := stream.end()
		if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_TOO_LARGE ||
			f.Field != "credits.queues" {
			t.Errorf("%s: a stream: %v", name, err)
		}
	}
}
