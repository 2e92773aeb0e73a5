package wire

import (
	"bytes"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"google.golang.org/protobuf/proto"
)

// TestAppendReserveOfAll writes jobs that a machine does not make, or seldom, as the generated code
// writes them.
func TestAppendReserveOfAll(t *testing.T) {
	full := func() *fsm.Job {
		return &fsm.Job{
			Queue: "mail:orders", Partition: 1<<32 - 1, Serial: 1<<64 - 1, ID: "order-ä", State: fsm.Reserved, Priority: -128,
			Due: 1e18 + 1, FirstDue: 1e18 + 5e8,
			Created: 1e18 + 999_999, TTR: 90*time.Second + 1, MaxAttempts: 16, RetryDelays: []time.Duration{0, 1, time.Hour},
			TTL:  1e18 + 7e8 + 1,
			Body: make([]byte, 300), BodyBytes: 300, Attempt: 3, Fence: 1<<64 - 1, Until: 1e18 + 3e8, LastError: "smtp 421",
			Key: "customer-ü", Version: 300,
		}
	}
	for name, change := range map[string]func(*fsm.Job){
		"full":                     func(*fsm.Job) {},
		"empty":                    func(j *fsm.Job) { *j = fsm.Job{} },
		"no body":                  func(j *fsm.Job) { j.Body = nil },
		"an empty body":            func(j *fsm.Job) { j.Body = []byte{} },
		"ready":                    func(j *fsm.Job) { j.State = fsm.Ready },
		"headers":                  func(j *fsm.Job) { j.Headers = []fsm.Header{{Name: "k", Value: "v"}} },
		"before 1970":              func(j *fsm.Job) { j.Created, j.Until, j.Due = -1, -1, -1 },
		"a queue that is no text":  func(j *fsm.Job) { j.Queue = "\xff" },
		"a key that is no text":    func(j *fsm.Job) { j.Key = "\xff" },
		"never replaced":           func(j *fsm.Job) { j.Key, j.Version = "", 0 },
		"an id that is no text":    func(j *fsm.Job) { j.ID = "\xff" },
		"an error that is no text": func(j *fsm.Job) { j.LastError = "\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			job := full()
			change(job)
			w := Witness(node.Witness{Shard: 3, Term: 2, Index: 1 << 40, Entry: 7, Time: 1e18 + 1})
			jobs := []Grant{{full(), w}, {job, w}, {job, nil},
				{full(), Witness(node.Witness{Shard: 3, Term: 2, Index: 1 << 40, Entry: 7, Time: 1e18 + 1})}}
			got, err := AppendReserve([]byte("before"), jobs, nil)
			want, wantErr := proto.Marshal(&belfryv1.ReserveResponse{Jobs: Granted(jobs)})
			read, wanted := &belfryv1.ReserveResponse{}, &belfryv1.ReserveResponse{}
			if wantErr != nil || err != nil {
				if wantErr == nil || err == nil {
					t.Fatalf("%v, the generated code says %v", err, wantErr)
				}
				return
			}
			got, ok := bytes.CutPrefix(got, []byte("before"))
			if err := proto.Unmarshal(got, read); err != nil || proto.Unmarshal(want, wanted) != nil || !ok {
				t.Fatal(err)
			}
			if !proto.Equal(wanted, read) || len(got) != len(want) {
				t.Errorf("%d bytes, the generated code writes %d:\n%v\n%v", len(got), len(want), read, wanted)
			}
		})
	}
}
