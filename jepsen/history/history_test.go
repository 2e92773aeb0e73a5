package history

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestWriteRead keeps a history in a file: every kind of outcome, and calls out of order.
func TestWriteRead(t *testing.T) {
	h := New()
	h.Start = h.Start.Round(0)
	witness := &belfryv1.Witness{Shard: 3, Term: 2, Index: 118, Entry: 7}
	ops := []*Op{
		{
			Client: "c1", Node: "n2", Workload: "puts", Invoked: 5, Returned: 9, Outcome: belfryv1.Outcome_OUTCOME_APPLIED,
			Request:  &belfryv1.PutRequest{Queue: "orders", Id: "42", Body: &belfryv1.PutRequest_Data{Data: []byte{0, 255}}},
			Response: &belfryv1.PutResponse{Id: "42", Created: true, Witness: witness},
		},
		{
			Client: "c2", Node: "n1", Workload: "puts", Invoked: 3, Returned: time.Hour,
			Outcome: belfryv1.Outcome_OUTCOME_UNKNOWN,
			Reason:  belfryv1.Reason_REASON_UNKNOWN_OUTCOME, Message: "<the connection broke>",
			Request: &belfryv1.AckBatchRequest{Leases: []string{"a", "b"}},
		},
		{
			Client: "c2", Node: "n1", Workload: "races", Invoked: 10, Returned: 12,
			Outcome: belfryv1.Outcome_OUTCOME_NOT_APPLIED,
			Token:   "abc", Forged: true, Reason: belfryv1.Reason_REASON_STALE_LEASE, Witness: witness,
			Request: &belfryv1.AckRequest{Lease: "a"},
		},
	}
	for _, o := range ops {
		h.Add(o)
	}
	var b bytes.Buffer
	if err := h.Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	want := []*Op{ops[1], ops[0], ops[2]}
	if diff := cmp.Diff(want, got.Ops(), protocmp.Transform(), cmpopts.EquateEmpty()); diff != "" ||
		!got.Start.Equal(h.Start) || got.Len() != 3 {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

// TestReadRefuses reads files that Write cannot have written.
func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"empty":           "",
		"no such call":    `{"start":"2026-01-01T00:00:00Z"}` + "\n" + `{"call":"Steal","request":{}}`,
		"no such field":   `{"start":"2026-01-01T00:00:00Z"}` + "\n" + `{"call":"Ack","request":{"leese":"a"}}`,
		"ends in a call":  `{"start":"2026-01-01T00:00:00Z"}` + "\n" + `{"call":"Ack","request"`,
		"not a history":   "belfry journal 1\n",
		"broken response": `{"start":"2026-01-01T00:00:00Z"}` + "\n" + `{"call":"Ack","request":{},"response":7}`,
	} {
		if _, err := Read(strings.NewReader(text)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPassages keeps passages in a file, in the order in which they ended, and refuses one that is
// damaged.
func TestPassages(t *testing.T) {
	h := New()
	due := time.UnixMilli(1_800_000_000_123).UTC()
	h.Pass(Passage{Client: "c2", Queue: "q", Payload: []byte{0, 255}, Taken: true, Invoked: 7, Returned: 9})
	h.Pass(Passage{Client: "c1", Queue: "q", Payload: []byte{0, 255}, Due: due, Invoked: 3, Returned: 4, Unknown: true})
	var b bytes.Buffer
	if err := h.WritePassages(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	got := New()
	if err := got.ReadPassages(&b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(h.Passages(), got.Passages()); diff != "" || got.Passages()[0].Client != "c1" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	for name, damaged := range map[string]string{"torn": text[:len(text)-3],
		"another field": strings.Replace(text, "client", "clients", 1)} {
		if err := New().ReadPassages(strings.NewReader(damaged)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStatuses keeps statuses in a file, in the order in which they were asked, and refuses one
// that is damaged.
func TestStatuses(t *testing.T) {
	h := New()
	h.AddStatus(Status{Node: "n2", Asked: 7, Answered: 9, Failure: "deadline exceeded"})
	h.AddStatus(Status{Node: "n1", Asked: 3, Answered: 4, Problems: []string{"node n3 does not answer"}})
	var b bytes.Buffer
	if err := h.WriteStatuses(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	got := New()
	if err := got.ReadStatuses(&b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(h.Statuses(), got.Statuses()); diff != "" || got.Statuses()[0].Node != "n1" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	for name, damaged := range map[string]string{"torn": text[:len(text)-3],
		"another field": strings.Replace(text, "node", "nodes", 1)} {
		if err := New().ReadStatuses(strings.NewReader(damaged)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
