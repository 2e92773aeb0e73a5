package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// commandCase is a command line, what the server gets and answers, and what is printed.
type commandCase struct {
	name   string
	args   []string
	stdin  string
	answer proto.Message
	sent   proto.Message
	out    string
}

const delayed = belfryv1.JobState_JOB_STATE_DELAYED

// TestCommands runs each command line, and looks at what it sent and what it printed.
func TestCommands(t *testing.T) {
	for _, test := range slices.Concat(putCases(), reserveCases(), holderCases(), jobCases(), queueCases(), clusterCases(), clusterSettingsCases(), namespaceCases()) {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, always(test.answer))
			if test.stdin != "" {
				h.system.in = strings.NewReader(test.stdin)
			}
			got := h.run(test.args...)
			if diff := cmp.Diff(outcome{0, test.out, ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]proto.Message{test.sent}, h.requests, protocmp.Transform()); diff != "" {
				t.Errorf("sent (-want +got):\n%s", diff)
			}
		})
	}
}

// putCases are the commands that put jobs.
func putCases() []commandCase {
	priority, attempts := int32(-5), uint32(3)
	return []commandCase{
		{
			name:   "put with an empty body",
			args:   []string{"put", "orders", ""},
			answer: &belfryv1.PutResponse{Id: "0-1", Created: true, State: belfryv1.JobState_JOB_STATE_READY, DueAt: at(0)},
			sent:   &belfryv1.PutRequest{Queue: "orders", RequestId: fixedRequestID, Body: &belfryv1.PutRequest_Data{Data: []byte{}}},
			out:    "put 0-1 in orders: ready, due 2030-01-31 09:00:00.000 +00:00 (in 0s)\n",
		},
		{
			name: "put with every option",
			args: []string{
				"put", "orders", "close order 42", "--id", "order-42", "-d", "30m", "--ttr", "60", "--priority", "-5", "--max-attempts", "3",
				"--retry-delays", "0s,10s,2m", "--ttl", "24h", "-H", "kind=close", "-H", "empty=", "--again", "--request-id", "mine",
			},
			answer: &belfryv1.PutResponse{Id: "order-42", State: delayed, DueAt: at(29 * time.Minute)},
			sent: &belfryv1.PutRequest{
				Queue: "orders", Id: "order-42", RequestId: "mine", When: &belfryv1.PutRequest_Delay{Delay: in(30 * time.Minute)},
				Body: &belfryv1.PutRequest_Data{Data: []byte("close order 42")}, Ttr: in(time.Minute), Priority: &priority, MaxAttempts: &attempts,
				RetryDelays: []*durationpb.Duration{in(0), in(10 * time.Second), in(2 * time.Minute)}, Ttl: in(24 * time.Hour),
				Headers: map[string]string{"kind": "close", "empty": ""}, Again: true,
			},
			out: "was put before: order-42 in orders: delayed, due 2030-01-31 09:29:00.000 +00:00 (in 29m)\n",
		},
		{
			name:   "put from standard input, due at a time",
			args:   []string{"put", "log", "-", "--at", "2030-01-31T10:00:00+01:00"},
			stdin:  "exact \xff bytes\n",
			answer: &belfryv1.PutResponse{Id: "0-2", Created: true, State: belfryv1.JobState_JOB_STATE_READY, DueAt: at(0)},
			sent: &belfryv1.PutRequest{
				Queue: "log", RequestId: fixedRequestID, When: &belfryv1.PutRequest_DueAt{DueAt: at(0)},
				Body: &belfryv1.PutRequest_Data{Data: []byte("exact \xff bytes\n")},
			},
			out: "put 0-2 in log: ready, due 2030-01-31 09:00:00.000 +00:00 (in 0s)\n",
		},
	}
}

// reserveCases are the commands that take jobs.
func reserveCases() []commandCase {
	return []commandCase{
		{
			name: "reserve shows what the holder needs",
			args: []string{"reserve", "urgent", "orders", "--wait", "20s", "--max", "2", "--ttr", "1m"},
			answer: &belfryv1.ReserveResponse{Jobs: []*belfryv1.Job{
				{
					Queue: "orders", Id: "order-42", Lease: "AQZv", Fence: 77, Attempt: 2, DueAt: at(-3 * time.Millisecond), LeaseUntil: at(time.Minute),
					Body: &belfryv1.Job_Data{Data: []byte("close\norder 42")}, Headers: map[string]string{"b": "2", "a": "1"}, LastError: "smtp 421",
				},
				{Queue: "orders", Id: "0-9", Lease: "AQZw", Fence: 78, Attempt: 1, DueAt: at(0), LeaseUntil: at(time.Minute)},
			}},
			sent: &belfryv1.ReserveRequest{
				Queues: []string{"urgent", "orders"}, MaxJobs: 2, Wait: in(20 * time.Second), Ttr: in(time.Minute), RequestId: fixedRequestID,
			},
			out: "job         order-42 of orders\nattempt     2, fence 77\ndue         2030-01-31 08:59:59.997 +00:00 (3ms ago)\n" +
				"held until  2030-01-31 09:01:00.000 +00:00 (in 1m)\nlast error  smtp 421\nheaders     a=1, b=2\nbody        close·order 42\nlease       AQZv\n" +
				"\njob         0-9 of orders\nattempt     1, fence 78\ndue         2030-01-31 09:00:00.000 +00:00 (in 0s)\n" +
				"held until  2030-01-31 09:01:00.000 +00:00 (in 1m)\nlease       AQZw\n",
		},
		{
			name:   "reserve prints bodies byte for byte",
			args:   []string{"reserve", "orders", "--body"},
			answer: &belfryv1.ReserveResponse{Jobs: []*belfryv1.Job{{Body: &belfryv1.Job_Data{Data: []byte("a\xff\n")}}, {Body: &belfryv1.Job_Text{Text: "b"}}}},
			sent:   &belfryv1.ReserveRequest{Queues: []string{"orders"}, MaxJobs: 1, RequestId: fixedRequestID},
			out:    "a\xff\nb",
		},
	}
}

// holderCases are the commands of who holds a job.
func holderCases() []commandCase {
	return []commandCase{
		{
			name:   "ack",
			args:   []string{"ack", "AQZv"},
			answer: &belfryv1.AckResponse{},
			sent:   &belfryv1.AckRequest{Lease: "AQZv"},
			out:    "acked\n",
		},
		{
			name: "ack of several",
			args: []string{"ack", "A", "B"},
			answer: &belfryv1.AckBatchResponse{Results: []*belfryv1.AckBatchResult{
				{Result: &belfryv1.AckBatchResult_Ack{Ack: &belfryv1.AckResponse{}}}, {Result: &belfryv1.AckBatchResult_Ack{Ack: &belfryv1.AckResponse{}}},
			}},
			sent: &belfryv1.AckBatchRequest{Leases: []string{"A", "B"}},
			out:  "LEASE  RESULT\nA      acked\nB      acked\n",
		},
		{
			name:   "nack with a delay",
			args:   []string{"nack", "AQZv", "-d", "10s", "-e", "smtp 421"},
			answer: &belfryv1.NackResponse{State: delayed, DueAt: at(10 * time.Second)},
			sent:   &belfryv1.NackRequest{Lease: "AQZv", Delay: in(10 * time.Second), Error: "smtp 421", RequestId: fixedRequestID},
			out:    "delayed, due 2030-01-31 09:00:10.000 +00:00 (in 10s)\n",
		},
		{
			name:   "nack makes dead",
			args:   []string{"nack", "AQZv", "--dead"},
			answer: &belfryv1.NackResponse{State: belfryv1.JobState_JOB_STATE_DEAD},
			sent:   &belfryv1.NackRequest{Lease: "AQZv", Dead: true, RequestId: fixedRequestID},
			out:    "dead\n",
		},
		{
			name:   "release",
			args:   []string{"release", "AQZv"},
			answer: &belfryv1.ReleaseResponse{State: belfryv1.JobState_JOB_STATE_READY, DueAt: at(0)},
			sent:   &belfryv1.ReleaseRequest{Lease: "AQZv", RequestId: fixedRequestID},
			out:    "ready, due 2030-01-31 09:00:00.000 +00:00 (in 0s)\n",
		},
		{
			name:   "extend",
			args:   []string{"extend", "AQZv", "--ttr", "90s"},
			answer: &belfryv1.ExtendResponse{LeaseUntil: at(90 * time.Second)},
			sent:   &belfryv1.ExtendRequest{Lease: "AQZv", Ttr: in(90 * time.Second), RequestId: fixedRequestID},
			out:    "held until 2030-01-31 09:01:30.000 +00:00 (in 1m30s)\n",
		},
	}
}

// jobCases are the commands that concern jobs by name.
func jobCases() []commandCase {
	return []commandCase{
		{
			name:   "cancel",
			args:   []string{"cancel", "orders", "order-42", "--force"},
			answer: &belfryv1.CancelResponse{State: belfryv1.JobState_JOB_STATE_RESERVED},
			sent:   &belfryv1.CancelRequest{Queue: "orders", Id: "order-42", Force: true, RequestId: fixedRequestID},
			out:    "cancelled order-42 of orders; it was reserved\n",
		},
		{
			name:   "reschedule",
			args:   []string{"reschedule", "orders", "order-42", "--delay", "1h"},
			answer: &belfryv1.RescheduleResponse{State: delayed, DueAt: at(time.Hour)},
			sent: &belfryv1.RescheduleRequest{
				Queue: "orders", Id: "order-42", RequestId: fixedRequestID, When: &belfryv1.RescheduleRequest_Delay{Delay: in(time.Hour)},
			},
			out: "delayed, due 2030-01-31 10:00:00.000 +00:00 (in 1h)\n",
		},
		{
			name:   "redrive by number",
			args:   []string{"redrive", "orders", "--max", "100"},
			answer: &belfryv1.RedriveResponse{Moved: 17},
			sent:   &belfryv1.RedriveRequest{Queue: "orders", Max: 100, RequestId: fixedRequestID},
			out:    "17 jobs made ready\n",
		},
		{
			name:   "redrive by id",
			args:   []string{"redrive", "orders", "a", "b"},
			answer: &belfryv1.RedriveResponse{Moved: 1},
			sent:   &belfryv1.RedriveRequest{Queue: "orders", Ids: []string{"a", "b"}, RequestId: fixedRequestID},
			out:    "1 job made ready\n",
		},
		{
			name: "list",
			args: []string{"list", "orders", "-s", "dead", "--due-before", "2030-01-31T09:00:00Z"},
			answer: &belfryv1.ListResponse{NextPageToken: "", Jobs: []*belfryv1.Job{
				{Id: "order-42", DueAt: at(-26 * time.Hour), Attempt: 16, BodyBytes: 2048, LastError: "smtp 421"},
				{Id: "0-9", DueAt: at(0), Priority: -1, BodyBytes: 1},
			}},
			sent: &belfryv1.ListRequest{Queue: "orders", State: belfryv1.JobState_JOB_STATE_DEAD, DueBefore: at(0), PageSize: 100},
			out: "ID        DUE                                        ATTEMPTS  PRIORITY  SIZE     LAST ERROR\n" +
				"order-42  2030-01-30 07:00:00.000 +00:00 (1d2h ago)  16        0         2.0 KiB  smtp 421\n" +
				"0-9       2030-01-31 09:00:00.000 +00:00 (in 0s)     0         -1        1 byte   \n",
		},
	}
}

// queueCases are the commands that concern queues.
func queueCases() []commandCase {
	attempts, yes, inFlight := uint32(3), true, uint32(7)
	settings := shownSettings()
	return []commandCase{
		{
			name:   "queue create",
			args:   []string{"queue", "create", "orders", "--partitions", "3", "--max-attempts", "3", "--dedup-forever"},
			answer: &belfryv1.CreateQueueResponse{Queue: "orders", Partitions: 3, Settings: settings},
			sent: &belfryv1.CreateQueueRequest{
				Queue: "orders", Partitions: 3, RequestId: fixedRequestID,
				Settings: &belfryv1.QueueSettings{MaxAttempts: &attempts, DedupForever: &yes},
			},
			out: "created orders with 3 partitions\n" + settingsText,
		},
		{
			name: "queue set sends only what was given",
			args: []string{
				"queue", "set", "orders", "--max-in-flight", "7", "--overdue", "spread", "--overdue-period", "1h", "--overdue-after", "5m",
				"--expire-to", "dead",
			},
			answer: &belfryv1.UpdateQueueResponse{Settings: settings, SettingsVersion: 4, PendingShards: []uint32{2}},
			sent: &belfryv1.UpdateQueueRequest{Queue: "orders", RequestId: fixedRequestID, Settings: &belfryv1.QueueSettings{
				MaxInFlight: &inFlight, ExpireTo: belfryv1.ExpireTo_EXPIRE_TO_DEAD.Enum(),
				Overdue: &belfryv1.OverduePolicy{
					Mode: belfryv1.OverdueMode_OVERDUE_MODE_SPREAD, Period: in(time.Hour), OverdueAfter: in(5 * time.Minute),
				},
			}},
			out: "orders has settings version 4\nnot yet applied in shards [2]; it will be\n" + settingsText,
		},
		{
			name:   "queue pause for a while",
			args:   []string{"queue", "pause", "orders", "--for", "10m"},
			answer: &belfryv1.UpdateQueueResponse{Settings: settings, SettingsVersion: 5},
			sent: &belfryv1.UpdateQueueRequest{Queue: "orders", RequestId: fixedRequestID, Settings: &belfryv1.QueueSettings{
				Paused: &yes, PausedUntil: at(10 * time.Minute),
			}},
			out: "orders has settings version 5\n" + settingsText,
		},
		{
			name:   "queue resume",
			args:   []string{"queue", "resume", "orders"},
			answer: &belfryv1.UpdateQueueResponse{Settings: settings, SettingsVersion: 6},
			sent: &belfryv1.UpdateQueueRequest{
				Queue: "orders", RequestId: fixedRequestID, Settings: &belfryv1.QueueSettings{Paused: new(bool)},
			},
			out: "orders has settings version 6\n" + settingsText,
		},
	}
}

// shownSettings are settings as the server answers them.
func shownSettings() *belfryv1.QueueSettings {
	attempts := uint32(3)
	return &belfryv1.QueueSettings{
		Ttr: in(30 * time.Second), MaxAttempts: &attempts, DedupWindow: in(10 * time.Minute),
		Overdue:  &belfryv1.OverduePolicy{Mode: belfryv1.OverdueMode_OVERDUE_MODE_FIRE, OverdueAfter: in(time.Minute)},
		ExpireTo: belfryv1.ExpireTo_EXPIRE_TO_GONE.Enum(),
	}
}

// settingsText is how they are shown.
const settingsText = "  ttr              30s\n  max-attempts     3\n  retry-delays     at once\n  dedup-window     10m\n" +
	"  max-in-flight    no limit\n  max-jobs         no limit\n  max-bytes        no limit\n  puts-per-second  no limit\n" +
	"  overdue          fire, after an outage of 1m\n  expire-to        gone\n  paused           no\n"
