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

	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
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
	for _, test := range slices.Concat(putCases(), existingCases(), reserveCases(), holderCases(), jobCases(),
		queueCases(), clusterCases(), clusterSettingsCases(), namespaceCases()) {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, clitest.Always(test.answer))
			if test.stdin != "" {
				h.System.In = strings.NewReader(test.stdin)
			}
			got := h.Run(test.args...)
			if diff := cmp.Diff(clitest.Left(0, test.out, ""), got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]proto.Message{test.sent}, h.Requests, protocmp.Transform()); diff != "" {
				t.Errorf("sent (-want +got):\n%s", diff)
			}
		})
	}
}

// putCases are the commands that put jobs.
func putCases() []commandCase {
	priority, attempts := int64(-5), uint32(3)
	return []commandCase{
		{
			name: "put with an empty body",
			args: []string{"put", "orders", ""},
			answer: &belfryv1.PutResponse{
				Id: "0-1", Created: true, State: belfryv1.JobState_JOB_STATE_READY, DueAt: clitest.At(0),
			},
			sent: &belfryv1.PutRequest{
				Queue: "orders", RequestId: clitest.FirstRequestID, Body: &belfryv1.PutRequest_Data{Data: []byte{}},
			},
			out: "put 0-1 in orders: ready, due 2030-01-31 09:00:00.000 +00:00 (in 0s)\n",
		},
		{
			name: "put with every option",
			args: []string{
				"put", "orders", "close order 42", "--id", "order-42", "-d", "30m", "--ttr", "60", "--priority", "-5",
				"--max-attempts", "3",
				"--retry-delays", "0s,10s,2m", "--ttl", "24h", "-H", "kind=close", "-H", "empty=", "--again", "--request-id",
				"mine",
			},
			answer: &belfryv1.PutResponse{Id: "order-42", State: delayed, DueAt: clitest.At(29 * time.Minute)},
			sent: &belfryv1.PutRequest{
				Queue: "orders", Id: "order-42", RequestId: "mine",
				When: &belfryv1.PutRequest_Delay{Delay: clitest.In(30 * time.Minute)},
				Body: &belfryv1.PutRequest_Data{Data: []byte("close order 42")}, Ttr: clitest.In(time.Minute), Priority: &priority,
				MaxAttempts: &attempts,
				RetryDelays: []*durationpb.Duration{clitest.In(0), clitest.In(10 * time.Second), clitest.In(2 * time.Minute)},
				Ttl:         clitest.In(24 * time.Hour),
				Headers:     map[string]string{"kind": "close", "empty": ""}, Again: true,
			},
			out: "was put before: order-42 in orders: delayed, due 2030-01-31 09:29:00.000 +00:00 (in 29m)\n",
		},
		{
			name:  "put from standard input, due at a time",
			args:  []string{"put", "log", "-", "--at", "2030-01-31T10:00:00+01:00"},
			stdin: "exact \xff bytes\n",
			answer: &belfryv1.PutResponse{
				Id: "0-2", Created: true, State: belfryv1.JobState_JOB_STATE_READY, DueAt: clitest.At(0),
			},
			sent: &belfryv1.PutRequest{
				Queue: "log", RequestId: clitest.FirstRequestID, When: &belfryv1.PutRequest_DueAt{DueAt: clitest.At(0)},
				Body: &belfryv1.PutRequest_Data{Data: []byte("exact \xff bytes\n")},
			},
			out: "put 0-2 in log: ready, due 2030-01-31 09:00:00.000 +00:00 (in 0s)\n",
		},
	}
}

// existingCases are the puts that say what becomes of the job that holds their id.
func existingCases() []commandCase {
	return []commandCase{
		{
			name: "put that replaces a job with a key",
			args: []string{
				"put", "search", "page 7", "--id", "page-7", "--key", "site-1", "--on-existing", "replace", "--max-wait", "5m",
				"--if-version", "3",
			},
			answer: &belfryv1.PutResponse{
				Id: "page-7", State: delayed, DueAt: clitest.At(time.Minute), Replaced: true, Version: 4,
			},
			sent: &belfryv1.PutRequest{
				Queue: "search", Id: "page-7", Key: "site-1", RequestId: clitest.FirstRequestID,
				OnExisting: belfryv1.OnExisting_ON_EXISTING_REPLACE, MaxWait: clitest.In(5 * time.Minute), IfVersion: 3,
				Body: &belfryv1.PutRequest_Data{Data: []byte("page 7")},
			},
			out: "replaced page-7 in search: delayed, due 2030-01-31 09:01:00.000 +00:00 (in 1m), version 4\n",
		},
		{
			name: "put that becomes a successor",
			args: []string{"put", "search", "", "--id", "page-7", "--on-existing", "next"},
			answer: &belfryv1.PutResponse{
				Id: "page-7", State: belfryv1.JobState_JOB_STATE_RESERVED, DueAt: clitest.At(0), Replaced: true, Version: 2,
			},
			sent: &belfryv1.PutRequest{
				Queue: "search", Id: "page-7", RequestId: clitest.FirstRequestID,
				OnExisting: belfryv1.OnExisting_ON_EXISTING_NEXT, Body: &belfryv1.PutRequest_Data{Data: []byte{}},
			},
			out: "stored as the successor of page-7 in search: due 2030-01-31 09:00:00.000 +00:00 (in 0s), version 2\n",
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
					Queue: "orders", Id: "order-42", Lease: "AQZv", Fence: 77, Attempt: 2, DueAt: clitest.At(-3 * time.Millisecond),
					LeaseUntil: clitest.At(time.Minute),
					Body:       &belfryv1.Job_Data{Data: []byte("close\norder 42")}, Headers: map[string]string{
						"b": "2", "a": "1",
					}, LastError: "smtp 421",
				},
				{
					Queue: "orders", Id: "0-9", Lease: "AQZw", Fence: 78, Attempt: 1, DueAt: clitest.At(0),
					LeaseUntil: clitest.At(time.Minute),
				},
			}},
			sent: &belfryv1.ReserveRequest{
				Queues: []string{"urgent", "orders"}, MaxJobs: 2, Wait: clitest.In(20 * time.Second), Ttr: clitest.In(time.Minute),
				RequestId: clitest.FirstRequestID,
			},
			out: "job         order-42 of orders\nattempt     2, fence 77\ndue         2030-01-31 08:59:59.997 +00:00 (3ms " +
				"ago)\n" +
				"held until  2030-01-31 09:01:00.000 +00:00 (in 1m)\nlast error  smtp 421\nheaders     a=1, b=2\nbody        " +
				"close·order 42\nlease       AQZv\n" +
				"\njob         0-9 of orders\nattempt     1, fence 78\ndue         2030-01-31 09:00:00.000 +00:00 (in 0s)\n" +
				"held until  2030-01-31 09:01:00.000 +00:00 (in 1m)\nlease       AQZw\n",
		},
		{
			name: "reserve prints bodies byte for byte",
			args: []string{"reserve", "orders", "--body"},
			answer: &belfryv1.ReserveResponse{Jobs: []*belfryv1.Job{
				{Body: &belfryv1.Job_Data{Data: []byte("a\xff\n")}},
				{Body: &belfryv1.Job_Text{Text: "b"}},
			}},
			sent: &belfryv1.ReserveRequest{Queues: []string{"orders"}, MaxJobs: 1, RequestId: clitest.FirstRequestID},
			out:  "a\xff\nb",
		},
	}
}

// holderCases are the commands of a worker that holds a job.
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
				{Result: &belfryv1.AckBatchResult_Ack{Ack: &belfryv1.AckResponse{}}},
				{Result: &belfryv1.AckBatchResult_Ack{Ack: &belfryv1.AckResponse{}}},
			}},
			sent: &belfryv1.AckBatchRequest{Leases: []string{"A", "B"}},
			out:  "LEASE  RESULT\nA      acked\nB      acked\n",
		},
		{
			name:   "nack with a delay",
			args:   []string{"nack", "AQZv", "-d", "10s", "-e", "smtp 421"},
			answer: &belfryv1.NackResponse{State: delayed, DueAt: clitest.At(10 * time.Second)},
			sent: &belfryv1.NackRequest{
				Lease: "AQZv", Delay: clitest.In(10 * time.Second), Error: "smtp 421", RequestId: clitest.FirstRequestID,
			},
			out: "delayed, due 2030-01-31 09:00:10.000 +00:00 (in 10s)\n",
		},
		{
			name:   "nack makes dead",
			args:   []string{"nack", "AQZv", "--dead"},
			answer: &belfryv1.NackResponse{State: belfryv1.JobState_JOB_STATE_DEAD},
			sent:   &belfryv1.NackRequest{Lease: "AQZv", Dead: true, RequestId: clitest.FirstRequestID},
			out:    "dead\n",
		},
		{
			name:   "release",
			args:   []string{"release", "AQZv"},
			answer: &belfryv1.ReleaseResponse{State: belfryv1.JobState_JOB_STATE_READY, DueAt: clitest.At(0)},
			sent:   &belfryv1.ReleaseRequest{Lease: "AQZv", RequestId: clitest.FirstRequestID},
			out:    "ready, due 2030-01-31 09:00:00.000 +00:00 (in 0s)\n",
		},
		{
			name:   "extend",
			args:   []string{"extend", "AQZv", "--ttr", "90s"},
			answer: &belfryv1.ExtendResponse{LeaseUntil: clitest.At(90 * time.Second)},
			sent:   &belfryv1.ExtendRequest{Lease: "AQZv", Ttr: clitest.In(90 * time.Second), RequestId: clitest.FirstRequestID},
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
			sent:   &belfryv1.CancelRequest{Queue: "orders", Id: "order-42", Force: true, RequestId: clitest.FirstRequestID},
			out:    "cancelled order-42 of orders; it was reserved\n",
		},
		{
			name:   "cancel with a key",
			args:   []string{"cancel", "orders", "order-42", "--key", "customer-7"},
			answer: &belfryv1.CancelResponse{State: delayed},
			sent: &belfryv1.CancelRequest{
				Queue: "orders", Id: "order-42", Key: "customer-7", RequestId: clitest.FirstRequestID,
			},
			out: "cancelled order-42 of orders; it was delayed\n",
		},
		{
			name:   "reschedule with a key",
			args:   []string{"reschedule", "orders", "order-42", "--delay", "1h", "--key", "customer-7"},
			answer: &belfryv1.RescheduleResponse{State: delayed, DueAt: clitest.At(time.Hour)},
			sent: &belfryv1.RescheduleRequest{
				Queue: "orders", Id: "order-42", RequestId: clitest.FirstRequestID, Key: "customer-7",
				When: &belfryv1.RescheduleRequest_Delay{Delay: clitest.In(time.Hour)},
			},
			out: "delayed, due 2030-01-31 10:00:00.000 +00:00 (in 1h)\n",
		},
		{
			name:   "reschedule",
			args:   []string{"reschedule", "orders", "order-42", "--delay", "1h"},
			answer: &belfryv1.RescheduleResponse{State: delayed, DueAt: clitest.At(time.Hour)},
			sent: &belfryv1.RescheduleRequest{
				Queue: "orders", Id: "order-42", RequestId: clitest.FirstRequestID,
				When: &belfryv1.RescheduleRequest_Delay{Delay: clitest.In(time.Hour)},
			},
			out: "delayed, due 2030-01-31 10:00:00.000 +00:00 (in 1h)\n",
		},
		{
			name:   "redrive by number",
			args:   []string{"redrive", "orders", "--max", "100"},
			answer: &belfryv1.RedriveResponse{Moved: 17},
			sent:   &belfryv1.RedriveRequest{Queue: "orders", Max: 100, RequestId: clitest.FirstRequestID},
			out:    "17 jobs made ready\n",
		},
		{
			name:   "redrive by id",
			args:   []string{"redrive", "orders", "a", "b"},
			answer: &belfryv1.RedriveResponse{Moved: 2},
			sent:   &belfryv1.RedriveRequest{Queue: "orders", Ids: []string{"a", "b"}, RequestId: clitest.FirstRequestID},
			out:    "2 jobs made ready\n",
		},
		{
			name: "list",
			args: []string{"list", "orders", "-s", "dead", "--due-before", "2030-01-31T09:00:00Z"},
			answer: &belfryv1.ListResponse{NextPageToken: "", Jobs: []*belfryv1.Job{
				{Id: "order-42", DueAt: clitest.At(-26 * time.Hour), Attempt: 16, BodyBytes: 2048, LastError: "smtp 421"},
				{Id: "0-9", DueAt: clitest.At(0), Priority: -1, BodyBytes: 1},
			}},
			sent: &belfryv1.ListRequest{
				Queue: "orders", State: belfryv1.JobState_JOB_STATE_DEAD, DueBefore: clitest.At(0), PageSize: 100,
			},
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
				Queue: "orders", Partitions: 3, RequestId: clitest.FirstRequestID,
				Settings: &belfryv1.QueueSettings{MaxAttempts: &attempts, DedupForever: &yes},
			},
			out: "created orders with 3 partitions\n" + settingsText,
		},
		{
			name: "queue set sends only what was given",
			args: []string{
				"queue", "set", "orders", "--max-in-flight", "7", "--overdue", "spread", "--overdue-period", "1h",
				"--overdue-after", "5m",
				"--expire-to", "dead",
			},
			answer: &belfryv1.UpdateQueueResponse{Settings: settings, SettingsVersion: 4, PendingShards: []uint32{2}},
			sent: &belfryv1.UpdateQueueRequest{Queue: "orders", RequestId: clitest.FirstRequestID,
				Settings: &belfryv1.QueueSettings{
					MaxInFlight: &inFlight, ExpireTo: belfryv1.ExpireTo_EXPIRE_TO_DEAD.Enum(),
					Overdue: &belfryv1.OverduePolicy{
						Mode: belfryv1.OverdueMode_OVERDUE_MODE_SPREAD, Period: clitest.In(time.Hour),
						OverdueAfter: clitest.In(5 * time.Minute),
					},
				}},
			out: "orders has settings version 4\nnot yet applied in shards [2]; it will be\n" + settingsText,
		},
		{
			name:   "queue pause for a while",
			args:   []string{"queue", "pause", "orders", "--for", "10m"},
			answer: &belfryv1.UpdateQueueResponse{Settings: settings, SettingsVersion: 5},
			sent: &belfryv1.UpdateQueueRequest{Queue: "orders", RequestId: clitest.FirstRequestID,
				Settings: &belfryv1.QueueSettings{
					Paused: &yes, PausedUntil: clitest.At(10 * time.Minute),
				}},
			out: "orders has settings version 5\n" + settingsText,
		},
		{
			name:   "queue resume",
			args:   []string{"queue", "resume", "orders"},
			answer: &belfryv1.UpdateQueueResponse{Settings: settings, SettingsVersion: 6},
			sent: &belfryv1.UpdateQueueRequest{
				Queue: "orders", RequestId: clitest.FirstRequestID, Settings: &belfryv1.QueueSettings{Paused: new(bool)},
			},
			out: "orders has settings version 6\n" + settingsText,
		},
	}
}

// shownSettings are settings as the server answers them.
func shownSettings() *belfryv1.QueueSettings {
	attempts := uint32(3)
	return &belfryv1.QueueSettings{
		Ttr: clitest.In(30 * time.Second), MaxAttempts: &attempts, DedupWindow: clitest.In(10 * time.Minute),
		Overdue: &belfryv1.OverduePolicy{
			Mode: belfryv1.OverdueMode_OVERDUE_MODE_FIRE, OverdueAfter: clitest.In(time.Minute),
		},
		ExpireTo: belfryv1.ExpireTo_EXPIRE_TO_GONE.Enum(),
	}
}

// settingsText is how they are shown.
const settingsText = `  ttr              30s
  max-attempts     3
  retry-delays     at once
  dedup-window     10m
  max-in-flight    no limit
  max-jobs         no limit
  max-bytes        no limit
  puts-per-second  no limit
  overdue          fire, after an outage of 1m
  expire-to        gone
  keys             no limits
  paused           no
`

// clusterCases are the commands about the cluster that make one call.
func clusterCases() []commandCase {
	no, yes := false, true
	draining := &belfryv1.Node{Name: "n3", Draining: true, Replicas: 6, Leads: 2}
	return []commandCase{
		{
			name: "cluster status", args: []string{"cluster", "status"}, answer: clitest.ShownCluster(),
			sent: &belfryv1.GetClusterRequest{},
			out:  "cluster c1, which speaks format 1, asked n1: healthy\n" + clitest.ShownNodesAndShards,
		},
		{
			name: "cluster drain without waiting", args: []string{"cluster", "drain", "n3", "--no-wait"},
			answer: &belfryv1.DrainNodeResponse{Node: draining}, sent: &belfryv1.DrainNodeRequest{Name: "n3", Draining: &yes},
			out: "n3 is draining: 6 replicas left, leads 2 shards\n",
		},
		{
			name: "cluster drain that is forced", args: []string{"cluster", "drain", "n3", "--no-wait", "--force"},
			answer: &belfryv1.DrainNodeResponse{Node: draining}, sent: &belfryv1.DrainNodeRequest{
				Name: "n3", Draining: &yes, Force: true,
			},
			out: "n3 is draining: 6 replicas left, leads 2 shards\n",
		},
		{
			name: "cluster drain of an empty node", args: []string{"cluster", "drain", "n3.00000000000000ff"},
			answer: &belfryv1.DrainNodeResponse{Node: &belfryv1.Node{Name: "n3", Draining: true}},
			sent:   &belfryv1.DrainNodeRequest{Name: "n3", Incarnation: "00000000000000ff", Draining: &yes},
			out:    "n3 is empty: once it is stopped, 'belfry cluster remove n3' forgets it\n",
		},
		{
			name: "cluster drain --undo", args: []string{"cluster", "drain", "n3", "--undo"},
			answer: &belfryv1.DrainNodeResponse{Node: &belfryv1.Node{Name: "n3"}}, sent: &belfryv1.DrainNodeRequest{
				Name: "n3", Draining: &no,
			},
			out: "n3 takes replicas again\n",
		},
		{
			name: "cluster transfer", args: []string{"cluster", "transfer", "2", "--to", "n3"},
			answer: &belfryv1.TransferLeaderResponse{
				Previous: "n1", Leader: "n3",
			}, sent: &belfryv1.TransferLeaderRequest{Shard: 2, To: "n3"},
			out: "shard 2: n1 handed over to n3\n",
		},
		{
			name: "cluster transfer to who leads", args: []string{"cluster", "transfer", "0"},
			answer: &belfryv1.TransferLeaderResponse{Previous: "n1", Leader: "n1"}, sent: &belfryv1.TransferLeaderRequest{},
			out: "n1 leads shard 0 already\n",
		},
		{
			name: "cluster reset-clock", args: []string{"cluster", "reset-clock", "--yes"}, sent: &belfryv1.ResetClockRequest{},
			answer: &belfryv1.ResetClockResponse{Shards: []*belfryv1.ShardClock{
				{From: clitest.At(0), To: clitest.At(0)},
				{Shard: 1, From: clitest.At(time.Hour), To: clitest.At(0)},
			}},
			out: "shard 1: from " + clitest.Now.Add(time.Hour).UTC().Format(time.RFC3339Nano) + " back to " +
				clitest.Now.UTC().Format(time.RFC3339Nano) + "\n",
		},
		{
			name: "cluster reset-clock of clocks that are right", args: []string{"cluster", "reset-clock", "-y"},
			sent:   &belfryv1.ResetClockRequest{},
			answer: &belfryv1.ResetClockResponse{Shards: []*belfryv1.ShardClock{{From: clitest.At(0), To: clitest.At(0)}}},
			out:    "no shard's time is ahead; nothing was changed\n",
		},
	}
}

// clusterSettingsCases shows and changes the settings of the cluster.
func clusterSettingsCases() []commandCase {
	return []commandCase{
		{
			name: "cluster settings", args: []string{"cluster", "settings"},
			answer: &belfryv1.GetClusterResponse{
				ReplicationFactor: 3, GracePeriod: durationpb.New(10 * time.Minute), MinVoters: 2,
			}, sent: &belfryv1.GetClusterRequest{},
			out: "replication factor 3, grace period 10m0s, min-voters 2, no-auto-create false\n",
		},
		{
			name: "cluster settings that change", args: []string{"cluster", "settings", "--grace-period", "5m"},
			answer: &belfryv1.UpdateClusterResponse{
				ReplicationFactor: 3, GracePeriod: durationpb.New(5 * time.Minute), MinVoters: 1,
			},
			sent: &belfryv1.UpdateClusterRequest{GracePeriod: durationpb.New(5 * time.Minute)},
			out:  "replication factor 3, grace period 5m0s, min-voters 1, no-auto-create false\n",
		},
		{
			name: "min-voters raised", args: []string{"cluster", "settings", "--min-voters", "2"},
			answer: &belfryv1.UpdateClusterResponse{
				ReplicationFactor: 3, GracePeriod: durationpb.New(time.Minute), MinVoters: 2,
			},
			sent: &belfryv1.UpdateClusterRequest{MinVoters: 2},
			out:  "replication factor 3, grace period 1m0s, min-voters 2, no-auto-create false\n",
		},
		{
			name: "min-voters lowered", args: []string{"cluster", "settings", "--lower-min-voters", "1"},
			answer: &belfryv1.UpdateClusterResponse{
				ReplicationFactor: 3, GracePeriod: durationpb.New(time.Minute), MinVoters: 1,
			},
			sent: &belfryv1.UpdateClusterRequest{LowerMinVoters: 1},
			out:  "replication factor 3, grace period 1m0s, min-voters 1, no-auto-create false\n",
		},
		{
			name: "no-auto-create", args: []string{"cluster", "settings", "--no-auto-create"},
			answer: &belfryv1.UpdateClusterResponse{
				ReplicationFactor: 3, GracePeriod: durationpb.New(time.Minute), MinVoters: 1, NoAutoCreate: true,
			},
			sent: &belfryv1.UpdateClusterRequest{NoAutoCreate: new(true)},
			out:  "replication factor 3, grace period 1m0s, min-voters 1, no-auto-create true\n",
		},
		{
			name: "no-auto-create taken back", args: []string{"cluster", "settings", "--no-auto-create=false"},
			answer: &belfryv1.UpdateClusterResponse{
				ReplicationFactor: 3, GracePeriod: durationpb.New(time.Minute), MinVoters: 1,
			},
			sent: &belfryv1.UpdateClusterRequest{NoAutoCreate: new(false)},
			out:  "replication factor 3, grace period 1m0s, min-voters 1, no-auto-create false\n",
		},
	}
}
