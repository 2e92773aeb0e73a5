package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// fields returns a msgpack map of texts that are encoded already.
func fields(pairs ...string) string {
	var b strings.Builder
	b.WriteByte(0x80 | byte(len(pairs)/2))
	for i, s := range pairs {
		if i%2 == 0 {
			s = text(s)
		}
		b.WriteString(s)
	}
	return b.String()
}

// text returns a string in msgpack.
func text(s string) string {
	if len(s) < 32 {
		return string([]byte{0xa0 | byte(len(s))}) + s
	}
	return string(binary.BigEndian.AppendUint16([]byte{0xda}, uint16(len(s)))) + s
}

// state returns a message with a state: the header's fields, then the nodes.
func state(nodes, user string, all ...string) []byte {
	return []byte("\x06" + fields("Nodes", nodes, "UserStateLen", user, "Join", "\xc3") + strings.Join(all, ""))
}

// nodeState returns the state of a node, with its protocol versions as given.
func nodeState(versions string) string {
	return fields("Name", text("n.1"), "Addr", text("\x0a\x00\x00\x01"), "Port", "\xcd\x1c\xea", "Meta", text("m"),
		"Incarnation", "\x01", "State", "\x00", "Vsn", versions)
}

const sixVersions = "\xa6\x01\x05\x02\x00\x00\x00"

func TestInspectStream(t *testing.T) {
	good := nodeState(sixVersions)
	for _, tt := range []struct {
		name    string
		message []byte
		ok      bool
	}{
		{"a state", state("\x01", "\x00", good), true},
		{"two nodes", state("\x02", "\x00", good, good), true},
		{"numbers in other forms", state("\xd1\x00\x01", "\xcf\x00\x00\x00\x00\x00\x00\x00\x00", good), true},
		{"an unknown field",
			state("\x01", "\x00",
				"\x82"+text("New")+"\x93\x01\xa1x\xcb\x00\x00\x00\x00\x00\x00\x00\x00"+text("Vsn")+sixVersions), true},
		{"a ping", []byte{messagePing, 0x80}, true},
		{"an error", []byte{messageError, 0x80}, true},

		{"empty", nil, false},
		{"compressed", []byte("\x09" + fields("Algo", "\x00", "Buf", text(""))), false},
		{"encrypted", []byte{10, 0, 0, 0, 0}, false},
		{"a user message", []byte("\x08" + fields("UserMsgLen", "\xd3\xff\xff\xff\xff\xff\xff\xff\xff")), false},
		{"no versions", state("\x01", "\x00", nodeState("\xc0")), false},
		{"empty versions", state("\x01", "\x00", nodeState("\xa0")), false},
		{"three versions", state("\x01", "\x00", nodeState("\xa3\x01\x05\x02")), false},
		{"versions as a list", state("\x01", "\x00", nodeState("\x96\x01\x05\x02\x00\x00\x00")), false},
		{"versions twice", state("\x01", "\x00", "\x82"+text("Vsn")+sixVersions+text("Vsn")+"\xa0"), false},
		{"versions left out", state("\x01", "\x00", fields("Name", text("n.1"))), false},
		{"fewer nodes than announced", state("\x02", "\x00", good), false},
		{"more nodes than announced", state("\x01", "\x00", good, good), false},
		{"a million nodes", state("\xce\x00\x10\x00\x00", "\x00", good), false},
		{"minus one node", state("\xff", "\x00"), false},
		{"minus one node, long", state("\xd1\xff\xff", "\x00"), false},
		{"user state", state("\x01", "\x01", good, "x"), false},
		{"an odd address", state("\x01", "\x00", fields("Addr", text("\x01\x02"), "Vsn", sixVersions)), false},
		{"a struct as a list", []byte("\x06\x93\x01\x00\xc3"), false},
		{"deeply nested", state("\x01", "\x00",
			"\x82"+text("New")+strings.Repeat("\x91", 100)+"\x01"+text("Vsn")+sixVersions), false},
	} {
		if err := inspectStream(tt.message); tt.ok != (err == nil) || err != nil && !errors.Is(err, errMessage) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func compound(parts ...string) string {
	b := []byte{messageCompound, byte(len(parts))}
	for _, p := range parts {
		b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
	}
	return string(b) + strings.Join(parts, "")
}

func TestInspectPacket(t *testing.T) {
	ping, user := "\x00\x80", "\x08x"
	crc := func(s string) string { return "\x0c\x00\x00\x00\x00" + s }
	for _, tt := range []struct {
		name, message string
		ok            bool
	}{
		{"a ping", ping, true},
		{"alive", "\x04\x80", true},
		{"with a checksum", crc(ping), true},
		{"a compound", crc(compound(ping, "\x05\x80")), true},

		{"empty", "", false},
		{"compressed", "\x09\x80", false},
		{"a user message", user, false},
		{"a state", "\x06\x80", false},
		{"unknown", "\xf4\x80", false},
		{"hidden in a compound", compound(ping, user), false},
		{"a compound in a compound", compound(compound(ping)), false},
		{"two checksums", crc(crc(ping)), false},
		{"only a checksum", "\x0c\x00\x00\x00\x00", false},
		{"an empty part", compound(ping, ""), false},
		{"a compound cut short", compound(ping, ping)[:5], false},
		{"a part cut short", compound(ping, ping)[:7], false},
		{"a compound of nothing", "\x07", false},
	} {
		if err := inspectPacket([]byte(tt.message)); tt.ok != (err == nil) || err != nil && !errors.Is(err, errMessage) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// FuzzLibraryBehindInspection gives the library whatever passes the inspection. It must not end the
// process: with the inspection taken out, the seeds alone do.
func FuzzLibraryBehindInspection(f *testing.F) {
	good := nodeState(sixVersions)
	for _, seed := range [][]byte{
		state("\x01", "\x00", good), state("\x01", "\x00", nodeState("\xa0")),
		state("\x01", "\x00", nodeState("\xa3\x01\x05\x02")),
		[]byte("\x09" + fields("Algo", "\x00", "Buf", text("\x00\x03\x02"))), []byte("\x08" + fields("UserMsgLen", "\xff")),
		{messagePing, 0x80}, {messageError, 0x80},
		[]byte(compound("\x00\x80", "\x04"+nodeState(sixVersions))), []byte("\x04" + nodeState("\xa1\x01")),
	} {
		f.Add(seed)
	}
	library := newBareLibrary(f)
	f.Fuzz(func(t *testing.T, message []byte) {
		if inspectPacket(message) == nil {
			library.packets <- &memberlist.Packet{
				Buf: slices.Clone(message), From: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, Timestamp: time.Now(),
			}
		}
		if inspectStream(message) == nil {
			library.stream(t, message)
		}
	})
}

// bareLibrary is a member list whose transport hands on whatever a test gives it and sends nothing.
type bareLibrary struct {
	packets chan *memberlist.Packet
	streams chan net.Conn
}

func newBareLibrary(f *testing.F) *bareLibrary {
	f.Helper()
	b := &bareLibrary{packets: make(chan *memberlist.Packet), streams: make(chan net.Conn)}
	logger := newLibraryLog(discard())
	m := &members{
		logger: discard(), problems: &problems{
			logger: discard(), seen: make(map[problemKey]*Problem),
		}, allowed: func(netip.Addr) bool {
			return true
		},
		self: full(), byID: make(map[string]*Member), conflicts: make(map[string]*addrConflict), changed: make(chan struct{}),
	}
	c := libraryConfig(full().ServerID, &transport{advertise: netip.MustParseAddrPort("127.0.0.1:7402")}, m, logger)
	c.Transport = b
	list, err := memberlist.Create(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := list.Shutdown(); err != nil {
			f.Error(err)
		}
	})
	return b
}

// stream has the library read a message and waits until it has done with it.
func (b *bareLibrary) stream(t *testing.T, message []byte) {
	near, far := net.Pipe()
	b.streams <- far
	if err := near.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = near.Write(message) // it may have hung up already
	answer := make([]byte, 1<<16)
	for {
		if _, err := near.Read(answer); err != nil {
			break
		}
	}
	near.Close()
}

func (b *bareLibrary) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.IPv4(127, 0, 0, 1).To4(), 7402, nil
}
func (b *bareLibrary) WriteTo([]byte, string) (time.Time, error) { return time.Now(), nil }
func (b *bareLibrary) PacketCh() <-chan *memberlist.Packet       { return b.packets }
func (b *bareLibrary) StreamCh() <-chan net.Conn                 { return b.streams }
func (b *bareLibrary) Shutdown() error                           { return nil }
func (b *bareLibrary) DialTimeout(addr string, _ time.Duration) (net.Conn, error) {
	return nil, fmt.Errorf("no way to %s", addr)
}
