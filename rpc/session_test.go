package rpc

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/rpc/auth"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/stream"
)

// A talk is a session from the client's side, over a connection in memory, for bubbles of synctest.
type talk struct {
	t        testing.TB
	server   *Server
	node     *backendtest.Node
	registry *prometheus.Registry
	log      *safeBuffer
	ctx      context.Context // of the upgrade
	conn     net.Conn
	in       *bufio.Reader
	ended    chan struct{} // closed when the session has ended
}

// newTalk starts a server and a session with it.
func newTalk(t testing.TB) *talk { return newTalkWith(t, nil, "") }

// newTalkWith is newTalk where calls need a token, and have one.
func newTalkWith(t testing.TB, auth auth.Authenticator, token string) *talk {
	k := &talk{
		t: t, node: backendtest.NewNode(3), registry: prometheus.NewRegistry(), log: &safeBuffer{},
		ctx: context.WithoutCancel(t.Context()),
	}
	var err error
	k.server, err = newTestServer(Config{
		Node: k.node, Catalog: backendtest.NewCatalog(), Logger: slog.New(slog.NewTextHandler(k.log, nil)),
		Registry: k.registry,
		Name:     "n1", Authenticator: auth,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.server.Drain) // ends the goroutine that watches the catalog
	if token != "" {
		known, f := k.server.handler.authorizer.Authenticate(
			&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}})
		if f != nil {
			t.Fatal(f)
		}
		k.ctx = known.Context()
	}
	k.begin()
	return k
}

// begin starts a session. It ends at the latest with the test.
func (k *talk) begin() {
	k.t.Helper()
	ours, theirs := net.Pipe()
	k.conn, k.in, k.ended = ours, bufio.NewReader(ours), make(chan struct{})
	ended := k.ended
	w := &takenOver{memoryResponse: memoryResponse{header: http.Header{"Belfry-Served-By": {"n1"}}}, conn: theirs}
	r := (&http.Request{}).WithContext(k.ctx)
	go func() {
		defer close(ended)
		if err := k.server.handler.sessions.Serve(w, r, &sessionHost{handler: k.server.handler}); err != nil {
			k.t.Error(err)
		}
	}()
	k.t.Cleanup(func() {
		ours.Close()
		<-ended
	})
	res, err := http.ReadResponse(k.in, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols ||
		res.Header.Get("Upgrade") != stream.SessionProtocol || res.Header.Get("Belfry-Served-By") != "n1" {
		k.t.Fatalf("%v, %v", res, err)
	}
}

// takenOver is a response over a connection that is taken over.
type takenOver struct {
	memoryResponse
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (w *takenOver) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

// rawFrame encodes a frame; the payload need not be as large as the header says.
func rawFrame(h stream.Header, payload []byte) []byte {
	b := []byte{byte(h.Kind), byte(h.Method), 0, 0}
	b = binary.BigEndian.AppendUint32(b, h.ID)
	b = binary.BigEndian.AppendUint32(b, h.Size)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Number))
	return append(b, payload...)
}

// write sends bytes; the session may end before it has read them.
func (k *talk) write(data []byte) {
	_, _ = k.conn.Write(data)
}

// call sends a call.
func (k *talk) call(id uint32, method stream.Method, message proto.Message) {
	k.t.Helper()
	payload, err := proto.Marshal(message)
	if err != nil {
		k.t.Fatal(err)
	}
	k.write(rawFrame(stream.Header{Kind: stream.Call, Method: method, ID: id, Size: uint32(len(payload))}, payload))
}

// next reads a frame.
func (k *talk) next() (stream.Header, []byte) {
	k.t.Helper()
	h, err := stream.ReadHeader(k.in)
	if err != nil {
		k.t.Fatalf("reading a frame: %v", err)
	}
	payload := make([]byte, h.Size)
	if _, err := io.ReadFull(k.in, payload); err != nil {
		k.t.Fatal(err)
	}
	return h, payload
}

// answer reads the answer to a call.
func (k *talk) answer(id uint32, into proto.Message) stream.Header {
	k.t.Helper()
	h, payload := k.next()
	if h.Kind != stream.Answer || h.ID != id {
		k.t.Fatalf("%+v %q, want the answer to %d", h, payload, id)
	}
	if err := proto.Unmarshal(payload, into); err != nil {
		k.t.Fatal(err)
	}
	return h
}

// failure reads the failure of a call.
func (k *talk) failure(id uint32) *status.Status {
	k.t.Helper()
	h, payload := k.next()
	if h.Kind != stream.Failure || h.ID != id {
		k.t.Fatalf("%+v %q, want the failure of %d", h, payload, id)
	}
	said := &status.Status{}
	if err := proto.Unmarshal(payload, said); err != nil {
		k.t.Fatal(err)
	}
	return said
}

// reason reads the failure of a call and gives what its details say.
func (k *talk) reason(id uint32) *fault.Error {
	k.t.Helper()
	said := k.failure(id)
	f, ok := fault.FromConnect(errorOfStatus(k.t, said))
	if !ok {
		k.t.Fatalf("%v carries no reason", said)
	}
	return f
}

// over checks that the session has ended without another word.
func (k *talk) over() {
	k.t.Helper()
	if h, err := stream.ReadHeader(k.in); !errors.Is(err, io.EOF) {
		k.t.Errorf("%+v, %v; want the end of the session", h, err)
	}
	<-k.ended
	if held := k.server.handler.bodyBytesInFlight.Load(); held != 0 {
		k.t.Errorf("%d bytes are still counted", held)
	}
}

func pollOf(queue string, wait time.Duration) *belfryv1.ReserveRequest {
	return &belfryv1.ReserveRequest{Queues: []string{queue}, Wait: durationpb.New(wait)}
}

func putIn(queue string) *belfryv1.PutBatchRequest {
	return &belfryv1.PutBatchRequest{Jobs: []*belfryv1.PutRequest{{
		Queue: queue, Body: &belfryv1.PutRequest_Data{Data: []byte("x")},
	}}}
}

// TestUpgrade: only a client that asks for a session of this version over HTTP/1.1 gets one.
func TestUpgrade(t *testing.T) {
	s := serve(t)
	for name, headers := range map[string][]string{
		"plain":          nil,
		"other protocol": {"Connection", "Upgrade", "Upgrade", "websocket"},
		"other version":  {"Connection", "Upgrade", "Upgrade", "belfry-session/2"},
	} {
		got := s.send(http.MethodGet, stream.SessionPath, "", headers...)
		if got.status != http.StatusUpgradeRequired || got.header.Get("Upgrade") != stream.SessionProtocol ||
			!strings.Contains(got.body, "SDK") {
			t.Errorf("%s: %d %v %s", name, got.status, got.header, got.body)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+stream.SessionPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.do(h2c(t), req); got.status != http.StatusUpgradeRequired || got.header.Get("Upgrade") != "" {
		t.Errorf("over HTTP/2: %d %v", got.status, got.header)
	}
	const ask = "GET " + stream.SessionPath + " HTTP/1.1\r\nHost: x\r\nUpgrade: " + stream.SessionProtocol + "\r\n"
	for text, want := range map[string]int{
		ask + "Connection: keep-alive, upgrade\r\n\r\n": http.StatusSwitchingProtocols,
		ask + "\r\n": http.StatusUpgradeRequired,
		ask + "Connection: Upgrade\r\nSec-Fetch-Site: cross-site\r\nOrigin: http://evil\r\n\r\n": http.StatusForbidden,
	} {
		conn := s.raw(text + string(rawFrame(stream.Header{Kind: stream.Ping}, nil))) // what follows at once is not lost
		in := bufio.NewReader(conn)
		res, err := http.ReadResponse(in, nil)
		if err != nil || res.StatusCode != want {
			t.Fatalf("%q: %v, %v", text, res, err)
		}
		if want != http.StatusSwitchingProtocols {
			continue
		}
		if h, err := stream.ReadHeader(in); h.Kind != stream.Pong || err != nil {
			t.Errorf("%+v, %v", h, err)
		}
	}
	s.server.Drain()
	got := s.send(http.MethodGet, stream.SessionPath, "", "Connection", "Upgrade", "Upgrade", stream.SessionProtocol)
	if got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, `"reason":"SHUTTING_DOWN"`) {
		t.Errorf("while the server stops: %d %s", got.status, got.body)
	}
	waits := &memoryResponse{header: http.Header{}}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", stream.SessionProtocol)
	NewWaitingHandler("n1", slog.New(slog.DiscardHandler), func() string { return "alone" }).ServeHTTP(waits, req)
	if waits.status != http.StatusServiceUnavailable || !strings.Contains(waits.body.String(), `"reason":"NO_LEADER"`) {
		t.Errorf("before there is a cluster: %d %s", waits.status, waits.body.String())
	}
}

// TestMethodsOfSessions: each does what it does by Connect, is measured alike, and says what time
// it is.
func TestMethodsOfSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		var batch belfryv1.PutBatchResponse
		k.call(7, stream.PutBatch, putIn("q"))
		if h := k.answer(7, &batch); !batch.GetResults()[0].GetPut().GetCreated() || h.Number != time.Now().UnixMilli() {
			t.Errorf("%+v %v", h, &batch)
		}
		var granted belfryv1.ReserveResponse
		k.call(7, stream.Reserve, pollOf("q", 0))
		k.answer(7, &granted)
		if len(granted.GetJobs()) != 1 || string(granted.GetJobs()[0].GetData()) != "x" {
			t.Fatalf("%v", &granted)
		}
		var acks belfryv1.AckBatchResponse
		k.call(0, stream.AckBatch, &belfryv1.AckBatchRequest{Leases: []string{granted.GetJobs()[0].GetLease()}})
		if k.answer(0, &acks); acks.GetResults()[0].GetAck() == nil {
			t.Errorf("%v", &acks)
		}
		k.write(rawFrame(stream.Header{Kind: stream.Ping}, nil))
		if h, _ := k.next(); h != (stream.Header{Kind: stream.Pong}) {
			t.Errorf("%+v", h)
		}
		synctest.Wait()
		for _, procedure := range []string{"PutBatch", "Reserve", "AckBatch"} {
			if n := k.measured(procedure, "ok"); n != 1 {
				t.Errorf("%d calls of %s were measured", n, procedure)
			}
		}
		if held := k.server.handler.bodyBytesInFlight.Load(); held != 0 {
			t.Errorf("%d bytes are still counted", held)
		}
	})
}

// measured gives how many calls of a procedure ended with a code.
func (k *talk) measured(procedure, code string) (n uint64) {
	k.t.Helper()
	families, err := k.registry.Gather()
	if err != nil {
		k.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if family.GetName() == "belfry_rpc_duration_seconds" && strings.HasSuffix(labels["procedure"], "/"+procedure) &&
				labels["code"] == code {
				n += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return n
}

// TestNumbersOfCalls: one that is under way is refused, one that was answered is free; the order of
// answers is that in which they are ready.
func TestNumbersOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t)
		k.call(1, stream.Reserve, pollOf("q", time.Minute))
		synctest.Wait()
		k.call(1, stream.PutBatch, putIn("other"))
		if f := k.reason(1); f.Reason != belfryv1.Reason_REASON_INVALID || f.Field != "call" {
			t.Errorf("%+v", f)
		}
		k.call(2, stream.PutBatch, putIn("q"))
		k.call(3, stream.PutBatch, putIn("other"))
		came := map[uint32]bool{}
		for range 3 {
			h, _ := k.next()
			came[h.ID] = h.Kind == stream.Answer
		}
		if !came[1] || !came[2] || !came[3] {
			t.Errorf("%v", came)
		}
	})
}
