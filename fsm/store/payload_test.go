package store

import (
	"encoding/binary"
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// TestPayloadLengths: the payloads of jobs and of tombstones say how long they are, at every length
// of that.
func TestPayloadLengths(t *testing.T) {
	for _, id := range []string{"", "order-42"} {
		for size := range 17_000 {
			if size > 300 && size < 16_000 {
				continue
			}
			j := &fsm.Job{ID: id, Generated: id == "", Created: 5, FirstDue: 7, Body: make([]byte, size)}
			payload, tombPayload := appendPayload(nil, j, [16]byte{1}, 2, 3), appendTombPayload(nil, id, "", [16]byte{1}, 2)
			for _, blob := range [][]byte{payload, tombPayload} {
				v, w := binary.Uvarint(blob)
				if int(v) != len(blob)-w || w != len(binary.AppendUvarint(nil, v)) {
					t.Fatalf("a body of %d bytes: length %d in %d bytes of a blob of %d", size, v, w, len(blob))
				}
			}
			var back fsm.Job
			b := openPayload(appendPayload(nil, j, [16]byte{1}, 2, 3))
			if b.Read(&back); len(back.Body) != size || back.FirstDue != 7 || string(b.ID()) != id || b.Hash() != 3 {
				t.Fatalf("a body of %d bytes came back as %+v", size, back)
			}
		}
	}
}
