package lmstfy

import (
	"bytes"
	"encoding/binary"
	"math/big"
	"strings"
	"testing"
	"time"
)

func FuzzParseTimerMember(f *testing.F) {
	f.Add(unhex(f, memberHex))
	f.Add(unhex(f, "0100 61 0100 62 ffff 0100 63"))
	f.Add(unhex(f, "0300 6e73"))
	f.Fuzz(func(t *testing.T, member []byte) {
		m, err := ParseTimerMember(member)
		if err != nil {
			return
		}
		if again, err := m.Append(nil); err != nil || !bytes.Equal(again, member) {
			t.Errorf("%x is read as %+v and written as %x, %v", member, m, again, err)
		}
	})
}

func FuzzAppendTimerMember(f *testing.F) {
	f.Add("ns1", "q1", uint16(3), delayedID)
	f.Add("", "/", uint16(0), "\x00")
	f.Fuzz(func(t *testing.T, namespace, queue string, tries uint16, id string) {
		m := TimerMember{Namespace: namespace, Queue: queue, Tries: tries, ID: id}
		b, err := m.Append(nil)
		if refused := namespace == "" || queue == "" || id == "" || max(len(namespace), len(queue),
			len(id)) > 65535; refused != (err != nil) {
			t.Fatalf("%+v: that it cannot be written is %v, error is %v", m, refused, err)
		}
		if err != nil {
			return
		}
		if again, err := ParseTimerMember(b); err != nil || again != m {
			t.Errorf("%+v is written as %x and read as %+v, %v", m, b, again, err)
		}
	})
}

func FuzzParseElement(f *testing.F) {
	f.Add(unhex(f, elementHex))
	f.Add(unhex(f, "0100 0200 61"))
	f.Fuzz(func(t *testing.T, element []byte) {
		e, err := ParseElement(element)
		if err != nil {
			return
		}
		if again, err := e.Append(nil); err != nil || !bytes.Equal(again, element) {
			t.Errorf("%x is read as %+v and written as %x, %v", element, e, again, err)
		}
	})
}

// FuzzParseID compares with math/big, whose digits of base 32 are others.
func FuzzParseID(f *testing.F) {
	for _, id := range []string{delayedID, readyID, versionedID, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
		"8ZZZZZZZZZZZZZZZZZZZZZZZZZ", ""} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		got, err := ParseID(id)
		if err != nil {
			return
		}
		version := id[:len(id)-ulidChars]
		digits := strings.Map(func(c rune) rune {
			return rune("0123456789abcdefghijklmnopqrstuv"[strings.IndexRune(alphabet, c)])
		}, id[len(version):])
		number, ok := new(big.Int).SetString(digits, 32)
		if !ok || number.BitLen() > 128 {
			t.Fatalf("%q is no ULID, and was read as %+v", id, got)
		}
		b := number.FillBytes(make([]byte, 16))
		want := ID{
			Version: len(version),
			Created: time.UnixMilli(int64(binary.BigEndian.Uint64(b) >> 16)).UTC(),
			Delay:   time.Duration(binary.LittleEndian.Uint32(b[12:])) * time.Second,
		}
		if got != want {
			t.Errorf("%q is read as %+v, want %+v", id, got, want)
		}
	})
}

func FuzzBody(f *testing.F) {
	f.Add(versionedID, []byte(versionedValue))
	f.Add(delayedID, []byte("now"))
	f.Fuzz(func(t *testing.T, id string, value []byte) {
		body, attributes, err := Body(id, value)
		if err != nil && (body != nil || attributes != nil) {
			t.Errorf("%q, %q: %q and %v beside the error %v", id, value, body, attributes, err)
		}
	})
}
