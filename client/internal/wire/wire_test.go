package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

// TestShortFieldsAreFields: what is read by hand is what protowire reads, of any bytes and at any
// end.
func TestShortFieldsAreFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tag := rapid.Uint64Range(0, 1<<16).Draw(t, "tag")
		data := protowire.AppendVarint(nil, tag)
		if rapid.Bool().Draw(t, "long tag") {
			data = append(data[:len(data)-1], data[len(data)-1]|0x80, 0)
		}
		data = append(data, rapid.SliceOfN(rapid.Byte(), 0, 140).Draw(t, "rest")...)
		got, rest, ok := short(data)
		if !ok {
			return
		}
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 || field != got.Number {
			t.Fatalf("field %d of % x, it is %d", got.Number, data, field)
		}
		want := Field{Number: field}
		m := protowire.ConsumeFieldValue(field, kind, data[n:])
		switch kind {
		case protowire.VarintType:
			want.Value, _ = protowire.ConsumeVarint(data[n:])
		case protowire.BytesType:
			want.Bytes, _ = protowire.ConsumeBytes(data[n:])
		default:
			t.Fatalf("a field of type %d is read by hand", kind)
		}
		if m < 0 || got.Value != want.Value || !bytes.Equal(got.Bytes, want.Bytes) || !bytes.Equal(rest, data[n+m:]) {
			t.Fatalf("%+v and % x of % x, want %+v", got, rest, data, want)
		}
	})
	for _, data := range [][]byte{{1 << 3, 5, 0}, {18<<3&0x7f | 2 | 0x80, 1, 1, 'x'}} {
		if _, _, ok := short(data); !ok {
			t.Errorf("% x is not read by hand", data)
		}
	}
}

// TestTextsAreKeptInSmallPieces: a text that is kept keeps few others, and a large one none.
func TestTextsAreKeptInSmallPieces(t *testing.T) {
	var all Texts
	for i := range 1000 {
		text := fmt.Sprint("text ", i)
		if got := all.Add([]byte(text), 1000-i); got != text || all.piece.Cap() > textsTogether*3/2 {
			t.Fatalf("%q became %q, in a piece of %d bytes", text, got, all.piece.Cap())
		}
	}
	long := strings.Repeat("x", 3*textsTogether)
	if got := all.Add([]byte(long), 10); got != long || all.piece.Len() != len(long) {
		t.Errorf("a long text is %d bytes of a piece of %d", len(got), all.piece.Len())
	}
}
