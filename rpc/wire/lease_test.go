package wire

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
)

// goldenLeases are tokens that are out in the world: they must be written and read like this for
// ever.
var goldenLeases = []struct {
	ref   fsm.Ref
	token string
}{
	{fsm.Ref{Queue: "orders", Partition: 0, Serial: 1, Fence: 2}, "AQZvcmRlcnMAAQJuYNkq"},
	{fsm.Ref{Queue: "billing/invoices", Partition: 3, Serial: 300, Fence: 70_000},
		"ARBiaWxsaW5nL2ludm9pY2VzA6wC8KIE6ucXmw"},
	{fsm.Ref{Queue: "q", Partition: math.MaxUint32, Serial: math.MaxUint64, Fence: math.MaxUint64},
		"AQFx_____w____________8B____________AY4JMqE"},
}

func TestLeaseGolden(t *testing.T) {
	for _, g := range goldenLeases {
		if got := FormatLease(g.ref); got != g.token {
			t.Errorf("formatLease(%+v) = %q; want %q", g.ref, got, g.token)
		}
		got, err := ParseLease(g.token)
		if diff := cmp.Diff(g.ref, got); err != nil || diff != "" {
			t.Errorf("parseLease(%q): %v\n%s", g.token, err, diff)
		}
	}
}

func TestLeaseOfLongestQueueFits(t *testing.T) {
	ref := fsm.Ref{Queue: strings.Repeat("q", 256), Partition: math.MaxUint32, Serial: math.MaxUint64,
		Fence: math.MaxUint64}
	token := FormatLease(ref)
	if got, err := ParseLease(token); err != nil || got != ref {
		t.Fatalf("parseLease of %d bytes: %+v, %v", len(token), got, err)
	}
}

// TestLeaseDamage changes every bit of a token: none of the results may be taken for a lease.
func TestLeaseDamage(t *testing.T) {
	token := FormatLease(fsm.Ref{Queue: "orders", Serial: 7, Fence: 9})
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(raw) * 8 {
		damaged := append([]byte{}, raw...)
		damaged[i/8] ^= 1 << (i % 8)
		if ref, err := ParseLease(base64.RawURLEncoding.EncodeToString(damaged)); err == nil {
			t.Errorf("bit %d flipped is read as %+v", i, ref)
		}
	}
	for i := range raw {
		if ref, err := ParseLease(base64.RawURLEncoding.EncodeToString(raw[:i])); err == nil {
			t.Errorf("%d bytes are read as %+v", i, ref)
		}
	}
	for _, text := range []string{"", "x", "lease", token + "=", token + "A", " " + token, token + "\n",
		strings.Repeat("A", 5000), "日本"} {
		if ref, err := ParseLease(text); err == nil {
			t.Errorf("%q is read as %+v", text, ref)
		}
	}
}

// TestLeaseHasOneForm: what says the same as a token in another form is none.
func TestLeaseHasOneForm(t *testing.T) {
	sealed := func(payload ...byte) string {
		sum := crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli))
		return base64.RawURLEncoding.EncodeToString(binary.LittleEndian.AppendUint32(payload, sum))
	}
	want := fsm.Ref{Queue: "q", Partition: 0, Serial: 3, Fence: 128}
	if ref, err := ParseLease(sealed(leaseVersion, 1, 'q', 0, 3, 0x80, 1)); err != nil || ref != want {
		t.Fatalf("%+v, %v", ref, err)
	}
	for _, payload := range [][]byte{
		{leaseVersion, 0x81, 0, 'q', 0, 3, 0x80, 1}, {leaseVersion, 1, 'q', 0x80, 0, 3, 0x80, 1},
		{leaseVersion, 1, 'q', 0, 0x83, 0x80, 0, 0x80, 1},
		{leaseVersion, 1, 'q', 0, 3, 0x80, 0x81, 0}, {leaseVersion, 1, 'q', 0, 3, 0x80, 1, 0},
		{leaseVersion, 1, 'q', 0x80, 0x80, 0x80, 0x80, 0x10, 3, 0x80, 1},
	} {
		if ref, err := ParseLease(sealed(payload...)); err == nil {
			t.Errorf("%x is read as %+v", payload, ref)
		}
	}
	token := FormatLease(want)
	for _, text := range []string{token[:4] + "\n" + token[4:], "\r\n" + token, token + "\n"} {
		if ref, err := ParseLease(text); err == nil {
			t.Errorf("%q is read as %+v", text, ref)
		}
	}
}

func FuzzParseLease(f *testing.F) {
	for _, g := range goldenLeases {
		f.Add(g.token)
	}
	f.Add("")
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, token string) {
		ref, err := ParseLease(token)
		if err == nil && FormatLease(ref) != token {
			t.Fatalf("%q is read as %+v, which is written %q", token, ref, FormatLease(ref))
		}
	})
}
