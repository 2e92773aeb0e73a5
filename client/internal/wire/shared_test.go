package wire

import (
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// TestLargeOnesShareNoMemory: what is kept for long keeps little beside itself.
func TestLargeOnesShareNoMemory(t *testing.T) {
	var p Pieces
	if p.Copy(make([]byte, BytesAlone), 8); p.free != nil {
		t.Error("bytes that are not few share memory")
	}
	if p.Copy(make([]byte, BytesAlone-1), 8); p.free == nil {
		t.Error("few bytes share no memory")
	}
	one, err := proto.Marshal(durationpb.New(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	const field = 15
	var data []byte
	for n := 1; n <= DurationsTogether+1; n++ {
		data = protowire.AppendBytes(protowire.AppendTag(data, field, protowire.BytesType), one)
		d := DurationsDecoder{Field: field}
		var list []time.Duration
		rest, err := d.Decode(&list, data, 8)
		if err != nil || len(rest) != 0 || len(list) != n {
			t.Fatalf("%d durations are decoded as %v, with %d bytes left and %v", n, list, len(rest), err)
		}
		if together := d.free != nil; together != (n <= DurationsTogether) {
			t.Errorf("a list of %d shares memory: %v", n, together)
		}
	}
}
