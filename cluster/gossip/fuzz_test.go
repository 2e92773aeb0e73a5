package gossip

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// fuzzRings returns a ring with two keys, and one of a node without.
func fuzzRings(f *testing.F) (keyed, keyless *keyring) {
	f.Helper()
	keyed, err := newKeyring([][]byte{keyOf(1, 32), keyOf(2, 16)})
	if err != nil {
		f.Fatal(err)
	}
	if keyless, err = newKeyring(nil); err != nil {
		f.Fatal(err)
	}
	return keyed, keyless
}

// wantRefusal fails the test if the bytes of a fake peer opened, or if the error does not say why
// they did not.
func wantRefusal(t *testing.T, plain []byte, err error) {
	t.Helper()
	for _, known := range []error{errFrame, errWrongKey, errKeyless, errElsewhere, errRefused, io.EOF,
		io.ErrUnexpectedEOF} {
		if errors.Is(err, known) {
			return
		}
	}
	t.Errorf("opened as %q, %v", plain, err)
}

// FuzzOpenPacket: what no node sealed does not open, and what one sealed opens as it was.
func FuzzOpenPacket(f *testing.F) {
	keyed, keyless := fuzzRings(f)
	for _, plain := range []string{"", "\x00\x80", "a message"} {
		f.Add(keyless.sealPacket(here, []byte(plain)))
		f.Add([]byte(plain))
	}
	f.Add([]byte("BG\x02p"))
	f.Add([]byte("BG\x01p0123456789abcdef0123456789abcdef"))
	f.Add([]byte("BG\x02s0123456789abcdef0123456789abcdef"))
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		plain, err := keyed.openPacket(here, data)
		wantRefusal(t, plain, err)
		if _, err := keyless.openPacket(here, data); err != nil {
			wantRefusal(t, nil, err)
		}
		if !bytes.Equal(before, data) {
			t.Error("the packet was changed")
		}
		frame := keyed.sealPacket(here, data)
		if got, err := keyed.openPacket(here, frame); err != nil || !bytes.Equal(got, data) {
			t.Errorf("sealed and opened: %q, %v", got, err)
		}
		frame[len(data)%len(frame)] ^= 1
		plain, err = keyed.openPacket(here, frame)
		wantRefusal(t, plain, err)
	})
}

// fakePeer is the other side of a stream, with made-up content.
type fakePeer struct {
	io.Reader
	heard bytes.Buffer
}

func (s *fakePeer) Write(p []byte) (int, error) { return s.heard.Write(p) }

// FuzzReadStream feeds the content of a fake peer to a node that accepted the stream, and to one
// that dialled it.
func FuzzReadStream(f *testing.F) {
	keyed, keyless := fuzzRings(f)
	first, second := string(frameHead(frameKnock))+knockEnd, string(frameHead(frameChallenge))+"0123456789abcdef"
	var bound binding
	copy(bound.challenge[:], "0123456789abcdef")
	for _, side := range []struct {
		begin string
		bound []byte
	}{{first, bound.question()}, {second, bound.answer()}} {
		frame, err := keyless.sealStream(side.bound, []byte("\x00\x80"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(side.begin + string(frame)))
		f.Add([]byte(side.begin + "BG\x02s\xff\xff\xff\xff"))
		f.Add([]byte(side.begin + "BG\x02s\x00\x0f\xff\xff"))
		f.Add([]byte(side.begin + "BG\x02r"))
		f.Add([]byte(side.begin))
	}
	f.Add([]byte("BG\x02h"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, keys := range []*keyring{keyed, keyless} {
			from := &fakePeer{Reader: bytes.NewReader(data)}
			bound, err := open(from)
			if knocked := bytes.HasPrefix(data, []byte(first)); knocked != (err == nil) || knocked != (from.heard.Len() > 0) {
				t.Errorf("%q knocks: %t, %v; it hears %q", data, knocked, err, from.heard.String())
			}
			var plain []byte
			if err == nil {
				plain, _, err = keys.readStream(from, bound.question()) // no frame can be sealed with this challenge
			}
			wantRefusal(t, plain, err)
			to := &fakePeer{Reader: bytes.NewReader(data)}
			if bound, err = knock(to); err == nil {
				bound.asked = nonce{1} // some other question
				plain, _, err = keys.readStream(to, bound.answer())
			}
			wantRefusal(t, plain, err)
		}
	})
}
