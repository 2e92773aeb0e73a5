package redisson

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMembersOfRedisson(t *testing.T) {
	for _, v := range readVectors(t).Members {
		packed, want := unhex(t, v.Member), v.unpacked(t)
		if got := want.Append([]byte("x")); string(got) != "x"+string(packed) {
			t.Errorf("%s %s: packed as %x, want 78%s", v.Format, v.Codec, got, v.Member)
		}
		for _, majority := range []Generation{Unknown, Old, New} { // it does not matter where only one generation fits
			got, err := ParseMember(packed, majority)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s %s among %s ones: error %v, member (-want +got):\n%s", v.Format, v.Codec, majority, err, diff)
			}
		}
	}
}

// TestMembersOfLiveClients: what clients of three releases wrote is read, and written again.
func TestMembersOfLiveClients(t *testing.T) {
	for _, v := range []struct {
		release, member string
		generation      Generation
		codec           Codec
	}{
		{"4.7.0", "08739791d62298414006000000000000000368656c6cef", New, Kryo5String},
		{"4.7.0", "08154bfeaf9cd32d73050000000000000068656c6c6f", New, String},
		{"3.21.1", "084740ba666aec59ff06000000000000000368656c6cef", New, Kryo5String},
		{"3.13.6", "db0d2511e69dd8430800000000000000043e0568656c6c6f", Old, RiverString},
		{"3.13.6", "6314f7a4b1a2df43050000000000000068656c6c6f", Old, String},
	} {
		m, err := ParseMember(unhex(t, v.member), Unknown)
		if err != nil || m.Generation != v.generation {
			t.Errorf("%s: a member that is %s, error %v; want %s", v.release, m.Generation, err, v.generation)
		}
		if body, ok := v.codec.Decode(m.Payload); !ok || string(body) != "hello" {
			t.Errorf("%s: %s reads %q, %v", v.release, v.codec, body, ok)
		}
		if got := hex.EncodeToString(m.Append(nil)); got != v.member {
			t.Errorf("%s: packed again as %s, want %s", v.release, got, v.member)
		}
	}
}

// TestOldMemberThatNewClientsRead: the random begins with 07, which a new client takes for its
// length, and finds the rest in place. The generation is still the old one, and both read the same
// payload.
func TestOldMemberThatNewClientsRead(t *testing.T) {
	m, err := ParseMember(unhex(t, "07000000000000000600000000000000736e65616b79"), New)
	if err != nil || m.Generation != Old || string(m.Payload) != "sneaky" {
		t.Errorf("read as %s, payload %q, error %v", m.Generation, m.Payload, err)
	}
}

// TestAmbiguousMember: bytes that are a member of either generation belong to the majority.
func TestAmbiguousMember(t *testing.T) {
	packed := unhex(t, "08aabbccddeeff11010000000000000000")
	asNew := Member{Generation: New, Random: [8]byte(packed[1:]), Payload: []byte{}}
	asOld := Member{Generation: Old, Random: [8]byte(packed), Payload: []byte{0}}
	for majority, want := range map[Generation]Member{Unknown: asNew, New: asNew, Old: asOld} {
		got, err := ParseMember(packed, majority)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("among %s ones: error %v, member (-want +got):\n%s", majority, err, diff)
		}
		if again := got.Append(nil); !bytes.Equal(again, packed) {
			t.Errorf("among %s ones: packed again as %x", majority, again)
		}
	}
}

// TestOnlyOneKindOfMemberIsAmbiguous: whatever the length, no other member of one generation is one
// of the other too.
func TestOnlyOneKindOfMemberIsAmbiguous(t *testing.T) {
	for payload := range 5000 {
		b := Member{Generation: New, Payload: make([]byte, payload)}.Append(nil)
		// The length field of an old member takes in the last byte of the random and all but the
		// last of the new one's.
		binary.LittleEndian.PutUint64(b[8:], uint64(len(b)-16))
		m, err := ParseMember(b, New)
		if err != nil || m.Generation != Old && payload != 0 || m.Generation != New && payload == 0 {
			t.Fatalf("%d bytes of payload: %s, %v", payload, m.Generation, err)
		}
	}
}

func TestMalformedMembers(t *testing.T) {
	const random = "0001020304050607"
	for name, v := range map[string]struct{ member, want string }{
		"nothing": {"", "0 bytes are no member, which has at least 16"},
		"too short": {"08" + random + "05000000000000", "for an old one the payload has 1287 bytes but 0 follow, " +
			"for a new one it has at least 17 bytes"},
		"15 bytes":       {random + "00000000000000", "15 bytes are no member, which has at least 16"},
		"another length": {"09" + random + "0000000000000000", "for a new one it begins with 0x09, not 0x08"},
		"old, cut off": {"00" + random[2:] + "0600000000000000" + "68656c6c6f",
			"for an old one the payload has 6 bytes but 5 follow"},
		"new, cut off": {"08" + random + "0600000000000000" + "68656c6c6f",
			"for a new one the payload has 6 bytes but 5 follow"},
		"new, a byte more": {"08" + random + "0400000000000000" + "68656c6c6f",
			"for a new one the payload has 4 bytes but 5 follow"},
		"a negative length": {"08" + random + "ffffffffffffffff", "for a new one the payload has 18446744073709551615 " +
			"bytes but 0 follow"},
		"32 bits, new": {"08" + random + "05000000" + "68656c6c6f", "for a new one the payload has"},
		"big endian, new": {"08" + random + "0000000000000005" + "68656c6c6f",
			"for a new one the payload has 360287970189639680 bytes but 5 follow"},
		"big endian, old": {"c045000000000000" + "0000000000000005" + "68656c6c6f",
			"for an old one the payload has 360287970189639680 bytes but 5 follow"},
		"not a member, text": {hex.EncodeToString([]byte("put here by hand, in haste")), "begins with 0x70"},
	} {
		m, err := ParseMember(unhex(t, v.member), Unknown)
		if err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%s: member %+v, error %v; want it to say %q", name, m, err, v.want)
		}
	}
}

// TestMembersOfAGrowingNumberKeepOrder: Redis orders members of one due time by their bytes.
func TestMembersOfAGrowingNumberKeepOrder(t *testing.T) {
	var packed []string
	for i, payload := range []string{"a", "b", "c"} {
		m := Member{Generation: New, Payload: []byte(payload)}
		binary.BigEndian.PutUint64(m.Random[:], uint64(i+1))
		packed = append(packed, hex.EncodeToString(m.Append(nil)))
	}
	want := []string{"080000000000000001010000000000000061", "080000000000000002010000000000000062",
		"080000000000000003010000000000000063"}
	if diff := cmp.Diff(want, packed); diff != "" || !slices.IsSorted(packed) {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

func TestGenerations(t *testing.T) {
	for _, g := range []Generation{Old, New} {
		if got, err := ParseGeneration(g.String()); err != nil || got != g {
			t.Errorf("%s is read as %s, %v", g, got, err)
		}
	}
	for _, name := range []string{"", "unknown", "NEW", "3.21.1"} {
		if g, err := ParseGeneration(name); err == nil || g != Unknown {
			t.Errorf("%q is read as %s", name, g)
		}
	}
}

// FuzzMember parses any bytes, and packs and parses members of any content.
func FuzzMember(f *testing.F) {
	for _, v := range readVectors(f).Members {
		f.Add(unhex(f, v.Member), v.Format == "old")
	}
	f.Add(unhex(f, "08aabbccddeeff11010000000000000000"), true)
	f.Fuzz(func(t *testing.T, b []byte, old bool) {
		majority := New
		if old {
			majority = Old
		}
		if m, err := ParseMember(b, majority); err == nil && !bytes.Equal(m.Append(nil), b) {
			t.Errorf("%x is read as %+v, packed as %x", b, m, m.Append(nil))
		}
		if len(b) < randomBytes {
			return
		}
		want := Member{Generation: majority, Random: [randomBytes]byte(b), Payload: b[randomBytes:]}
		got, err := ParseMember(want.Append(nil), majority)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("error %v, member (-want +got):\n%s", err, diff)
		}
	})
}
