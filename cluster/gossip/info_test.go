package gossip

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// full is a description with every field set.
func full() Info {
	return Info{
		Cluster: "3f2a9c0d1e5b4a68", Name: "node-1", ServerID: "node-1.0123456789abcdef", PeerAddr: "node-1.example:7401",
		ClientAddr: "[2001:db8::1]:7400", Zone: "eu-1a", Shards: 6, Format: 1,
	}
}

func TestInfoRoundTrip(t *testing.T) {
	for name, info := range map[string]Info{
		"full":       full(),
		"no cluster": {Name: "n", ServerID: "n.1"},
		"largest":    {Name: "n", ServerID: "n.1", Shards: 1<<32 - 1, Format: 1<<32 - 1},
		"long name":  {Name: strings.Repeat("n", nameBytesMax), ServerID: strings.Repeat("n", nameBytesMax) + ".1"},
	} {
		encoded, err := info.encode()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := decodeInfo(encoded)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(info, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The encoding is what other versions read: it changes only with its version.
func TestInfoGolden(t *testing.T) {
	encoded, err := Info{
		Cluster: "c", Name: "n", ServerID: "n.i", PeerAddr: "p:1", ClientAddr: "q:2", Zone: "z", Shards: 300, Format: 2,
	}.encode()
	if want := "\x01\x01c\x01n\x01i\x03p:1\x03q:2\x01z\xac\x02\x02"; err != nil || string(encoded) != want {
		t.Errorf("encoded %q, %v; want %q", encoded, err, want)
	}
}

func TestInfoRefusesWhatNoNodeSays(t *testing.T) {
	for name, change := range map[string]func(*Info){
		"no name":            func(i *Info) { i.Name, i.ServerID = "", ".1" },
		"a dot in the name":  func(i *Info) { i.Name, i.ServerID = "a.b", "a.b.1" },
		"no incarnation":     func(i *Info) { i.ServerID = i.Name },
		"empty incarnation":  func(i *Info) { i.ServerID = i.Name + "." },
		"another's id":       func(i *Info) { i.ServerID = "other.1" },
		"control characters": func(i *Info) { i.Zone = "a\nb" },
		"long zone":          func(i *Info) { i.Zone = strings.Repeat("z", nameBytesMax+1) },
		"blank cluster":      func(i *Info) { i.Cluster = " " },
		"no port":            func(i *Info) { i.PeerAddr = "host" },
		"port 0":             func(i *Info) { i.PeerAddr = "host:0" },
		"no host":            func(i *Info) { i.ClientAddr = ":7400" },
		"port too large":     func(i *Info) { i.ClientAddr = "host:70000" },
		"too long together": func(i *Info) {
			i.PeerAddr, i.ClientAddr = strings.Repeat("p", 250)+":1", strings.Repeat("c", 250)+":1"
		},
	} {
		info := full()
		change(&info)
		if encoded, err := info.encode(); err == nil {
			t.Errorf("%s: encoded as %q", name, encoded)
		}
	}
}

func TestDecodeInfoRefusesGarbage(t *testing.T) {
	good, err := full().encode()
	if err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := decodeInfo(good[:n]); !errors.Is(err, errInfo) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	for name, b := range map[string]string{
		"another version": "\x02" + string(good[1:]),
		"trailing byte":   string(good) + "\x00",
		"too long":        string(good) + strings.Repeat("\x00", infoBytesMax),
		"length beyond":   "\x01\xff\x01",
		"endless length":  "\x01" + strings.Repeat("\xff", 11),
		"longer form":     "\x01\x80\x00\x01n\x01i\x00\x00\x00\x00\x00",
		"number too big":  "\x01\x00\x01n\x01i\x00\x00\x00\xff\xff\xff\xff\xff\x01\x00",
		"bad name":        "\x01\x00\x01.\x01i\x00\x00\x00\x00\x00",
	} {
		if got, err := decodeInfo([]byte(b)); !errors.Is(err, errInfo) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func FuzzDecodeInfo(f *testing.F) {
	good, err := full().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{infoVersion, 0, 1, 'n', 1, 'i', 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := decodeInfo(b)
		if err != nil {
			return
		}
		again, err := info.encode()
		if err != nil || string(again) != string(b) {
			t.Fatalf("%q is %+v, encoded again %q, %v", b, info, again, err)
		}
	})
}
