package rpc

import (
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/inbound"
	"github.com/belfrydb/belfry/rpc/wire"
)

// rawStream opens a Work stream whose bytes are the test's; the answer is read to its end by the
// returned function.
func (s *served) rawStream() (send func([]byte), answer func() string) {
	s.t.Helper()
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/belfry.v1.QueueService/Work", r)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/connect+proto")
	answers := make(chan string, 1)
	client := h2c(s.t)
	go func() {
		res, err := client.Do(req)
		if err != nil {
			answers <- err.Error()
			return
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		answers <- string(body)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			s.t.Errorf("reading the answer: %v", err)
		}
	}()
	s.t.Cleanup(func() { _ = w.Close() })
	send = func(b []byte) {
		// The server may be done with the stream before it read everything; the answer says why.
		go func() { _, _ = w.Write(b) }()
	}
	return send, func() string { return <-answers }
}

// frame returns a message as Connect sends it in a stream.
func framed(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
}

func credits(n uint32) *belfryv1.WorkRequest {
	return &belfryv1.WorkRequest{Credits: &belfryv1.Credits{Queues: []string{"a"}, Credits: n}}
}

// TestAStreamsMessageHasTimeToArrive: from its first byte on. A stream that is silent between
// messages goes on.
func TestAStreamsMessageHasTimeToArrive(t *testing.T) {
	t.Parallel() // it waits for most of its time
	limits := check.DefaultLimits()
	// the first message of the silent stream must arrive within it, however busy the machine is
	limits.BodyWait = 5 * time.Second
	s := serve(t, func(c *Config) { c.Limits = limits })
	silent := s.work(s.workClients()["Connect"], 1, "a")
	send, answer := s.rawStream()
	send(framed(t, credits(1))[:7])
	if got := answer(); !strings.Contains(got, "a message of a stream did not arrive within 5s") {
		t.Errorf("%q", got)
	}
	if n := s.server.handler.bodyBytesInFlight.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
	s.post("/v1/put", `{"queue":"a"}`)
	if got := silent.receive(); len(got.GetJobs()) != 1 {
		t.Errorf("%v", got)
	}
	if err := silent.end(); err != nil {
		t.Error(err)
	}
}

// TestAStreamsMessageIsBounded: also one that is small on the wire.
func TestAStreamsMessageIsBounded(t *testing.T) {
	s := serve(t)
	large := &belfryv1.WorkRequest{Nacks: []*belfryv1.NackRequest{{Error: strings.Repeat("x", 1<<20)}}}
	send, answer := s.rawStream()
	send(append(framed(t, credits(1)), framed(t, large)...))
	if got := answer(); !strings.Contains(got, "TOO_LARGE") {
		t.Errorf("%q", got)
	}
	for name, c := range s.workClients() {
		w := s.work(c, 1, "a")
		w.send(large)
		if f, ok := fault.FromConnect(w.end()); !ok || f.Reason != belfryv1.Reason_REASON_TOO_LARGE {
			t.Errorf("%s: %v", name, f)
		}
	}
	s.await("nothing is counted any more", func() bool { return s.server.handler.bodyBytesInFlight.Load() == 0 })
}

// TestStreamsTogetherAreBounded: in number, and in the bytes that wait to be carried out.
func TestStreamsTogetherAreBounded(t *testing.T) {
	limits := check.DefaultLimits()
	limits.StreamsMax = 1
	s := serve(t, func(c *Config) { c.Limits = limits })
	clients := s.workClients()
	open := s.work(clients["Connect"], 1, "a")
	s.await("the stream is open", func() bool { return s.server.handler.streams.Load() == 1 })
	for name, c := range clients {
		if f, ok := fault.FromConnect(s.work(c, 1, "a").end()); !ok || f.Reason != belfryv1.Reason_REASON_OVERLOADED {
			t.Errorf("%s: %v", name, f)
		}
	}
	if err := open.end(); err != nil {
		t.Error(err)
	}
	s.await("the stream is over", func() bool { return s.server.handler.streams.Load() == 0 })
	s.server.handler.bodyBytesInFlight.Store(inbound.BytesInFlightMax)
	if f, ok := fault.FromConnect(s.work(clients["gRPC"], 1, "a").end()); !ok ||
		f.Reason != belfryv1.Reason_REASON_OVERLOADED {
		t.Errorf("%v", f)
	}
	s.await("the server's bytes are what they were", func() bool {
		return s.server.handler.bodyBytesInFlight.Load() == inbound.BytesInFlightMax
	})
}

// TestMessagesCountUntilTheyAreCarriedOut: what waits to be proposed is held in memory like a body.
func TestMessagesCountUntilTheyAreCarriedOut(t *testing.T) {
	s := serve(t)
	stuck, goOn := make(chan struct{}), make(chan struct{})
	s.node.Fail = func(uint32) error {
		close(stuck)
		<-goOn
		return nodeNoLeader()
	}
	w := s.work(s.workClients()["gRPC"], 0, "a")
	ack := &belfryv1.WorkRequest{Acks: []*belfryv1.AckRequest{{Lease: wire.FormatLease(leaseOfNothing())}}}
	w.send(ack)
	<-stuck
	if got, want := s.server.handler.bodyBytesInFlight.Load(), int64(proto.Size(ack)+inbound.ActionBytes); got != want {
		t.Errorf("%d bytes are counted, want %d", got, want)
	}
	close(goOn)
	if got := w.receive().GetResults(); len(got) != 1 {
		t.Errorf("%v", got)
	}
	if got := s.server.handler.bodyBytesInFlight.Load(); got != 0 {
		t.Errorf("%d bytes are still counted", got)
	}
	if err := w.end(); err != nil {
		t.Error(err)
	}
}
