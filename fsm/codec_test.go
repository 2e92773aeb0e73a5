package fsm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "rewrite the golden files; only for a new version of a format")

// everyCommand has one command of each kind with every field set to a value of its own.
func everyCommand() []Command {
	ref := Ref{Queue: "ns/orders", Partition: 2, Serial: 300, Fence: 70000}
	return []Command{
		&Put{
			Queue: "ns/orders", Partition: 1, Partitions: 3, ID: "order-42", Again: true,
			Given: GivenDelay | GivenTTR | GivenPriority | GivenMaxAttempts | GivenRetryDelays | GivenTTL,
			Delay: 30 * time.Minute, TTR: time.Minute, TTL: 24 * time.Hour, Priority: -7, MaxAttempts: 5,
			RetryDelays: []time.Duration{0, 2 * time.Minute, 10 * time.Minute},
			Headers:     []Header{{"a", "1"}, {"traceparent", "00-ab-cd-01"}}, Body: []byte("close order 42"),
		},
		&Reserve{Queues: []string{"orders", "ns/mail"}, Max: 10, TTR: time.Minute, Bytes: 4 << 20},
		&Ack{ref},
		&Nack{Ref: ref, Delay: 10 * time.Second, DelayGiven: true, Error: "smtp 421", Dead: true},
		&Release{Ref: ref, Delay: time.Second},
		&Extend{Ref: ref, TTR: time.Minute},
		&Cancel{Queue: "orders", ID: "order-42", Force: true},
		&Reschedule{Queue: "orders", ID: "1-7", Given: GivenDueAt, Delay: 0, DueAt: 1_800_000_000_123_456_789},
		&Redrive{Queue: "orders", IDs: []string{"a", "0-9"}, Max: 3},
		&Purge{Queue: "orders", States: Set(Delayed, Dead), Max: 100},
		&Configure{Queue: "orders", Partition: 1, Partitions: 3, Version: 9, Settings: everySetting()},
		&Open{Queue: "orders", Partition: 1, Partitions: 3},
		&DeleteQueue{Queue: "orders"},
		&Expire{},
		&Lead{Grace: time.Second},
		&ResetClock{To: 1_800_000_000_123_456_789, Grace: time.Second},
		everyImport(),
	}
}

func everySetting() Settings {
	return Settings{
		TTR: 40 * time.Second, MaxAttempts: 9, MaxAttemptsSet: true, RetryDelays: []time.Duration{time.Second, time.Hour},
		DedupWindow: 20 * time.Minute, DedupWindowSet: true, DedupForever: true, MaxInFlight: 11, MaxJobs: 12, MaxBytes: 13,
		PutsPerSecond: 14, Overdue: SpreadOverdue, OverduePeriod: time.Minute, OverdueAfter: time.Hour, ExpireToDead: true,
		Paused: true, PausedUntil: 15,
	}
}

// golden compares got with a file in testdata, as hex lines that a diff can show.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	var text strings.Builder
	for chunk := range slices.Chunk(got, 32) {
		text.WriteString(hex.EncodeToString(chunk) + "\n")
	}
	file := filepath.Join("testdata", name+".hex")
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("%s has changed: logs and snapshots on disk could no longer be read (-file +now):\n%s", file, diff)
	}
}

func TestGoldenCommands(t *testing.T) {
	seen := map[Kind]bool{}
	for _, c := range everyCommand() {
		seen[c.Kind()] = true
		name := "command_" + reflect.TypeOf(c).Elem().Name()
		entry := AppendEntry(nil, 1_800_000_000_000_000_001, [][]byte{
			AppendRequest(nil, &Request{Caller: "ns", ID: "request", Commands: []Command{c}}),
		})
		golden(t, name, entry)
		stamp, requests, err := DecodeEntry(entry)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := []Request{{Caller: "ns", ID: "request", Commands: []Command{c}}}
		if diff := cmp.Diff(want, requests); diff != "" || stamp != 1_800_000_000_000_000_001 {
			t.Errorf("%s came back changed, stamp %d (-want +got):\n%s", name, stamp, diff)
		}
	}
	for kind := KindPut; kind <= KindImport; kind++ {
		if !seen[kind] && (kind <= KindResetClock || kind == KindImport) {
			t.Errorf("kind %d has no golden file", kind)
		}
	}
}

// TestDecodedCommandsStandAlone: commands of one kind in one entry share nothing.
func TestDecodedCommandsStandAlone(t *testing.T) {
	want := []Request{
		{ID: "first", Commands: append(everyCommand(), &Put{Queue: "a", Body: []byte("a")}, &Put{Queue: "b", Body: []byte("b")})},
		{ID: "second", Commands: []Command{&Put{Queue: "c", Body: []byte("c")}, &Ack{Ref: Ref{Queue: "c", Serial: 3}}, &Ack{Ref: Ref{Queue: "d", Serial: 4}}}},
	}
	entry := AppendEntry(nil, 7, [][]byte{AppendRequest(nil, &want[0]), AppendRequest(nil, &want[1])})
	_, got, err := DecodeEntry(entry)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEveryFieldIsEncoded fails when a field is added to a command and forgotten in the codec.
func TestEveryFieldIsEncoded(t *testing.T) {
	for _, c := range everyCommand() {
		v := reflect.ValueOf(c).Elem()
		requireSet(t, v.Type().Name(), v, c.Kind() == KindPut || c.Kind() == KindReschedule)
	}
	requireSet(t, "Settings", reflect.ValueOf(everySetting()), false)
}

// requireSet reports fields that are zero, so that a round trip would not notice that they are lost. Delay and DueAt exclude each other.
func requireSet(t *testing.T, path string, v reflect.Value, eitherDue bool) {
	t.Helper()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if !v.Type().Field(i).IsExported() {
			continue
		}
		if f.Kind() == reflect.Struct {
			requireSet(t, path+"."+name, f, false)
		} else if excluded := eitherDue && (name == "DueAt" || name == "Delay"); f.IsZero() && !excluded {
			t.Errorf("%s.%s is not set in what is encoded here", path, name)
		}
	}
}

func TestNegativeTimesCountAsZero(t *testing.T) {
	entry := AppendEntry(nil, 5, [][]byte{AppendRequest(nil, &Request{Commands: []Command{
		&Put{Queue: "q", Partitions: 1, Given: GivenDelay | GivenTTR | GivenTTL | GivenRetryDelays, Delay: -1, TTR: -1, TTL: -1, RetryDelays: []time.Duration{-1}},
		&Put{Queue: "q", Partitions: 1, Given: GivenDueAt, DueAt: -1},
		&Reserve{TTR: -1}, &Nack{Delay: -1}, &Release{Delay: -1}, &Extend{TTR: -1}, &Reschedule{Delay: -1, DueAt: -1}, &Lead{Grace: -1},
		&Configure{Settings: Settings{TTR: -1, DedupWindow: -1, OverduePeriod: -1, OverdueAfter: -1, PausedUntil: -1}},
	}})})
	if _, err := New(Config{}).Apply(1, entry); err != nil {
		t.Error(err)
	}
}

func TestContentHashes(t *testing.T) {
	put := everyCommand()[0].(*Put)
	content, request := ContentHash(put), RequestHash(&Request{Commands: everyCommand()[:KindLead]}) // as many as there were
	golden(t, "content_hash", content[:])
	golden(t, "request_hash", request[:])

	other := *put
	other.Queue, other.ID, other.Again, other.Partition, other.Partitions = "q", "i", false, 0, 1
	if ContentHash(&other) != content {
		t.Error("queue, id or again are part of the content")
	}
	other = *put // which has a traceparent
	other.Headers = []Header{put.Headers[0], {"tracestate", "a=1"}}
	if ContentHash(&other) != content || len(other.Headers) != 2 || other.Headers[1].Name != "tracestate" {
		t.Errorf("the trace is part of the content, or its headers are lost: %v", other.Headers)
	}
	for name, change := range map[string]func(*Put){
		"body":          func(p *Put) { p.Body = []byte("close order 43") },
		"delay":         func(p *Put) { p.Delay++ },
		"omitted delay": func(p *Put) { p.Given &^= GivenDelay },
		"header":        func(p *Put) { p.Headers = p.Headers[1:] },
		"ttr":           func(p *Put) { p.TTR++ },
		"ttl":           func(p *Put) { p.TTL++ },
		"priority":      func(p *Put) { p.Priority++ },
		"attempts":      func(p *Put) { p.MaxAttempts++ },
		"retry delays":  func(p *Put) { p.RetryDelays = p.RetryDelays[1:] },
	} {
		changed := *put
		if change(&changed); ContentHash(&changed) == content {
			t.Errorf("%s is not part of the content", name)
		}
	}
}

// sealed puts a checksum behind b, so that a test reaches the decoder behind it.
func sealed(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(b), crc32.Checksum(b, castagnoli))
}

func TestApplyRefusesWhatItCannotRead(t *testing.T) {
	good := AppendEntry(nil, 5, [][]byte{AppendRequest(nil, &Request{Commands: everyCommand()})})
	body := good[:len(good)-4]
	for name, tc := range map[string]struct {
		entry []byte
		want  error
	}{
		"empty":           {nil, ErrDamaged},
		"flipped bit":     {append([]byte{good[0] ^ 1}, good[1:]...), ErrDamaged},
		"cut short":       {sealed(body[:len(body)/2]), ErrDamaged},
		"bytes behind":    {sealed(append(bytes.Clone(body), 0)), ErrDamaged},
		"later version":   {sealed(append([]byte{byte(LatestFormat) + 1}, body[1:]...)), ErrVersion},
		"unknown kind":    {AppendEntry(nil, 5, [][]byte{{0, 0, 1, 2, 99, 0}}), ErrVersion},
		"flag of 2":       {AppendEntry(nil, 5, [][]byte{{0, 0, 1, 5, byte(KindCancel), 3, 0, 0, 2}}), ErrDamaged},
		"command too big": {AppendEntry(nil, 5, [][]byte{{0, 0, 1, 4, byte(KindExpire), 2, 0, 0}}), ErrDamaged},
		"count too big":   {AppendEntry(nil, 5, [][]byte{{0, 0, 0xff, 0xff, 3, 0}}), ErrDamaged},
	} {
		m := New(Config{})
		before := m.Digest()
		if _, err := m.Apply(1, tc.entry); !errors.Is(err, tc.want) {
			t.Errorf("%s: error %v, should wrap %v", name, err, tc.want)
		}
		if m.Digest() != before || m.Index() != 0 {
			t.Errorf("%s: the state changed", name)
		}
	}
}

// populated returns a machine that holds something of everything.
func populated(t testing.TB) *Machine {
	m := New(Config{Seed: 1})
	index := uint64(0)
	now := Time(1_800_000_000_000_000_000)
	step := func(id string, commands ...Command) []Result {
		index++
		now += Time(time.Millisecond)
		results, err := m.Apply(index, AppendEntry(nil, now, [][]byte{AppendRequest(nil, &Request{Caller: "ns", ID: id, Commands: commands})}))
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	full := *everyCommand()[0].(*Put)
	full.Queue, full.Partition, full.Partitions = "orders", 0, 1
	step("", &Configure{Queue: "orders", Partitions: 1, Version: 1, Settings: Settings{PutsPerSecond: 1000, TTR: time.Hour, Overdue: DropOverdue}})
	step("one", &full, &Put{Queue: "orders", Partitions: 1, Body: []byte("now")}, &Put{Queue: "orders", Partitions: 1, ID: "x"},
		&Put{Queue: "orders", Partitions: 1, ID: "dead", Given: GivenTTL, TTL: time.Hour}, &Put{Queue: "mail", Partitions: 1, ID: "y"})
	grants := step("two", &Reserve{Queues: []string{"orders"}, Max: 3})[0].Grants
	refs := make([]Ref, len(grants))
	for i, g := range grants {
		refs[i] = Ref{g.Queue, g.Partition, g.Serial, g.Fence}
	}
	step("three", &Ack{refs[1]}, &Nack{Ref: refs[2], Dead: true, Error: "gave up"}, &Cancel{Queue: "mail", ID: "y"})
	step("", &Open{Queue: "parts", Partition: 2, Partitions: 4})
	now += Time(time.Hour * 2 / 3)
	step("", &Lead{Grace: time.Second})
	return m
}

func snapshotBytes(t testing.TB, m *Machine) []byte {
	t.Helper()
	s := m.Snapshot()
	defer m.Release(s)
	var b bytes.Buffer
	n, err := s.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("WriteTo wrote %d bytes and said %d, %v", b.Len(), n, err)
	}
	return b.Bytes()
}

func TestGoldenSnapshot(t *testing.T) {
	m := populated(t)
	raw := snapshotBytes(t, m)
	golden(t, "snapshot", raw)
	golden(t, "snapshot_digest", binary.BigEndian.AppendUint64(nil, m.Digest()))
	restored, err := Restore(Config{Seed: 2}, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if restored.Index() != m.Index() || restored.Clock() != m.Clock() || restored.Digest() != m.Digest() {
		t.Errorf("index %d, clock %d, digest %x came back as %d, %d, %x",
			m.Index(), m.Clock(), m.Digest(), restored.Index(), restored.Clock(), restored.Digest())
	}
	if again := snapshotBytes(t, restored); len(again) != len(raw) {
		t.Errorf("a snapshot of %d bytes, restored, gives one of %d", len(raw), len(again))
	}
}

func TestRestoreDetectsEveryFlip(t *testing.T) {
	raw := snapshotBytes(t, populated(t))
	for i := range raw {
		for _, bit := range []byte{1, 16, 128} {
			damaged := bytes.Clone(raw)
			damaged[i] ^= bit
			if _, err := Restore(Config{}, bytes.NewReader(damaged)); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
				t.Fatalf("byte %d, bit %d: error %v", i, bit, err)
			}
		}
	}
	for cut := range raw {
		if _, err := Restore(Config{}, bytes.NewReader(raw[:cut])); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut at %d: error %v", cut, err)
		}
	}
	if _, err := Restore(Config{}, bytes.NewReader(append(bytes.Clone(raw), 0))); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte too many: error %v", err)
	}
}

// TestSnapshotWhileApplying writes a snapshot after the machine has gone on: the bytes must be those of the moment it was taken.
func TestSnapshotWhileApplying(t *testing.T) {
	m := populated(t)
	want := snapshotBytes(t, m)
	s := m.Snapshot()
	done := make(chan []byte)
	go func() {
		var b bytes.Buffer
		if _, err := s.WriteTo(&b); err != nil {
			t.Error(err)
		}
		done <- b.Bytes()
	}()
	rng := rand.New(rand.NewPCG(4, 4))
	index, now := m.Index(), m.Clock()
	for range 300 {
		index++
		now += Time(rng.Int64N(int64(time.Minute)))
		commands := []Command{
			&Put{Queue: "orders", Partitions: 1, Body: make([]byte, rng.IntN(300)), Given: GivenDelay, Delay: time.Duration(rng.Int64N(int64(time.Minute)))},
			&Reserve{Queues: []string{"orders", "mail"}, Max: 2, TTR: time.Minute}, &Cancel{Queue: "orders", ID: "order-42", Force: true},
		}
		if _, err := m.Apply(index, AppendEntry(nil, now, [][]byte{AppendRequest(nil, &Request{ID: hex.EncodeToString([]byte{byte(index)}), Commands: commands})})); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-done; !bytes.Equal(got, want) {
		t.Error("a snapshot shows what was changed after it was taken")
	}
	m.Release(s)
}

func FuzzApply(f *testing.F) {
	for _, c := range everyCommand() {
		entry := AppendEntry(nil, 1_800_000_000_000_000_001, [][]byte{AppendRequest(nil, &Request{ID: "r", Commands: []Command{c, c}})})
		f.Add(entry[:len(entry)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m := populated(t)
		entry := sealed(body)
		results, err := m.Apply(m.Index()+1, entry)
		if err != nil {
			return
		}
		stamp, requests, err := DecodeEntry(entry)
		if err != nil {
			t.Fatalf("Apply reads what DecodeEntry does not: %v", err)
		}
		n := 0
		var encoded [][]byte
		for i := range requests {
			n += len(requests[i].Commands)
			encoded = append(encoded, AppendRequest(nil, &requests[i]))
		}
		if n != len(results) {
			t.Fatalf("%d commands, %d results", n, len(results))
		}
		again, twice, err := DecodeEntry(AppendEntry(nil, stamp, encoded))
		if err != nil || again != stamp || !cmp.Equal(requests, twice) {
			t.Fatalf("the entry does not survive encoding: %v", err)
		}
		if restored, err := Restore(Config{}, bytes.NewReader(snapshotBytes(t, m))); err != nil || restored.Digest() != m.Digest() {
			t.Fatalf("the state does not survive a snapshot: %v", err)
		}
	})
}

func FuzzRestore(f *testing.F) {
	raw := snapshotBytes(f, populated(f))
	f.Add(raw[:len(raw)-4])
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := Restore(Config{}, bytes.NewReader(sealed(body)))
		if err != nil {
			return
		}
		if again, err := Restore(Config{}, bytes.NewReader(snapshotBytes(t, m))); err != nil || again.Digest() != m.Digest() {
			t.Fatalf("what was restored does not survive a snapshot: %v", err)
		}
	})
}

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
		{"+0-1", 0, 0, false}, {"0-+1", 0, 0, false}, {"0--1", 0, 0, false}, {"0-", 0, 0, false}, {"-1", 0, 0, false}, {"order-42", 0, 0, false},
	} {
		if p, s, ok := ParseID(tc.id); p != tc.partition || s != tc.serial || ok != tc.ok {
			t.Errorf("ParseID(%q) = %d, %d, %v", tc.id, p, s, ok)
		}
	}
}
