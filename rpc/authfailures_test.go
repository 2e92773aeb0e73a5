package rpc

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
	"github.com/belfrydb/belfry/stream"
)

// refusalLinesMax is how many lines about refused calls the audit log has at once.
const refusalLinesMax = 20

// TestRefusalsAreAudited: the audit log has a line for a call without a token, or with one that
// allows something else. It never has a token.
func TestRefusalsAreAudited(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	put, id := tokenStore.make(t, "put:a")
	ended, endedID := tokenStore.make(t, "admin:*")
	if _, err := tokenStore.EndToken(t.Context(), endedID, time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ token, path, body, want string }{
		{"", "/v1/put", `{"queue":"a"}`,
			`msg=audit token=nobody address=127.0.0.1:PORT procedure=/v1/put ` +
				`outcome="unauthenticated: what the call carries is no token`},
		{ended, "/v1/put", `{"queue":"a"}`,
			`msg=audit token=` + endedID +
				` address=127.0.0.1:PORT procedure=/v1/put outcome="unauthenticated: the call's token is not known here`},
		{put, "/v1/put", `{"queue":"b"}`,
			`msg=audit token=` + id +
				` address=127.0.0.1:PORT procedure=/belfry.v1.QueueService/Put outcome="permission_denied: `},
		{put, "/v1/reserve", `{"queues":["a"]}`,
			`msg=audit token=` + id +
				` address=127.0.0.1:PORT procedure=/belfry.v1.QueueService/Reserve outcome="permission_denied: `},
		{"", "/q/" + put, "x",
			`msg=audit token=nobody address=127.0.0.1:PORT procedure=/q/belfry_` + id + `_*** outcome="unauthenticated: `},
		{put, "/v1/list-queues", `{}`, ""},
		{put, "/v1/put", `{"queue":"a"}`, ""},
	} {
		before := len(s.log.String())
		s.with(tt.token, http.MethodPost, tt.path, tt.body)
		lines := s.log.String()[before:]
		head, tail, _ := strings.Cut(tt.want, "PORT")
		if tt.want == "" && strings.Contains(lines, "msg=audit") || !strings.Contains(lines, head) ||
			!strings.Contains(lines, tail) || strings.Count(lines, "msg=audit") > 1 {
			t.Errorf("%s %s: the log has\n%swant %s", tt.path, tt.body, lines, tt.want)
		}
	}
	for _, token := range []string{put, ended} {
		if strings.Contains(s.log.String(), token[len(token)-43:]) {
			t.Error("a token is in the log")
		}
	}
}

// TestRefusalsInSessionsAreAudited: the audit log has the address of the connection for a call in a
// session.
func TestRefusalsInSessionsAreAudited(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	put, id := tokenStore.make(t, "put:a")
	request, err := proto.Marshal(&belfryv1.ReserveRequest{Queues: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	conn := s.raw("GET " + stream.SessionPath + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: " +
		stream.SessionProtocol + "\r\nAuthorization: Bearer " + put + "\r\n\r\n")
	in := bufio.NewReader(conn)
	if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", res, err)
	}
	if _, err := conn.Write(rawFrame(stream.Header{
		Kind: stream.Call, Method: stream.Reserve, ID: 1, Size: uint32(len(request)),
	}, request)); err != nil {
		t.Fatal(err)
	}
	if h, err := stream.ReadHeader(in); err != nil || h.Kind != stream.Failure {
		t.Fatalf("%+v, %v; want a refusal", h, err)
	}
	want := "msg=audit token=" + id + " address=" + conn.LocalAddr().String() +
		" procedure=/belfry.v1.QueueService/Reserve outcome=\"permission_denied: "
	if log := s.log.String(); !strings.Contains(log, want) {
		t.Errorf("the log has\n%swant %s", log, want)
	}
}

// TestRefusalsInTheLogAreMasked: a token that was sent in the place of a queue is masked in the log
// line about the last refused call.
func TestRefusalsInTheLogAreMasked(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	put, id := tokenStore.make(t, "put:a")
	s.with(put, http.MethodPost, "/v1/put", `{"queue":"`+put+`"}`)
	if log := s.log.String(); !strings.Contains(log, "calls were refused") ||
		!strings.Contains(log, "put:belfry_"+id+"_***") || strings.Contains(log, put) {
		t.Errorf("the log has\n%s", log)
	}
}

// TestUnauthenticatedCallsHideNoOthers: however many calls come without a token, the audit log
// still has the refused calls with one.
func TestUnauthenticatedCallsHideNoOthers(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	put, id := tokenStore.make(t, "put:a")
	for range 3 * refusalLinesMax {
		s.send(http.MethodPost, "/v1/put", `{"queue":"a"}`)
	}
	s.with(put, http.MethodPost, "/v1/delete-queue", `{"queue":"a"}`)
	if log := s.log.String(); !strings.Contains(log, "msg=audit token="+id+" ") {
		t.Errorf("the log has\n%s", log)
	}
}

// TestRefusedAdminCallsFillNoLog: a token with the smallest scope gets no more lines in the audit
// log with calls of AdminService than with others.
func TestRefusedAdminCallsFillNoLog(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	put, _ := tokenStore.make(t, "put:a")
	root, _ := tokenStore.make(t, "admin:*")
	body := `{"name":"` + strings.Repeat("n", 3000) + `"}`
	before := len(s.log.String())
	for range 20 * refusalLinesMax {
		s.with(put, http.MethodPost, "/v1/set-namespace", body)
	}
	for range 20 * refusalLinesMax { // calls with invalid arguments need no scope
		s.with(put, http.MethodPost, "/v1/drain-node", `{"name":"`+strings.Repeat("n", 3000)+`"}`)
	}
	if lines := strings.Count(s.log.String()[before:], "msg=audit"); lines < refusalLinesMax || lines > 4*refusalLinesMax {
		t.Errorf("%d lines for %d refused calls", lines, 40*refusalLinesMax)
	}
	before = len(s.log.String())
	for range 2 * refusalLinesMax { // what an administrator does has a line each
		if got := s.with(root, http.MethodPost, "/v1/delete-token",
			`{"id":"aaaaaaaaaaaaaaaa"}`); got.status != http.StatusOK {
			t.Fatal(got.status, got.body)
		}
	}
	if lines := strings.Count(s.log.String()[before:], "msg=audit"); lines != 2*refusalLinesMax {
		t.Errorf("%d lines for %d calls of an administrator", lines, 2*refusalLinesMax)
	}
}

// TestLogTellsOfTheCall: lines about a call have its request id and the address of its client.
func TestLogTellsOfTheCall(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	put, _ := tokenStore.make(t, "put:a")
	root, _ := tokenStore.make(t, "admin:*")
	for _, tt := range []struct{ token, path, body, want string }{
		{put, "/v1/drain-node", `{"name":"n1"}`, "msg=audit token="},
		{put, "/q/b", "x", "msg=audit token="},
		{"", "/v1/put", "x", "msg=audit token=nobody"},
		{root, "/v1/delete-token", `{"id":"aaaaaaaaaaaaaaaa"}`, "msg=audit token="},
	} {
		before := len(s.log.String())
		s.send(http.MethodPost, tt.path, tt.body, "Content-Type", "application/json", "Authorization", "Bearer "+tt.token,
			"X-Request-Id", "case-77")
		lines := s.log.String()[before:]
		if !strings.Contains(lines, tt.want) || !strings.Contains(lines, "request_id=case-77") {
			t.Errorf("%s: the log has\n%s", tt.path, lines)
		}
	}
	if log := s.log.String(); strings.Contains(log, `address=""`) {
		t.Errorf("a line without an address:\n%s", log)
	}
}

// TestRefusedEntriesAreAudited: a call of which some entries are refused has one line, in every
// protocol. It has the number of those entries and the queue of the first.
func TestRefusedEntriesAreAudited(t *testing.T) {
	s, tokenStore := serveWithTokens(t)
	token, id := tokenStore.make(t, "put,consume:a")
	all, _ := tokenStore.make(t, "put:*")
	lease := func(queue string) string { return wire.FormatLease(fsm.Ref{Queue: queue, Serial: 1, Fence: 1}) }
	puts, acks := &belfryv1.PutBatchRequest{}, &belfryv1.AckBatchRequest{}
	work := &belfryv1.WorkRequest{Credits: &belfryv1.Credits{Queues: []string{"a"}}}
	for _, queue := range []string{"a", "b/x", "c", "a"} {
		puts.Jobs = append(puts.Jobs, &belfryv1.PutRequest{Queue: queue})
		acks.Leases = append(acks.Leases, lease(queue))
		work.Acks = append(work.Acks, &belfryv1.AckRequest{Lease: lease(queue)})
	}
	const service = "/belfry.v1.QueueService/"
	json := func(path string, m proto.Message) func() {
		text, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return func() { s.with(token, http.MethodPost, path, string(text)) }
	}
	binary := func(procedure string, m proto.Message) func() {
		return func() {
			s.send(http.MethodPost, service+procedure, string(encode(t, m)), "Content-Type", "application/proto",
				"Authorization", "Bearer "+token)
		}
	}
	stream := func() {
		c := connect.NewClient[belfryv1.WorkRequest, belfryv1.WorkResponse](h2c(t),
			s.url+service+"Work").CallBidiStream(t.Context())
		c.RequestHeader().Set("Authorization", "Bearer "+token)
		if err := c.Send(work); err != nil {
			t.Error(err)
		}
		if answer, err := c.Receive(); err != nil || len(answer.GetResults()) != len(work.Acks) {
			t.Error(answer, err)
		}
		_ = c.CloseRequest()
	}
	for _, tt := range []struct {
		name, procedure string
		call            func()
	}{
		{"JSON", "PutBatch", json("/v1/put-batch", puts)}, {"JSON", "AckBatch", json("/v1/ack-batch", acks)},
		{"binary", "PutBatch", binary("PutBatch", puts)}, {"binary", "AckBatch", binary("AckBatch", acks)},
		{"stream", "Work", stream},
	} {
		before := len(s.log.String())
		tt.call()
		lines := s.log.String()[before:]
		head, middle, tail := "msg=audit token="+id+" address=127.0.0.1:",
			" procedure="+service+tt.procedure+` outcome="permission_denied: the token does not allow it" request_id=`,
			" entries=2 queue=b/x unsaid=0"
		if !strings.Contains(lines, head) || !strings.Contains(lines, middle) || !strings.Contains(lines, tail) ||
			strings.Count(lines, "msg=audit") != 1 {
			t.Errorf("%s in %s: the log has\n%swant %s…%s…%s", tt.procedure, tt.name, lines, head, middle, tail)
		}
	}
	before := len(s.log.String())
	s.with(all, http.MethodPost, "/v1/put-batch", `{"jobs":[{"queue":"a"},{"queue":"b/x"}]}`)
	if lines := s.log.String()[before:]; strings.Contains(lines, "msg=audit") {
		t.Errorf("of a call that may be made the log has\n%s", lines)
	}
}
