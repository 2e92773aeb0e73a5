package codec

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestBinaryCodec: other messages go their way, and what is no message is refused.
func TestBinaryCodec(t *testing.T) {
	put := &belfryv1.PutRequest{
		Queue: "mail:orders", Id: "order-ä", Body: &belfryv1.PutRequest_Data{Data: []byte{0xff, 0}},
	}
	data, err := Binary{}.Marshal(put)
	stable, stableErr := Binary{}.MarshalStable(put)
	got := &belfryv1.PutRequest{}
	if err != nil || stableErr != nil || !bytes.Equal(data, stable) || (Binary{}).Unmarshal(data, got) != nil ||
		!proto.Equal(put, got) {
		t.Errorf("there and back: %v from %x (%v), %x (%v)", got, data, err, stable, stableErr)
	}
	_, err = Binary{}.Marshal("text")
	_, stableErr = Binary{}.MarshalStable("text")
	if err == nil || stableErr == nil || (Binary{}).Unmarshal(nil, "text") == nil {
		t.Error("a string was taken for a message")
	}
	if !(Binary{}).IsBinary() || (Binary{}).Name() != "proto" {
		t.Error("Connect would not find the codec, or take its bytes for text")
	}
}
