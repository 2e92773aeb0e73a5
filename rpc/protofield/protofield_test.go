package protofield

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"
)

// marshal returns what the generated code writes.
func marshal(t *rapid.T, m proto.Message) []byte {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// inside returns a field that has a message, as protowire writes it.
func inside(field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag([]byte("before"), field, protowire.BytesType), message)
}

// TestFieldsAreThoseOfTheGeneratedCode: any value of any sign, also one that is no valid time.
func TestFieldsAreThoseOfTheGeneratedCode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		field := protowire.Number(rapid.Int32Range(1, int32(protowire.MaxValidNumber)).Draw(t, "field"))
		seconds := rapid.OneOf(rapid.Just[int64](0), rapid.Int64()).Draw(t, "seconds")
		nanos := rapid.OneOf(rapid.Just[int32](0), rapid.Int32()).Draw(t, "nanos")
		got := AppendSeconds([]byte("before"), field, seconds, nanos)
		for _, m := range []proto.Message{
			&timestamppb.Timestamp{Seconds: seconds, Nanos: nanos}, &durationpb.Duration{Seconds: seconds, Nanos: nanos},
		} {
			if want := inside(field, marshal(t, m)); !bytes.Equal(got, want) {
				t.Fatalf("%v is % x, the generated code writes % x", m, got, want)
			}
		}
		text := rapid.StringN(0, 300, 600).Draw(t, "text")
		if got, want := AppendText(nil, 1, text), marshal(t, wrapperspb.String(text)); !bytes.Equal(got, want) {
			t.Fatalf("%q is % x, the generated code writes % x", text, got, want)
		}
		number := rapid.OneOf(rapid.Just[uint64](0), rapid.Uint64()).Draw(t, "number")
		if got, want := AppendNumber(nil, 1, number), marshal(t, wrapperspb.UInt64(number)); !bytes.Equal(got, want) {
			t.Fatalf("%d is % x, the generated code writes % x", number, got, want)
		}
	})
}

// TestShortMessages: the longest message that OpenShort may begin is read as it was written.
func TestShortMessages(t *testing.T) {
	content := bytes.Repeat([]byte("x"), 127)
	dst := OpenShort(nil, 16)
	start := len(dst)
	dst = append(dst, content...)
	CloseShort(dst, start)
	if want := inside(16, content)[len("before"):]; !bytes.Equal(dst, want) {
		t.Errorf("got % x, want % x", dst, want)
	}
}
