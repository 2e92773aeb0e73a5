package rpc

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/drain"
	"github.com/belfrydb/belfry/rpc/fault"
)

func TestConfigReportsEveryProblem(t *testing.T) {
	_, err := newTestServer(Config{Limits: check.Limits{BodyBytesMax: -1}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Node", "Catalog", "Logger", "Registry", "BodyBytesMax", "WaitMax"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in %v", want, err)
		}
	}
}

func TestHealthPages(t *testing.T) {
	s := serve(t)
	if got := s.send("GET", "/livez", ""); got.status != 200 || got.body != "ok\n" {
		t.Errorf("%d %q", got.status, got.body)
	}
	if got := s.send("GET", "/readyz", ""); got.status != 200 || got.body != "ready\n" {
		t.Errorf("%d %q", got.status, got.body)
	}
	if got := s.send("GET", "/readyz?verbose",
		""); got.body != "[+]serving ok\n[+]disk ok\n[+]catalog ok\n[+]leaders ok\n[+]shard-0 ok\n[+]shard-1 "+
		"ok\n[+]shard-2 ok\nready\n" {
		t.Errorf("%q", got.body)
	}
	shard := func(number int, change func(g *node.GroupStatus)) {
		s.node.ChangeStatus(func(s *node.Status) { change(&s.Shards[number]) })
	}
	s.node.ChangeStatus(func(s *node.Status) {
		s.DiskFull, s.DiskShortage = true, "12 inodes of its disk are free, the mark is 1024"
	})
	shard(0, func(g *node.GroupStatus) { g.Leader = "" })
	shard(1, func(g *node.GroupStatus) { g.ClockAhead = true })
	shard(2, func(g *node.GroupStatus) { g.Serving = false })
	want := "[+]serving ok\n[!]disk warning: nearly full: 12 inodes of its disk are free, the mark is 1024\n[+]catalog " +
		"ok\n[+]leaders ok\n[!]shard-0 warning: no leader is known\n" +
		"[!]shard-1 warning: CLOCK_AHEAD: shard time is ahead of the wall clock\n[!]shard-2 warning: its new leader does " +
		"not serve yet\nready\n"
	if got := s.send("GET", "/readyz?verbose", ""); got.status != 200 || got.body != want {
		t.Errorf("%d %q", got.status, got.body)
	}
	s.node.ChangeStatus(func(s *node.Status) { s.MinVoters = 2 })
	shard(0, func(g *node.GroupStatus) { g.Leader, g.Voters, g.MembersIndex = "n1.1", []string{"n1.1"}, 1 })
	if got := s.send("GET", "/readyz?verbose", ""); got.status != 200 ||
		!strings.Contains(got.body,
			"[!]shard-0 warning: TOO_FEW_VOTERS: it has 1 of 2 voters, and takes only what makes room\n") {
		t.Errorf("%d %q", got.status, got.body)
	}
	shard(0, func(g *node.GroupStatus) { g.Voters = append(g.Voters, "n2.1") })
	if got := s.send("GET", "/readyz?verbose", ""); got.status != 200 || !strings.Contains(got.body, "[+]shard-0 ok\n") {
		t.Errorf("%d %q", got.status, got.body)
	}
	shard(2, func(g *node.GroupStatus) { g.Role, g.LastError = node.Stopped, "disk on fire" })
	if got := s.send("GET", "/readyz", ""); got.status != 503 ||
		!strings.Contains(got.body, "[-]shard-2 failed: stopped: disk on fire\n") {
		t.Errorf("%d %q", got.status, got.body)
	}
	if got := s.send("GET", "/readyz?exclude=disk&exclude=shard-2", ""); got.status != 200 {
		t.Errorf("%d %q", got.status, got.body)
	}
	shard(2, func(g *node.GroupStatus) { g.Role, g.CommitIndex, g.AppliedIndex = node.Follower, 10_100, 100 })
	if got := s.send("GET", "/readyz?verbose", ""); !strings.Contains(got.body, "[+]shard-2 ok\n") {
		t.Errorf("%q", got.body)
	}
	shard(2, func(g *node.GroupStatus) { g.CommitIndex++ })
	if got := s.send("GET", "/readyz", ""); got.status != 503 ||
		!strings.Contains(got.body, "[-]shard-2 failed: 10001 entries of its log have yet to take effect here\n") {
		t.Errorf("%d %q", got.status, got.body)
	}
	if got := s.send("GET", "/livez", ""); got.status != 200 {
		t.Errorf("a broken shard is not a dead process: %d", got.status)
	}
}

// TestReadyRefusesWhatItDoesNotUnderstand names the parameter or the check, and lists those that
// there are, also while the node waits for its cluster.
func TestReadyRefusesWhatItDoesNotUnderstand(t *testing.T) {
	const checks = "; the checks here are serving, disk, catalog, leaders and shard-0 to shard-2"
	s := serve(t)
	waiting := NewWaitingHandler("n1", slog.New(slog.DiscardHandler), func() string { return "nobody is there" })
	for query, want := range map[string]string{
		"exclude=nosuch":                      `exclude: there is no check \"nosuch\"` + checks,
		"exclude=disk&verbose&exclude=shard-": `exclude: there is no check \"shard-\"` + checks,
		"exclude=":                            `exclude: there is no check \"\"` + checks,
		"exclude=shard-3":                     `exclude: there is no check \"shard-3\"` + checks,
		"foo=1":                               "foo: unknown parameter; the parameters here are verbose, exclude",
		"exlude=disk":                         `exlude: unknown parameter; did you mean \"exclude\"?`,
		"verbose&exclude=%zz":                 "query: cannot be read",
	} {
		got := s.send("GET", "/readyz?"+query, "")
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, want) ||
			!strings.Contains(got.body, `"INVALID"`) {
			t.Errorf("%s: %d %s, want %s", query, got.status, got.body, want)
		}
		if strings.Contains(want, checks) {
			continue
		}
		w := httptest.NewRecorder()
		waiting.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz?"+query, http.NoBody))
		if body := w.Body.String(); w.Code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s, while it waits: %d %s, want %s", query, w.Code, body, want)
		}
	}
}

// reachingNode is a node that runs no replica of shard 2 and knows what calls would meet.
type reachingNode struct {
	*backendtest.Node
	unreached map[string]string
	serves    []uint32
}

func (n *reachingNode) Unreached(context.Context) map[string]string { return n.unreached }

func (n *reachingNode) Serves(shard uint32) bool { return slices.Contains(n.serves, shard) }

// TestReadySaysWhatThisNodeCanDo: the node's own trouble counts, and that it reaches no leader at
// all. A shard without a leader does not.
func TestReadySaysWhatThisNodeCanDo(t *testing.T) {
	n := &reachingNode{Node: backendtest.NewNode(3)}
	n.ChangeStatus(func(s *node.Status) { s.Shards = s.Shards[:2] })
	s := serve(t, func(c *Config) { c.Node = n })
	for _, tt := range []struct {
		unreached map[string]string
		status    int
		want      string
	}{
		{nil, 200, "[+]serving ok\n[+]disk ok\n[+]catalog ok\n[+]leaders ok\n[+]shard-0 ok\n[+]shard-1 ok\n[+]shard-2 " +
			"ok\nready\n"},
		{map[string]string{
			"shard-1": "its leader n2 does not answer", "shard-2": "no leader is known",
		}, 200, "[+]serving ok\n[+]disk ok\n" +
			"[+]catalog ok\n[+]leaders ok\n[+]shard-0 ok\n[!]shard-1 warning: its leader n2 does not answer\n[!]shard-2 " +
			"warning: no leader is known\nready\n"},
		{map[string]string{"catalog": "it is catching up"}, 503, "[+]serving ok\n[+]disk ok\n" +
			"[-]catalog failed: it is catching up\n[+]leaders ok\n[+]shard-0 ok\n[+]shard-1 ok\n[+]shard-2 ok\nnot ready\n"},
	} {
		n.unreached = tt.unreached
		if got := s.send("GET", "/readyz?verbose", ""); got.status != tt.status || got.body != tt.want {
			t.Errorf("%d %q", got.status, got.body)
		}
	}
}

// TestReadyOfACutOffNode: an election of all leaders at once takes no node out; that no leader is
// reached for longer does. A node that has just started is not ready before it has heard of the
// leaders of its replicas, for a minute at most.
func TestReadyOfACutOffNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := map[string]string{
			"shard-0": "no leader is known", "shard-1": "no leader is known", "shard-2": "no leader is known",
		}
		n := &reachingNode{Node: backendtest.NewNode(3), unreached: none}
		h := &health{node: n, drain: &drain.Signal{}, begun: time.Now()}
		expect := func(when string, failing ...string) {
			t.Helper()
			var got []string
			for _, c := range h.checks(t.Context()) {
				if c.failed() {
					got = append(got, c.name)
				}
			}
			if !slices.Equal(got, failing) {
				t.Errorf("%s: what fails is %v, want %v", when, got, failing)
			}
		}
		leader := n.Status().Shards[1].Leader
		setLeader := func(leader string) {
			n.ChangeStatus(func(s *node.Status) { s.Shards[1].Leader = leader })
		}
		setLeader("")
		expect("at the start", "leaders", "shard-1")
		n.unreached = nil
		expect("one replica has heard of no leader", "shard-1")
		time.Sleep(startWait - time.Second)
		expect("nor after a while", "shard-1")
		time.Sleep(time.Second)
		expect("a minute after the start")
		setLeader(leader)
		expect("it has now")
		setLeader("")
		expect("heard of once is enough")
		n.unreached = none
		for range 3 {
			expect("an election of all leaders")
			time.Sleep(isolatedAfter - time.Second)
			expect("it takes a while")
			n.unreached = nil
			expect("it is over")
			n.unreached = none
		}
		expect("the next")
		time.Sleep(isolatedAfter)
		expect("cut off", "leaders")
		n.unreached = nil
		expect("back again")
	})
}

func TestGRPCHealth(t *testing.T) {
	s := serve(t)
	client := connect.NewClient[belfryv1.GetRequest, belfryv1.GetResponse](h2c(t), s.url+"/grpc.health.v1.Health/Check",
		connect.WithGRPC())
	if _, err := client.CallUnary(t.Context(), connect.NewRequest(&belfryv1.GetRequest{})); err != nil {
		t.Errorf("%v", err)
	}
	h := &health{node: s.node, drain: s.server.handler.drain, services: []string{"", belfryv1connect.QueueServiceName}}
	for _, service := range h.services {
		if got, err := h.Check(t.Context(), &grpchealth.CheckRequest{Service: service}); err != nil ||
			got.Status != grpchealth.StatusServing {
			t.Errorf("%q: %v, %v", service, got, err)
		}
	}
	if _, err := h.Check(t.Context(),
		&grpchealth.CheckRequest{Service: "nix"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("%v", err)
	}
	s.server.Drain()
	if got, err := h.Check(t.Context(), &grpchealth.CheckRequest{}); err != nil ||
		got.Status != grpchealth.StatusNotServing {
		t.Errorf("draining: %v, %v", got, err)
	}
	if got := s.post("/grpc.health.v1.Health/Check", "{}"); got.status != 200 ||
		!strings.Contains(got.body, "NOT_SERVING") {
		t.Errorf("over curl: %d %s", got.status, got.body)
	}
}

func TestReflection(t *testing.T) {
	s := serve(t)
	stream := grpcreflect.NewClient(h2c(t), s.url, connect.WithGRPC()).NewStream(t.Context())
	names, err := stream.ListServices()
	if err != nil || len(names) != 4 {
		t.Fatalf("%v, %v", names, err)
	}
	files, err := stream.FileContainingSymbol("belfry.v1.PutRequest")
	if err != nil || len(files) == 0 {
		t.Errorf("%v", err)
	}
	if _, err := stream.Close(); err != nil {
		t.Error(err)
	}
}

// TestPanicsAreAnswered: a handler that panics answers INTERNAL, says nothing of its insides, and
// the server goes on.
func TestPanicsAreAnswered(t *testing.T) {
	s := serve(t)
	s.node.Fail = func(uint32) error { panic("secret insides") }
	for name, c := range s.clients() {
		_, err := c.Put(t.Context(), &belfryv1.PutRequest{Queue: "a"})
		if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_INTERNAL ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	raw := s.post("/q/a", "x")
	if raw.status != 500 || !strings.Contains(raw.body, `"reason":"INTERNAL"`) || strings.Contains(raw.body, "secret") {
		t.Errorf("%d %s", raw.status, raw.body)
	}
	s.node.Fail = nil
	if got := s.post("/v1/put", `{"queue":"a"}`); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if !strings.Contains(s.log.String(), "secret insides") {
		t.Error("the log does not have it")
	}
}

// TestBodiesAreNotLogged: what users put concerns nobody else.
func TestBodiesAreNotLogged(t *testing.T) {
	s := serve(t)
	s.post("/v1/put", `{"queue":"a","text":"very-private"}`)
	s.node.Fail = func(uint32) error { return context.Canceled }
	s.post("/v1/put", `{"queue":"a","text":"very-private"}`)
	if strings.Contains(s.log.String(), "very-private") {
		t.Error(s.log.String())
	}
}

// TestCompression: answers are compressed for clients that accept it, and only where it pays.
func TestCompression(t *testing.T) {
	s := serve(t)
	s.post("/v1/put", `{"queue":"a","id":"small","text":"x","delay":"1h"}`)
	s.post("/v1/put", `{"queue":"a","id":"large","text":"`+strings.Repeat("x", 4096)+`","delay":"1h"}`)
	for id, want := range map[string]string{"small": "", "large": "gzip"} {
		got := s.send("POST", "/v1/get", `{"queue":"a","id":"`+id+`"}`, "Accept-Encoding", "gzip")
		if got.header.Get("Content-Encoding") != want {
			t.Errorf("%s: %q", id, got.header.Get("Content-Encoding"))
		}
	}
}

func TestShutdownIsBounded(t *testing.T) {
	s := serve(t)
	conn := s.raw("POST /v1/put HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	s.await("a request whose body is being read", func() bool { return s.server.handler.bodyBytesInFlight.Load() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.server.Shutdown(ctx); err == nil {
		t.Error("no error, though a request was under way")
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

// TestShutdownEndsAConnectionThatHasJustCome: a client that has connected, and says that it speaks
// HTTP/2 while the server stops, does not keep it.
func TestShutdownEndsAConnectionThatHasJustCome(t *testing.T) {
	t.Parallel()
	s := serve(t)
	conn := s.raw("")
	s.send(http.MethodGet, "/livez", "") // whose connection is accepted after the other
	// After 45 seconds the client is taken for dead, as it answers no pings.
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- s.server.Shutdown(ctx) }()
	s.await("a listener that is closed", func() bool {
		late, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.addr)
		if err == nil {
			late.Close()
		}
		return err != nil
	})
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("the connection that had just come held up the stop: %v", err)
	}
}

func TestEveryMethodHasAShortPath(t *testing.T) {
	want := map[string]string{
		"/v1/put": "QueueService/Put", "/v1/put-batch": "QueueService/PutBatch", "/v1/reserve": "QueueService/Reserve",
		"/v1/ack": "QueueService/Ack", "/v1/ack-batch": "QueueService/AckBatch", "/v1/nack": "QueueService/Nack",
		"/v1/release": "QueueService/Release", "/v1/extend": "QueueService/Extend", "/v1/cancel": "QueueService/Cancel",
		"/v1/reschedule": "QueueService/Reschedule", "/v1/get": "QueueService/Get", "/v1/list": "QueueService/List",
		"/v1/redrive": "QueueService/Redrive", "/v1/get-routing": "QueueService/GetRouting", "/v1/work": "QueueService/Work",
		"/v1/create-queue": "AdminService/CreateQueue", "/v1/list-queues": "AdminService/ListQueues",
		"/v1/get-queue":    "AdminService/GetQueue",
		"/v1/update-queue": "AdminService/UpdateQueue", "/v1/purge-queue": "AdminService/PurgeQueue",
		"/v1/delete-queue": "AdminService/DeleteQueue", "/v1/get-cluster": "AdminService/GetCluster",
		"/v1/drain-node": "AdminService/DrainNode", "/v1/remove-node": "AdminService/RemoveNode",
		"/v1/transfer-leader": "AdminService/TransferLeader", "/v1/backup": "AdminService/Backup",
		"/v1/restore":     "AdminService/Restore",
		"/v1/reset-clock": "AdminService/ResetClock", "/v1/update-cluster": "AdminService/UpdateCluster",
		"/v1/create-token": "AdminService/CreateToken", "/v1/list-tokens": "AdminService/ListTokens",
		"/v1/delete-token": "AdminService/DeleteToken", "/v1/list-audit": "AdminService/ListAudit",
		"/v1/release-leases": "AdminService/ReleaseLeases",
		"/v1/list-keys":      "AdminService/ListKeys", "/v1/pause-key": "AdminService/PauseKey",
		"/v1/resume-key": "AdminService/ResumeKey", "/v1/purge-key": "AdminService/PurgeKey",
		"/v1/start-task": "AdminService/StartTask", "/v1/get-task": "AdminService/GetTask",
		"/v1/list-tasks": "AdminService/ListTasks", "/v1/stop-task": "AdminService/StopTask",
		"/v1/set-namespace": "AdminService/SetNamespace", "/v1/get-namespace": "AdminService/GetNamespace",
		"/v1/list-namespaces": "AdminService/ListNamespaces", "/v1/delete-namespace": "AdminService/DeleteNamespace",
		"/v1/put-schedule": "ScheduleService/PutSchedule", "/v1/get-schedule": "ScheduleService/GetSchedule",
		"/v1/list-schedules": "ScheduleService/ListSchedules", "/v1/delete-schedule": "ScheduleService/DeleteSchedule",
		"/v1/pause-schedules": "ScheduleService/PauseSchedules", "/v1/resume-schedules": "ScheduleService/ResumeSchedules",
		"/v1/trigger-schedule":  "ScheduleService/TriggerSchedule",
		"/v1/backfill-schedule": "ScheduleService/BackfillSchedule",
		"/v1/preview-schedule":  "ScheduleService/PreviewSchedule",
	}
	methods := methodsOfContract()
	for _, m := range methods {
		if m.procedure != "/belfry.v1."+want[m.short] {
			t.Errorf("%s stands for %s", m.short, m.procedure)
		}
		if reads := strings.Contains(m.short, "get") || strings.Contains(m.short, "list") ||
			m.short == "/v1/preview-schedule"; reads != m.reads {
			t.Errorf("%s: reads %v", m.short, m.reads)
		}
		if m.streams != (m.short == "/v1/work" || m.short == "/v1/backup" || m.short == "/v1/restore") {
			t.Errorf("%s: streams %v", m.short, m.streams)
		}
	}
	if len(methods) != len(want) {
		t.Errorf("%d methods; want %d", len(methods), len(want))
	}
}

func TestPlainGETIsRefusedForStreams(t *testing.T) {
	s := serve(t)
	if got := s.send(http.MethodGet, "/v1/work", ""); got.status < 400 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestLimitsAreSettings: what the edge enforces is what it was given.
func TestLimitsAreSettings(t *testing.T) {
	s := serve(t, func(c *Config) {
		l := check.DefaultLimits()
		l.BodyBytesMax, l.HeaderBytesMax, l.IDBytesMax, l.QueueBytesMax, l.RequestIDBytesMax = 10, 4, 3, 5, 2
		l.BatchJobsMax, l.BatchBytesMax, l.QueuesMax, l.RetryDelaysMax, l.AttemptsMax = 2, 15, 1, 1, 9
		l.DelayMax, l.WaitMax, l.TTRMin, l.TTRMax, l.MessageBytesMax = time.Hour, time.Second, time.Second, time.Minute, 300
		c.Limits = l
	})
	for _, c := range []struct{ path, body, want string }{
		{"/v1/put", `{"queue":"a","text":"01234567890"}`, "text: 11 bytes; the limit is 10"},
		{"/v1/put", `{"queue":"a","headers":{"ab":"cde"}}`, "headers: 5 bytes; the limit is 4"},
		{"/v1/put", `{"queue":"a","id":"four"}`, "id: 4 bytes; the limit is 3"},
		{"/v1/put", `{"queue":"queue6"}`, "queue: 6 bytes; the limit is 5"},
		{"/v1/put", `{"queue":"a","requestId":"abc"}`, "requestId: 3 bytes; the limit is 2"},
		{"/v1/put", `{"queue":"a","delay":"61m"}`, "delay: 1h1m is out of range: 0s to 1h"},
		{"/v1/put", `{"queue":"a","ttr":"61s"}`, "ttr: 1m1s is out of range: 1s to 1m"},
		{"/v1/put", `{"queue":"a","retryDelays":[1,2]}`, "retryDelays: 2 entries; the limit is 1"},
		{"/v1/put", `{"queue":"a","maxAttempts":10}`, "maxAttempts: 10 is out of range: 0 to 9"},
		{"/v1/put-batch", jobsJSON(3, `{"queue":"a"}`), "jobs: 3 entries; the limit is 2"},
		{"/v1/put-batch", jobsJSON(2, `{"queue":"a","text":"01234567"}`), "jobs: 16 bytes; the limit is 15"},
		{"/v1/reserve", `{"queues":["a","b"]}`, "queues: 2 entries; the limit is 1"},
		{"/v1/reserve", `{"queues":["a"],"wait":2}`, "wait: 2s is out of range: 0s to 1s"},
		{"/v1/put", `{"queue":"` + strings.Repeat("a", 400) + `"}`, "request: more than 300 bytes"},
	} {
		if got := s.post(c.path, c.body); got.status != 400 || !strings.Contains(got.body, c.want) {
			t.Errorf("%s %s: %d %s", c.path, c.body, got.status, got.body)
		}
	}
}
