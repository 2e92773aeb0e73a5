package fsm

import "testing"

func FuzzParseID(f *testing.F) {
	for _, id := range []string{"0-1", "3-18446744073709551615", "00-1", "+1-2", "1-", "-", "order-42", "4294967296-1"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if partition, serial, ok := ParseID(id); ok && FormatID(partition, serial) != id {
			t.Errorf("%q is read as %d, %d", id, partition, serial)
		}
	})
}

func TestParseID(t *testing.T) {
	for _, tc := range []struct {
		id        string
		partition uint32
		serial    uint64
		ok        bool
	}{
		{"0-1", 0, 1, true},
		{"4294967295-18446744073709551615", 4294967295, 18446744073709551615, true},
		{"4294967296-1", 0, 0, false}, {"0-18446744073709551616", 0, 0, false}, {"00-1", 0, 0, false}, {"0-01", 0, 0, false},
		{"+0-1", 0, 0, false}, {"0-+1", 0, 0, false}, {"0--1", 0, 0, false}, {"0-", 0, 0, false}, {"-1", 0, 0, false},
		{"order-42", 0, 0, false},
	} {
		if p, s, ok := ParseID(tc.id); p != tc.partition || s != tc.serial || ok != tc.ok {
			t.Errorf("ParseID(%q) = %d, %d, %v", tc.id, p, s, ok)
		}
	}
}
