package stream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func drawHeader(t *rapid.T) Header {
	return Header{
		Kind: Kind(rapid.Byte().Draw(t, "kind")), Method: Method(rapid.Byte().Draw(t, "method")),
		ID:   rapid.Uint32().Draw(t, "id"),
		Size: rapid.Uint32().Draw(t, "size"), Number: rapid.Int64().Draw(t, "number"),
	}
}

func TestHeadersComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, second := drawHeader(t), drawHeader(t)
		r := bufio.NewReader(iotest.OneByteReader(bytes.NewReader(second.append(first.append(nil)))))
		for _, want := range []Header{first, second} {
			if got, err := ReadHeader(r); got != want || err != nil {
				t.Fatalf("%+v came back as %+v, %v", want, got, err)
			}
		}
		if _, err := ReadHeader(r); !errors.Is(err, io.EOF) {
			t.Fatalf("the end: %v", err)
		}
	})
}

// TestHeaderBytes holds the form: versions of both sides meet.
func TestHeaderBytes(t *testing.T) {
	got := Header{Kind: Call, Method: Reserve, ID: 0x01020304, Size: 0x05060708, Number: -2}.append(nil)
	want := []byte{1, 3, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 255, 255, 255, 255, 255, 255, 255, 254}
	if !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
	if Pong != 8 || Stop != 9 || PutBatch != 1 || AckBatch != 2 || SessionPath != "/belfry.v1/session" ||
		SessionProtocol != "belfry-session/1" {
		t.Error("a number or a name has changed")
	}
}

func TestHeadersThatAreNone(t *testing.T) {
	whole := Header{Kind: Ping}.append(nil)
	for cut := 1; cut < len(whole); cut++ {
		if _, err := ReadHeader(bufio.NewReader(bytes.NewReader(whole[:cut]))); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: %v", cut, err)
		}
	}
	for _, i := range []int{2, 3} {
		wrong := bytes.Clone(whole)
		wrong[i] = 1
		if _, err := ReadHeader(bufio.NewReader(bytes.NewReader(wrong))); !errors.Is(err, errHeader) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
	broken := errors.New("broken")
	if _, err := ReadHeader(bufio.NewReader(iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// TestPieces: the pieces make the whole, and none is larger than what has come, or than what is
// believed.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(0, 1<<32-1).Draw(t, "size")
		have := 0
		for have < size {
			piece := Piece(have, size)
			if piece <= 0 || piece > max(have, PieceBytes) {
				t.Fatalf("%d bytes follow %d of %d", piece, have, size)
			}
			have += piece
		}
		if have != size {
			t.Fatalf("%d of %d bytes", have, size)
		}
	})
}

// FuzzReadHeader reads any bytes as headers with payloads, and writes what it read.
func FuzzReadHeader(f *testing.F) {
	f.Add(append(Header{Kind: Call, Method: PutBatch, ID: 1, Size: 3, Number: 1000}.append(nil), "abc"...))
	f.Add(Header{Kind: Bye}.append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReader(bytes.NewReader(data))
		for at := 0; ; {
			h, err := ReadHeader(r)
			if err != nil {
				return
			}
			if again := h.append(nil); !bytes.Equal(again, data[at:at+headerBytes]) {
				t.Fatalf("% x was read as %+v", data[at:at+headerBytes], h)
			}
			if _, err := r.Discard(int(h.Size)); err != nil {
				return
			}
			at += headerBytes + int(h.Size)
		}
	})
}
