package storage

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"
)

// TestEncodingRoom: entries of one append have room of their own, the next append uses it again,
// and what is too large for it is encoded all the same.
func TestEncodingRoom(t *testing.T) {
	r := &encodingRoom{entryCodec: entryCodec{salt: 7}}
	var index uint64
	for _, sizes := range [][]int{
		{100, 0, 2000},
		{5},
		{3000, 3000, 1},
		{encodingRoomMax},
		{100, encodingRoomMax, 100},
		{encodingRoomMax - 100, 30},
	} {
		var logs []*raft.Log
		for _, size := range sizes {
			index++
			logs = append(logs, &raft.Log{
				Index: index, Term: 3, Data: bytes.Repeat([]byte{byte(index)}, size), Extensions: []byte("ext"),
			})
		}
		r.prepare(logs)
		buffers := make([]bytes.Buffer, len(logs))
		for i, l := range logs {
			if err := r.Encode(l, &buffers[i]); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range logs {
			var l raft.Log
			if err := r.Decode(buffers[i].Bytes(), &l); err != nil || l.Index != want.Index || !bytes.Equal(l.Data, want.Data) {
				t.Errorf("entry %d of sizes %v: %d bytes of entry %d, %v", i, sizes, len(l.Data), l.Index, err)
			}
		}
		if cap(r.room) > encodingRoomMax {
			t.Errorf("%d bytes of room are kept", cap(r.room))
		}
	}
	logs := []*raft.Log{{Index: 1, Data: make([]byte, 1000)}, {Index: 2, Data: make([]byte, 1000)}}
	if allocs := testing.AllocsPerRun(100, func() {
		r.prepare(logs)
		for _, l := range logs {
			var b bytes.Buffer
			_ = r.Encode(l, &b)
		}
	}); allocs > 4 { // the headers, and the buffers themselves
		t.Errorf("an append that fits takes %v allocations", allocs)
	}
}
