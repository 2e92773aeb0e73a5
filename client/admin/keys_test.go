package admin

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// ListKeys implements the service: three keys on two pages. With the prefix "early" the first page is
// of the keys that were looked at only.
func (s *server) ListKeys(_ context.Context, req *belfryv1.ListKeysRequest) (*belfryv1.ListKeysResponse, error) {
	if req.GetPageToken() != "" {
		return answer(s, req, &belfryv1.ListKeysResponse{Keys: []*belfryv1.Key{{Key: "c"}}})
	}
	return answer(s, req, &belfryv1.ListKeysResponse{
		Keys: []*belfryv1.Key{{Key: "a", Blocked: belfryv1.KeyBlock_KEY_BLOCK_RATE}, {Key: "b"}}, NextPageToken: "more",
		StoppedEarly: req.GetPrefix() == "early",
	})
}

// PauseKey implements the service.
func (s *server) PauseKey(_ context.Context, req *belfryv1.PauseKeyRequest) (*belfryv1.PauseKeyResponse, error) {
	return answer(s, req, &belfryv1.PauseKeyResponse{})
}

// ResumeKey implements the service.
func (s *server) ResumeKey(_ context.Context, req *belfryv1.ResumeKeyRequest) (*belfryv1.ResumeKeyResponse, error) {
	return answer(s, req, &belfryv1.ResumeKeyResponse{})
}

// PurgeKey implements the service.
func (s *server) PurgeKey(_ context.Context, req *belfryv1.PurgeKeyRequest) (*belfryv1.PurgeKeyResponse, error) {
	return answer(s, req, &belfryv1.PurgeKeyResponse{Purged: 17})
}

// TestKeysReadsAllPages: each page is asked for with the same selection. The sequence ends where its
// reader or an error ends it.
func TestKeysReadsAllPages(t *testing.T) {
	fake := &server{}
	read := func(most int, f KeyFilter) (names string, err error) {
		for k, err := range fake.client().Keys(t.Context(), "q", f) {
			if err != nil {
				return names, err
			}
			if names += k.Name; len(names) == most {
				break
			}
		}
		return names, nil
	}
	filter := KeyFilter{Prefix: "x", State: "READY", ByName: true}
	if names, err := read(9, filter); err != nil || names != "abc" {
		t.Errorf("%q, %v", names, err)
	}
	if names, err := read(2, KeyFilter{}); err != nil || names != "ab" {
		t.Errorf("%q, %v", names, err)
	}
	first := &belfryv1.ListKeysRequest{
		Queue: "q", Prefix: "x", State: belfryv1.JobState_JOB_STATE_READY, PageSize: 1000,
		Order: belfryv1.KeyOrder_KEY_ORDER_NAME,
	}
	second := proto.Clone(first).(*belfryv1.ListKeysRequest)
	second.PageToken = "more"
	want := []proto.Message{first, second,
		&belfryv1.ListKeysRequest{Queue: "q", PageSize: 1000, Order: belfryv1.KeyOrder_KEY_ORDER_BACKLOG}}
	if diff := cmp.Diff(want, fake.requests, protocmp.Transform()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if _, err := read(9, KeyFilter{State: "GONE"}); !isInvalid(err) {
		t.Errorf("of an unknown state: %v", err)
	}
	refusal := errors.New("no")
	fake.refuse = func() error { return refusal }
	if names, err := read(9, KeyFilter{}); err == nil || names != "" {
		t.Errorf("refused: %q, %v", names, err)
	}
}

// TestKeysLeftOut: a sequence that may lack keys ends with an error, after the keys that it has.
func TestKeysLeftOut(t *testing.T) {
	names := ""
	var last error
	for k, err := range (&server{}).client().Keys(t.Context(), "q", KeyFilter{Prefix: "early"}) {
		if names += k.Name; err != nil {
			last = err
		}
	}
	if names != "abc" || !errors.Is(last, ErrKeysLeftOut) {
		t.Errorf("%q, %v", names, last)
	}
}

// TestChangesOfKeys: each is one request with an id.
func TestChangesOfKeys(t *testing.T) {
	fake := &server{}
	c := fake.client()
	n, err := c.PurgeKey(t.Context(), "q", "k", "DEAD", "READY")
	err = errors.Join(err, c.PauseKey(t.Context(), "q", "k"), c.ResumeKey(t.Context(), "q", "k"))
	if err != nil || n != 17 {
		t.Errorf("%d, %v", n, err)
	}
	want := []proto.Message{
		&belfryv1.PurgeKeyRequest{Queue: "q", Key: "k", RequestId: "r1", States: []belfryv1.JobState{
			belfryv1.JobState_JOB_STATE_DEAD, belfryv1.JobState_JOB_STATE_READY}},
		&belfryv1.PauseKeyRequest{Queue: "q", Key: "k", RequestId: "r2"},
		&belfryv1.ResumeKeyRequest{Queue: "q", Key: "k", RequestId: "r3"},
	}
	if diff := cmp.Diff(want, fake.requests, protocmp.Transform()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if _, err := c.PurgeKey(t.Context(), "q", "k", "GONE"); !isInvalid(err) {
		t.Errorf("of an unknown state: %v", err)
	}
}
