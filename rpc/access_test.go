package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/auth"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/wire"
	"github.com/belfrydb/belfry/stream"
)

// tokenMemory keeps tokens in memory. It is an auth.Authenticator, and a backend.Catalog, so
// that handlers can make and end its tokens.
type tokenMemory struct {
	*backendtest.Catalog
	mu  sync.Mutex
	all map[string]*tokens.Record
	// unknown is the error while it is not known which tokens there are.
	unknown error
}

func newTokenMemory() *tokenMemory {
	return &tokenMemory{Catalog: backendtest.NewCatalog(), all: map[string]*tokens.Record{}}
}

func (m *tokenMemory) OpenAccess() (bool, error) { return false, nil }

func (m *tokenMemory) Token(id string) (*tokens.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[id], m.unknown
}

func (m *tokenMemory) AddToken(_ context.Context, t tokens.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[t.ID] = &t
	return nil
}

func (m *tokenMemory) EndToken(_ context.Context, id string, at time.Time) (found bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.all[id]
	switch {
	case old == nil:
		return false, nil
	case at.IsZero():
		delete(m.all, id)
	default:
		ended := *old
		ended.NotAfter = at.UnixNano()
		m.all[id] = &ended
	}
	return true, nil
}

func (m *tokenMemory) Tokens() (all []*tokens.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.all {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *tokens.Record) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// make makes a token.
func (m *tokenMemory) make(t testing.TB, scopes ...string) (text, id string) {
	t.Helper()
	text, id, hash := tokens.New()
	record := tokens.Record{ID: id, Hash: hash}
	for _, scope := range scopes {
		s, err := tokens.ParseScope(scope)
		if err != nil {
			t.Fatal(err)
		}
		record.Scopes = append(record.Scopes, s)
	}
	if err := m.AddToken(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	return text, id
}

// serveWithTokens starts a server whose calls need tokens.
func serveWithTokens(t *testing.T) (*served, *tokenMemory) {
	tokenStore := newTokenMemory()
	s := serve(t, func(cfg *Config) { cfg.Authenticator, cfg.Catalog = tokenStore, tokenStore })
	return s, tokenStore
}

// with sends a call with a token.
func (s *served) with(token, method, path, body string) answered {
	s.t.Helper()
	return s.send(method, path, body, "Content-Type", "application/json", "Authorization", "Bearer "+token)
}

// leastScopes is the least that each method takes, with a request in which the queue is q, or the
// lease one of its.
func leastScopes(lease string) map[string][2]string {
	byLease := fmt.Sprintf(`{"lease":%q}`, lease)
	return map[string][2]string{
		"Put": {"put:q", `{"queue":"q"}`}, "PutBatch": {"put:q", `{"jobs":[{"queue":"q"}]}`},
		"Cancel": {"put:q", `{"queue":"q","id":"x"}`}, "Reschedule": {"put:q", `{"queue":"q","id":"x","delay":"1s"}`},
		"Reserve": {"consume:q", `{"queues":["q"]}`}, "Work": {"consume:q", `{"credits":{"queues":["q"]}}`},
		"Ack": {"consume:q", byLease}, "AckBatch": {"consume:q", fmt.Sprintf(`{"leases":[%q]}`, lease)},
		"Nack":    {"consume:q", byLease},
		"Release": {"consume:q", byLease}, "Extend": {"consume:q", byLease},
		"Get": {"consume:q", `{"queue":"q","id":"x"}`}, "List": {"consume:q", `{"queue":"q"}`},
		"GetRouting": {"view:r", `{"queues":["q"]}`}, "Redrive": {"admin:q", `{"queue":"q","max":1}`},
		"CreateQueue": {"admin:q", `{"queue":"q"}`}, "UpdateQueue": {"admin:q", `{"queue":"q","settings":{"paused":true}}`},
		"PurgeQueue": {"admin:q", `{"queue":"q","states":["DEAD"]}`}, "DeleteQueue": {"admin:q", `{"queue":"q"}`},
		"ListQueues": {"view:r", `{}`}, "GetQueue": {"view:q", `{"queue":"q"}`},
		"GetCluster": {"view:*", `{}`}, "DrainNode": {"admin:*", `{"name":"n9"}`}, "UpdateCluster": {"admin:*", `{}`},
		"SetNamespace": {"admin:*", `{"name":"shop","maxJobs":1}`}, "GetNamespace": {"admin:*", `{"name":"shop"}`},
		"ListNamespaces": {"admin:*", `{}`}, "DeleteNamespace": {"admin:*", `{"name":"shop"}`},
		"RemoveNode": {"admin:*", `{"name":"n9"}`}, "TransferLeader": {"admin:*", `{"shard":99}`},
		"ResetClock": {"admin:*", `{}`},
		"Backup":     {"admin:*", `{}`}, "Restore": {"admin:*", `{}`},
		"CreateToken": {"admin:*", `{"scopes":["put:q"]}`}, "ListTokens": {"admin:*", `{}`},
		"ListAudit": {"admin:*", `{}`}, "ReleaseLeases": {"admin:q", `{"queue":"q","client":"c"}`},
		"ListKeys": {"admin:q", `{"queue":"q"}`}, "PauseKey": {"admin:q", `{"queue":"q","key":"k"}`},
		"ResumeKey": {"admin:q", `{"queue":"q","key":"k"}`}, "PurgeKey": {"admin:q", `{"queue":"q","key":"k"}`},
		"StartTask": {"admin:q", `{"queue":"q","state":"DEAD","act":"COUNT"}`},
		"GetTask":   {"admin:q", `{"id":"none"}`}, "ListTasks": {"admin:q", `{}`}, "StopTask": {"admin:q", `{"id":"none"}`},
		"DeleteToken": {"admin:*", `{"id":"aaaaaaaaaaaaaaaa"}`},
		"PutSchedule": {"admin:q", `{"queue":"q","name":"s","spec":{"every":"1h"}}`},
		"GetSchedule": {"consume:q", `{"queue":"q","name":"s"}`}, "ListSchedules": {"view:q", `{"queue":"q"}`},
		"DeleteSchedule":  {"admin:q", `{"queue":"q","name":"s"}`},
		"PauseSchedules":  {"admin:q", `{"queue":"q","all":true}`},
		"ResumeSchedules": {"admin:q", `{"queue":"q","all":true}`},
		"TriggerSchedule": {"put:q", `{"queue":"q","name":"s"}`},
		"BackfillSchedule": {"put:q",
			`{"queue":"q","name":"s","from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z"}`},
		"PreviewSchedule": {"view:r", `{"spec":{"every":"1h"}}`},
	}
}

// TestEveryMethodTakesAScope: each method of the contract does nothing without a token, nor with
// one that allows everything but what it takes, and does its work with the least that it takes.
func TestEveryMethodTakesAScope(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	lease := wire.FormatLease(fsm.Ref{Queue: "q", Serial: 1, Fence: 1})
	least := leastScopes(lease)
	for _, m := range methodsOfContract() {
		name := m.procedure[strings.LastIndexByte(m.procedure, '/')+1:]
		case_, ok := least[name]
		if !ok {
			t.Errorf("of %s it is not said what it takes", m.procedure)
			continue
		}
		if m.streams {
			continue // TestStreamsTakeAScope
		}
		if got := s.send(http.MethodPost, m.short, case_[1], "Content-Type",
			"application/json"); got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s without a token: %d %s", name, got.status, got.body)
		}
		others := []string{"put,consume,view,admin:r*"}
		for _, action := range tokens.Actions() {
			if scope, err := tokens.ParseScope(case_[0]); err != nil || !slices.Contains(scope.Actions, action) &&
				action != tokens.Admin && scope.Actions[0] != tokens.View {
				others = append(others, string(action)+":q*")
			}
		}
		if strings.HasSuffix(case_[0], ":*") {
			others = append(others, "put,consume,view,admin:q*", "put,consume:*")
		}
		// Everybody may ask for these, and sees what is his.
		if case_[0] != "view:r" && !slices.Contains([]string{"GetTask", "ListTasks", "StopTask"}, name) {
			poor, _ := tokenStore.make(t, others...)
			got := s.with(poor, http.MethodPost, m.short, case_[1])
			if isBatch := strings.HasSuffix(name, "Batch"); got.status != http.StatusForbidden && !isBatch || isBatch &&
				!strings.Contains(got.body, "FORBIDDEN") {
				t.Errorf("%s with %v: %d %s", name, others, got.status, got.body)
			}
		}
		rich, _ := tokenStore.make(t, case_[0])
		if got := s.with(rich, http.MethodPost, m.short, case_[1]); got.status == http.StatusForbidden ||
			got.status == http.StatusUnauthorized || strings.Contains(got.body, "FORBIDDEN") {
			t.Errorf("%s with %s: %d %s", name, case_[0], got.status, got.body)
		}
	}
}

// TestStreamsTakeAScope: so do the methods that are streams.
func TestStreamsTakeAScope(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	poor, _ := tokenStore.make(t, "put:*", "consume:r", "admin:q")
	h := h2c(t)
	for token, want := range map[string]connect.Code{"": connect.CodeUnauthenticated, poor: connect.CodePermissionDenied} {
		work := connect.NewClient[belfryv1.WorkRequest, belfryv1.WorkResponse](h,
			s.url+belfryv1connect.QueueServiceWorkProcedure).CallBidiStream(t.Context())
		restore := connect.NewClient[belfryv1.RestoreRequest, belfryv1.RestoreResponse](h,
			s.url+belfryv1connect.AdminServiceRestoreProcedure).CallClientStream(t.Context())
		if token != "" {
			work.RequestHeader().Set("Authorization", "Bearer "+token)
			restore.RequestHeader().Set("Authorization", "Bearer "+token)
		}
		// the answer tells
		_ = work.Send(&belfryv1.WorkRequest{Credits: &belfryv1.Credits{Queues: []string{"s"}, Credits: 1}})
		if _, err := work.Receive(); connect.CodeOf(err) != want {
			t.Errorf("Work with %q: %v", token, err)
		}
		_ = work.CloseRequest()
		_ = restore.Send(&belfryv1.RestoreRequest{Data: []byte("x")})
		if _, err := restore.CloseAndReceive(); connect.CodeOf(err) != want {
			t.Errorf("Restore with %q: %v", token, err)
		}
		request := connect.NewRequest(&belfryv1.BackupRequest{})
		if token != "" {
			request.Header().Set("Authorization", "Bearer "+token)
		}
		client := connect.NewClient[belfryv1.BackupRequest, belfryv1.BackupResponse](h,
			s.url+belfryv1connect.AdminServiceBackupProcedure)
		backup, err := client.CallServerStream(t.Context(), request)
		if err == nil {
			backup.Receive()
			err = backup.Err()
		}
		if connect.CodeOf(err) != want {
			t.Errorf("Backup with %q: %v", token, err)
		}
	}
}

// TestOperatorsPagesTakeAScope: every caller may read health. The rest needs a token that may see
// the cluster.
func TestOperatorsPagesTakeAScope(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	viewer, _ := tokenStore.make(t, "view:*")
	poor, _ := tokenStore.make(t, "put,consume:*", "view,admin:q*")
	for path, want := range map[string][3]int{ // nobody, poor, viewer
		"/livez": {200, 200, 200}, "/readyz": {200, 200, 200}, "/metrics": {401, 403, 200}, "/nothing": {401, 501, 501},
		"/q/r":                         {401, 204, 403},
		"/grpc.health.v1.Health/Check": {200, 200, 200},
	} {
		method, body := http.MethodGet, ""
		if strings.HasPrefix(path, "/grpc") {
			method, body = http.MethodPost, "{}"
		}
		nobody := s.send(method, path, body, "Content-Type", "application/json")
		got := [3]int{nobody.status, s.with(poor, method, path, body).status, s.with(viewer, method, path, body).status}
		if got != want {
			t.Errorf("%s answers %v, want %v: %s", path, got, want, nobody.body)
		}
	}
}

// TestWhatIsNoToken: whatever is wrong with a token, the call is refused before its body is read,
// and of tokens that never were and those that have ended the same is said.
func TestWhatIsNoToken(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	good, id := tokenStore.make(t, "put:q")
	other, _, _ := tokens.New()
	ended, endedID := tokenStore.make(t, "put:q")
	if _, err := tokenStore.EndToken(t.Context(), endedID, time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	forged := good[:len(good)-43] + other[len(other)-43:]
	var same []string
	for name, headers := range map[string][]string{
		"none": {}, "empty": {"Authorization", ""}, "no scheme": {"Authorization", good},
		"basic":   {"Authorization", "Basic " + good},
		"two":     {"Authorization", "Bearer " + good, "Authorization", "Bearer " + good},
		"garbage": {"Authorization", "Bearer x"}, "long": {"Authorization", "Bearer " + strings.Repeat("x", 5000)},
		"its id": {"Authorization", "Bearer " + id}, "cut": {"Authorization", "Bearer " + good[:len(good)-1]},
		"unknown": {"Authorization", "Bearer " + other}, "ended": {"Authorization", "Bearer " + ended},
		"forged": {"Authorization", "Bearer " + forged},
	} {
		got := s.send(http.MethodPost, "/v1/put", `{"queue":"q"`, append(headers, "Content-Type", "application/json")...)
		if got.status != http.StatusUnauthorized || !strings.Contains(got.body, "UNAUTHENTICATED") {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if name == "unknown" || name == "ended" || name == "forged" {
			same = append(same, got.body)
		}
	}
	if len(slices.Compact(same)) != 1 {
		t.Errorf("tokens that never were, have ended or are forged are told apart: %q", same)
	}
	if got := s.with(good, http.MethodPost, "/v1/put", `{"queue":"q"}`); got.status != http.StatusOK {
		t.Errorf("the token itself: %d %s", got.status, got.body)
	}
	viewer, _ := tokenStore.make(t, "view:*")
	if metrics := s.with(viewer, http.MethodGet, "/metrics", "").body; !strings.Contains(metrics,
		`belfry_refused_calls_total{reason="unauthenticated"} 12`) {
		t.Error("the refusals are not counted")
	}
	if log := s.log.String(); strings.Count(log, "calls were refused") != 1 ||
		strings.Contains(log, good[len(good)-43:]) || strings.Contains(log, ended[len(ended)-43:]) {
		t.Errorf("the log says it more than once, or what a token is:\n%s", log)
	}
}

// TestListsShowWhatIsOnesOwn: a list has the queues that its caller may see, all of them, in pages
// of the size that was asked for, and nothing of others.
func TestListsShowWhatIsOnesOwn(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	root, _ := tokenStore.make(t, "admin:*")
	var want []string
	for i := range 30 {
		for _, name := range []string{fmt.Sprintf("a/%02d", i), fmt.Sprintf("b/%02d", i), fmt.Sprintf("c%02d", i)} {
			if got := s.with(root, http.MethodPost, "/v1/put", fmt.Sprintf(`{"queue":%q}`, name)); got.status != http.StatusOK {
				t.Fatal(got.body)
			}
			if strings.HasPrefix(name, "b/") || name == "c07" || strings.HasPrefix(name, "c1") {
				want = append(want, name)
			}
		}
	}
	slices.Sort(want)
	token, _ := tokenStore.make(t, "put:c07", "consume:b/*", "view:b/1*", "put:c1*", "put:c", "consume:c07", "put:zz*")
	list := func(token, prefix string, size int) (names []string) {
		page := ""
		for {
			got := s.with(token, http.MethodPost, "/v1/list-queues",
				fmt.Sprintf(`{"prefix":%q,"pageSize":%d,"pageToken":%q}`, prefix, size, page))
			var answer struct {
				Queues        []struct{ Name string }
				NextPageToken string
				Due           struct{ Overdue int }
			}
			if err := json.Unmarshal([]byte(got.body), &answer); err != nil || got.status != http.StatusOK {
				t.Fatal(got.status, got.body, err)
			}
			for _, q := range answer.Queues {
				names = append(names, q.Name)
			}
			if answer.Due.Overdue != len(answer.Queues) { // one job each
				t.Fatalf("%d queues have %d jobs that are overdue", len(answer.Queues), answer.Due.Overdue)
			}
			if answer.NextPageToken == "" {
				return names
			}
			if len(answer.Queues) != size {
				t.Fatalf("a page of %d has %d queues, and is not the last", size, len(answer.Queues))
			}
			page = answer.NextPageToken
		}
	}
	for _, size := range []int{1, 3, 7, 100} {
		if got := list(token, "", size); !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v, want %v", size, got, want)
		}
	}
	if got := list(token, "c0", 100); !slices.Equal(got, []string{"c07"}) {
		t.Errorf("of c0: %v", got)
	}
	if got := list(token, "a", 100); got != nil {
		t.Errorf("of a: %v", got)
	}
	if got := list(root, "", 1000); len(got) != 90 {
		t.Errorf("who may see all sees %d", len(got))
	}
}

// TestTokenEndsSessions: a session carries calls as long as its token is good, and not for longer.
func TestTokenEndsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokenStore := newTokenMemory()
		text, id := tokenStore.make(t, "put:q")
		k := newTalkWith(t, tokenStore, text)
		put := &belfryv1.PutBatchRequest{Jobs: []*belfryv1.PutRequest{{Queue: "q"}, {Queue: "r"}}}
		answer := &belfryv1.PutBatchResponse{}
		k.call(1, stream.PutBatch, put)
		k.answer(1, answer)
		if answer.Results[0].GetPut() == nil || answer.Results[1].GetError().GetReason() != belfryv1.Reason_REASON_FORBIDDEN {
			t.Errorf("%v", answer)
		}
		k.call(2, stream.Reserve, &belfryv1.ReserveRequest{Queues: []string{"q"}})
		if f := k.failure(2); connect.Code(f.GetCode()) != connect.CodePermissionDenied {
			t.Errorf("a Reserve: %v", f)
		}
		if _, err := tokenStore.EndToken(t.Context(), id, time.Time{}); err != nil {
			t.Fatal(err)
		}
		k.call(3, stream.PutBatch, put)
		if f := k.failure(3); connect.Code(f.GetCode()) != connect.CodeUnauthenticated {
			t.Errorf("after its end: %v", f)
		}
		k.write(rawFrame(stream.Header{Kind: stream.Ping}, nil))
		<-k.ended // an idle client sends a Ping
	})
}

// TestAudit: each call that administers is in the log, with who made it and what came of it, and no
// token or body is.
func TestAudit(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	root, rootID := tokenStore.make(t, "admin:*")
	poor, poorID := tokenStore.make(t, "put:*")
	made := s.with(root, http.MethodPost, "/v1/create-token", `{"scopes":["put:a*"],"about":"shop","ttl":"60s"}`)
	var answer struct{ Token, Record any }
	if err := json.Unmarshal([]byte(made.body), &answer); err != nil || made.status != http.StatusOK {
		t.Fatal(made.status, made.body, err)
	}
	s.with(poor, http.MethodPost, "/v1/delete-queue", `{"queue":"a"}`)
	s.with(poor, http.MethodPost, "/v1/put", `{"queue":"a","text":"the body"}`)
	s.with(root, http.MethodPost, "/v1/delete-token", `{"id":"`+poor+`"}`) // it takes the id
	log := s.log.String()
	for _, want := range []string{
		"msg=audit token=" + rootID, "procedure=/belfry.v1.AdminService/CreateToken", `\"put:a*\"`, "outcome=ok",
		"msg=audit token=" + poorID, "procedure=/belfry.v1.AdminService/DeleteQueue", "permission_denied",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	secret, _ := answer.Token.(string)
	for _, not := range []string{"the body", secret, root, poor} {
		if not == "" || strings.Contains(log, not) {
			t.Errorf("the log has %q", not)
		}
	}
	if got := s.with(secret, http.MethodPost, "/v1/put", `{"queue":"ab"}`); got.status != http.StatusOK {
		t.Errorf("the token that was made: %d %s", got.status, got.body)
	}
}

// TestTokensThatCannotBeTold: as long as a server does not know which tokens there are, it is a
// server to come back to, and not one that refuses.
func TestTokensThatCannotBeTold(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	good, _ := tokenStore.make(t, "put:q")
	tokenStore.mu.Lock()
	tokenStore.unknown = fmt.Errorf("just started: %w", node.ErrNoLeader)
	tokenStore.mu.Unlock()
	got := s.with(good, http.MethodPost, "/v1/put", `{"queue":"q"}`)
	if got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "NO_LEADER") ||
		!strings.Contains(got.body, "RetryInfo") || !strings.Contains(got.body, "NOT_APPLIED") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := s.send(http.MethodPost, "/v1/put", `{"queue":"q"}`); got.status != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s", got.status, got.body)
	}
}

// TestNoTokensWhereNoneAreNeeded: where every caller may do everything, no token can be made that
// would be good later.
func TestNoTokensWhereNoneAreNeeded(t *testing.T) {
	tokenStore := newTokenMemory()
	s := serve(t, func(cfg *Config) { cfg.Catalog = tokenStore })
	if got := s.post("/v1/create-token", `{"scopes":["admin:*"]}`); got.status != http.StatusForbidden ||
		len(tokenStore.Tokens()) != 0 {
		t.Errorf("%d %s, %d tokens", got.status, got.body, len(tokenStore.Tokens()))
	}
}

// TestHealthTakesLittle: what is open to all reads no more than health needs.
func TestHealthTakesLittle(t *testing.T) {
	s, _ := serveWithTokens(t)
	large := `{"service":"` + strings.Repeat("x", 1<<20) + `"}`
	if got := s.send(http.MethodPost, "/grpc.health.v1.Health/Check", large, "Content-Type",
		"application/json"); got.status < 400 {
		t.Errorf("a megabyte: %d %s", got.status, got.body)
	}
	if held := s.server.handler.bodyBytesInFlight.Load(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// TestAMissingCallerHasNoPermissions: where calls need a token, a call that bypassed authentication
// may do nothing.
func TestAMissingCallerHasNoPermissions(t *testing.T) {
	rules := &check.Rules{
		Now: time.Now, Authorizer: &auth.Authorizer{Authenticator: newTokenMemory(), Now: time.Now},
	}
	c := rules.Request(t.Context(), tokens.Put)
	if c.Err == nil || c.Err.Reason != belfryv1.Reason_REASON_UNAUTHENTICATED || c.Permissions.Allows("q") ||
		c.Another().Permissions.Allows("q") {
		t.Errorf("%v, %+v", c.Err, c.Permissions)
	}
}
