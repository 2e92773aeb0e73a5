package gossip

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func keyOf(fill byte, size int) []byte { return bytes.Repeat([]byte{fill}, size) }

func TestReadKeyFile(t *testing.T) {
	line := func(fill byte, size int) string { return base64.StdEncoding.EncodeToString(keyOf(fill, size)) + "\n" }
	for _, tt := range []struct {
		name, text string
		want       [][]byte
		wantErr    string
	}{
		{"one", line(1, 32), [][]byte{keyOf(1, 32)}, ""},
		{"three, with a comment", "# new\n" + line(1, 16) + "\n  " + line(2, 24) + strings.TrimSpace(line(3, 32)),
			[][]byte{keyOf(1, 16), keyOf(2, 24), keyOf(3, 32)}, ""},
		{"empty", "# none\n\n", nil, "has 0 keys"},
		{"too many", strings.Repeat(line(1, 16), keysMax+1), nil, "has 9 keys"},
		{"wrong size", line(1, 16) + line(2, 20), nil, "line 2 of"},
		{"not base64", "secret phrase\n", nil, "'head -c 32 /dev/urandom | base64' makes it"},
	} {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadKeyFile(path)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if tt.wantErr == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.wantErr)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the key: %v", tt.name, err)
		}
	}
	if _, err := ReadKeyFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

// here is where packets of these tests go.
var here = netip.MustParseAddrPort("10.0.0.1:7402")

func ring(t *testing.T, keys ...[]byte) *keyring {
	t.Helper()
	r, err := newKeyring(keys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFramesOpenWithAnyKeyOfTheRing(t *testing.T) {
	plain := []byte("a message")
	one, both, two, none := ring(t, keyOf(1, 32)), ring(t, keyOf(2, 32), keyOf(1, 32)), ring(t, keyOf(2, 32)), ring(t)
	for _, tt := range []struct {
		name     string
		from, to *keyring
		want     error
	}{
		{"same", one, one, nil},
		{"second key", one, both, nil},
		{"first key seals", both, two, nil},
		{"first key only", both, one, errWrongKey},
		{"another", two, one, errWrongKey},
		{"none to none", none, none, nil},
		{"none to one", none, one, errKeyless},
		{"one to none", one, none, errWrongKey},
	} {
		got, err := tt.to.openPacket(here, tt.from.sealPacket(here, plain))
		if !errors.Is(err, tt.want) || tt.want == nil && !bytes.Equal(got, plain) {
			t.Errorf("%s: packet %q, %v; want %v", tt.name, got, err, tt.want)
		}
		bound := newBinding()
		frame, err := tt.from.sealStream(bound.question(), plain)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err = tt.to.readStream(bytes.NewReader(frame), bound.question())
		if !errors.Is(err, tt.want) || tt.want == nil && !bytes.Equal(got, plain) {
			t.Errorf("%s: stream %q, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}

func TestFramesRefuseEveryChangedByte(t *testing.T) {
	r := ring(t, keyOf(1, 32))
	frame := r.sealPacket(here, []byte("a message"))
	for _, other := range []string{"10.0.0.1:7403", "10.0.0.2:7402", "[fe80::1%eth0]:7402"} {
		if got, err := r.openPacket(netip.MustParseAddrPort(other), frame); !errors.Is(err, errElsewhere) {
			t.Errorf("at %s it opens as %q, %v", other, got, err)
		}
	}
	for i := range frame {
		changed := bytes.Clone(frame)
		changed[i] ^= 1
		if got, err := r.openPacket(here, changed); err == nil {
			t.Errorf("packet, byte %d: opened as %q", i, got)
		}
	}
	bound := newBinding()
	frame, err := r.sealStream(bound.question(), []byte("a message"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range frame {
		changed := bytes.Clone(frame)
		changed[i] ^= 1
		if got, _, err := r.readStream(bytes.NewReader(changed), bound.question()); err == nil {
			t.Errorf("stream, byte %d: opened as %q", i, got)
		}
	}
	for i := range challengeBytes {
		other := bound
		other.challenge[i] ^= 1
		if got, _, err := r.readStream(bytes.NewReader(frame), other.question()); err == nil {
			t.Errorf("challenge, byte %d: opened as %q", i, got)
		}
	}
	if got, _, err := r.readStream(bytes.NewReader(frame), bound.answer()); err == nil {
		t.Errorf("a question opened as the answer %q", got)
	}
	// A packet is no stream: what was sealed for one way does not open on the other.
	packet := r.sealPacket(here, []byte("a message"))
	if _, err := r.unseal(frameHead(frameStream), nil, packet[headBytes:]); err == nil {
		t.Error("a packet opened as a stream")
	}
}

func TestFramesAreBounded(t *testing.T) {
	r := ring(t, keyOf(1, 32))
	if _, err := r.sealStream(nil, make([]byte, streamBytesMax)); err == nil {
		t.Error("a message that nobody reads was sealed")
	}
	for name, frame := range map[string]string{
		"claims 4 GiB": "BG\x02s\xff\xff\xff\xff",
		"too short":    "BG\x02s\x00\x00\x00\x1b",
		"a packet":     "BG\x02p\x00\x00\x00\x20",
		"a knock":      "BG\x02k\r\n\r\n",
		"version":      "BG\x01s\x00\x00\x00\x20",
		"a browser":    "GET / HTTP/1.1\r\n\r\n",
	} {
		_, _, err := r.readStream(io.MultiReader(strings.NewReader(frame), endless{}), nil)
		if !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := r.readStream(strings.NewReader("BG\x02r"), nil); !errors.Is(err, errRefused) {
		t.Errorf("refused: %v", err)
	}
	if _, _, err := r.readStream(strings.NewReader(""), nil); !errors.Is(err, io.EOF) {
		t.Errorf("nothing: %v", err)
	}
	for _, short := range []string{"", "B", "BG\x02p", "BG\x02p" + strings.Repeat("x", sealBytes-1)} {
		if _, err := r.openPacket(here, []byte(short)); !errors.Is(err, errFrame) {
			t.Errorf("packet %q: %v", short, err)
		}
	}
}

// endless is a peer that goes on sending.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
