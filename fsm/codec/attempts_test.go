package codec

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/fsmtest"
)

// TestHeldFields: the holder and the attempts of a job come back from its record, and a field of a
// later version is refused as such.
func TestHeldFields(t *testing.T) {
	record := func(fields []byte) HeldJob {
		r := NewReader(append(append([]byte{7, 1, byte(fsm.Reserved), 0, byte(HeldHasLease | HeldHasFields)},
			9, 2, 3, 0, 1, 0, 0), append(fields, 1, 0, 0)...))
		v := r.Held()
		if err := r.CheckEnd(); err != nil {
			v.LastError = err.Error()
			if !errors.Is(err, fsm.ErrVersion) {
				t.Errorf("%x: %v", fields, err)
			}
		}
		return v
	}
	want := fsmtest.EveryAttempt()
	got := record(AppendHeldFields(nil, &HeldFields{Leased: 8, Client: "worker", Attempts: AppendAttempts(nil, want)}))
	if diff := cmp.Diff(want, got.Attempts); diff != "" || got.Leased != 8 || got.Client != "worker" ||
		got.LastError != "" {
		t.Errorf("leased %d, client %q, error %q (-want +got):\n%s", got.Leased, got.Client, got.LastError, diff)
	}
	for _, later := range [][]byte{{3, 4, 1, 'x'}, {2, 11, 0}} {
		if got := record(later); got.LastError == "" {
			t.Errorf("the fields %x are read", later)
		}
	}
	r := NewReader([]byte{7, 1, byte(fsm.Ready), 0, 1 << 3, 1, 0, 0})
	if r.Held(); !errors.Is(r.CheckEnd(), fsm.ErrVersion) {
		t.Errorf("an unknown flag: %v", r.CheckEnd())
	}
}

// TestFieldsOfLaterVersions: from format 3 on, what follows the fields of a command or of a queue is of
// a later version, not damage.
func TestFieldsOfLaterVersions(t *testing.T) {
	request := AppendRequestIn(nil, 3, &fsm.Request{Commands: []fsm.Command{&fsm.Expire{}}})
	request[len(request)-1] = 3 // the command is 3 bytes longer
	request[len(request)-3] += 3
	request = append(request, 1, 1, 'x')
	if _, err := ParseRequest(request, 3); !errors.Is(err, fsm.ErrVersion) {
		t.Errorf("a command: %v", err)
	}
	queue := fsm.QueueRecord{Name: "q", Partitions: 1, CreateSeq: 1, Format: 3}
	r := NewReader(append(AppendQueueRecord(nil, &queue), 7, 1, 'x'))
	if r.QueueRecord(); !errors.Is(r.CheckEnd(), fsm.ErrVersion) {
		t.Errorf("a queue: %v", r.CheckEnd())
	}
}

// TestClientOfNobody: a job that is not leased has no client. It would be in no digest.
func TestClientOfNobody(t *testing.T) {
	fields := AppendHeldFields(nil, &HeldFields{Client: "worker"})
	r := NewReader(append(append([]byte{7, 1, byte(fsm.Reserved), 0, byte(HeldHasLease | HeldHasFields)},
		9, 2, 3, 0, 1, 0, 0), append(fields, 1, 0, 0)...))
	if r.Held(); !errors.Is(r.CheckEnd(), fsm.ErrDamaged) {
		t.Errorf("a client without a lease: %v", r.CheckEnd())
	}
}
