package queue

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// heldStream is the server's side of a Work stream. Its client sends one message and then reads
// until over is closed.
type heldStream struct {
	first   *belfryv1.WorkRequest
	over    <-chan struct{}
	answers chan *belfryv1.WorkResponse
}

func (s *heldStream) Receive() (*belfryv1.WorkRequest, error) {
	if first := s.first; first != nil {
		s.first = nil
		return first, nil
	}
	<-s.over
	return nil, io.EOF
}

func (s *heldStream) Send(m *belfryv1.WorkResponse) error {
	s.answers <- m
	return nil
}

// tokenMemory keeps tokens in memory.
type tokenMemory struct{ records sync.Map }

func (m *tokenMemory) OpenAccess() (bool, error) { return false, nil }

func (m *tokenMemory) Token(id string) (*tokens.Record, error) {
	record, _ := m.records.Load(id)
	t, _ := record.(*tokens.Record)
	return t, nil
}

// make creates a token.
func (m *tokenMemory) make(t testing.TB, scope string) (text, id string) {
	t.Helper()
	text, id, hash := tokens.New()
	s, err := tokens.ParseScope(scope)
	if err != nil {
		t.Fatal(err)
	}
	m.records.Store(id, &tokens.Record{ID: id, Hash: hash, Scopes: []tokens.Scope{s}})
	return text, id
}

// as returns a context for calls to a service with a token.
func (s *Service) as(t testing.TB, token string) context.Context {
	t.Helper()
	r, f := s.rules.Authorizer.Authenticate(&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}})
	if f != nil {
		t.Fatal(f)
	}
	return r.Context()
}

// TestTokenEndsStreams: a stream hands out jobs as long as its token is valid. The poll that runs
// when the token ends is the last.
func TestTokenEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokenStore := &tokenMemory{}
		consumer, id := tokenStore.make(t, "consume:q")
		producer, _ := tokenStore.make(t, "put:q")
		s := newService(t, backendtest.NewNode(3), func(cfg *Config) { cfg.Rules.Authorizer.Authenticator = tokenStore })
		ctx, cancel := context.WithCancel(s.as(t, consumer))
		stream := &heldStream{
			first: &belfryv1.WorkRequest{Credits: &belfryv1.Credits{
				Queues: []string{"q"}, Credits: 9,
			}}, over: ctx.Done(), answers: make(chan *belfryv1.WorkResponse, 9),
		}
		ended := make(chan error, 1)
		go func() { ended <- s.work(ctx, stream) }()
		for job := range 3 {
			synctest.Wait() // a poll is running, unless the stream has ended
			if job == 1 {
				tokenStore.records.Delete(id)
			}
			if _, err := s.Put(s.as(t, producer), &belfryv1.PutRequest{Queue: "q"}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(stream.answers) != 2 {
			t.Errorf("%d jobs were handed out, want the one before the token's end and that of the poll which was under way",
				len(stream.answers))
		}
		cancel()
		if f, ok := errors.AsType[*fault.Error](<-ended); !ok || f.Reason != belfryv1.Reason_REASON_UNAUTHENTICATED {
			t.Errorf("the stream ended with %v", f)
		}
	})
}

// TestTokenEndsIdleStreams: a stream that asks for no jobs ends soon after its token. Before that,
// it refuses acks of other queues' leases.
func TestTokenEndsIdleStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokenStore := &tokenMemory{}
		text, id := tokenStore.make(t, "consume:q")
		s := newService(t, backendtest.NewNode(3), func(cfg *Config) { cfg.Rules.Authorizer.Authenticator = tokenStore })
		ctx, cancel := context.WithCancel(s.as(t, text))
		defer cancel()
		lease := wire.FormatLease(fsm.Ref{Queue: "r", Serial: 1, Fence: 1})
		stream := &heldStream{
			first: &belfryv1.WorkRequest{
				Credits: &belfryv1.Credits{Queues: []string{"q"}}, Acks: []*belfryv1.AckRequest{{Lease: lease}},
				Nacks:    []*belfryv1.NackRequest{{Lease: lease}},
				Releases: []*belfryv1.ReleaseRequest{{Lease: lease}}, Extends: []*belfryv1.ExtendRequest{{Lease: lease}},
			},
			answers: make(chan *belfryv1.WorkResponse, 9),
		}
		over := make(chan struct{})
		stream.over = over
		ended := make(chan error, 1)
		go func() { ended <- s.work(ctx, stream) }()
		synctest.Wait()
		results := (<-stream.answers).GetResults()
		for _, r := range results {
			if r.GetError().GetReason() != belfryv1.Reason_REASON_FORBIDDEN {
				t.Errorf("another queue's lease: %v", r)
			}
		}
		if len(results) != 4 {
			t.Errorf("%d results", len(results))
		}
		tokenStore.records.Delete(id)
		time.Sleep(streamLook)
		synctest.Wait()
		close(over) // this ends the stream if the server has not
		if f, ok := errors.AsType[*fault.Error](<-ended); !ok || f.Reason != belfryv1.Reason_REASON_UNAUTHENTICATED {
			t.Errorf("the stream ended with %v", f)
		}
	})
}
