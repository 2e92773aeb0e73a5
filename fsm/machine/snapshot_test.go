package machine

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/fsmtest"
	"github.com/google/go-cmp/cmp"
)

func TestApplyRefusesWhatItCannotRead(t *testing.T) {
	good := codec.AppendEntry(nil, 5, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: fsmtest.EveryCommand()})})
	body := good[:len(good)-4]
	for name, tc := range map[string]struct {
		entry []byte
		want  error
	}{
		"empty":         {nil, fsm.ErrDamaged},
		"flipped bit":   {append([]byte{good[0] ^ 1}, good[1:]...), fsm.ErrDamaged},
		"cut short":     {fsmtest.Sealed(body[:len(body)/2]), fsm.ErrDamaged},
		"bytes behind":  {fsmtest.Sealed(append(bytes.Clone(body), 0)), fsm.ErrDamaged},
		"later version": {fsmtest.Sealed(append([]byte{byte(fsm.LatestFormat) + 1}, body[1:]...)), fsm.ErrVersion},
		"unknown kind":  {codec.AppendEntry(nil, 5, [][]byte{{0, 0, 1, 2, 99, 0}}), fsm.ErrVersion},
		"flag of 2": {codec.AppendEntry(nil, 5, [][]byte{{0, 0, 1, 5, byte(fsm.KindCancel), 3, 0, 0, 2}}),
			fsm.ErrDamaged},
		"command too big": {codec.AppendEntry(nil, 5, [][]byte{{0, 0, 1, 4, byte(fsm.KindExpire), 2, 0, 0}}), fsm.ErrDamaged},
		"count too big":   {codec.AppendEntry(nil, 5, [][]byte{{0, 0, 0xff, 0xff, 3, 0}}), fsm.ErrDamaged},
	} {
		m := New(fsm.Config{})
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
	m := New(fsm.Config{Seed: 1})
	index := uint64(0)
	now := fsm.Time(1_800_000_000_000_000_000)
	step := func(id string, commands ...fsm.Command) []fsm.Result {
		index++
		now += fsm.Time(time.Millisecond)
		results, err := m.Apply(index, codec.AppendEntry(nil, now, [][]byte{codec.AppendRequest(nil, &fsm.Request{
			Caller: "ns", ID: id, Commands: commands,
		})}))
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	full := *fsmtest.EveryCommand()[0].(*fsm.Put)
	full.Queue, full.Partition, full.Partitions = "orders", 0, 1
	step("", &fsm.Configure{
		Queue: "orders", Partitions: 1, Version: 1,
		Settings: fsm.Settings{PutsPerSecond: 1000, TTR: time.Hour, Overdue: fsm.DropOverdue},
	})
	step("one", &full, &fsm.Put{
		Queue: "orders", Partitions: 1, Body: []byte("now"),
	}, &fsm.Put{Queue: "orders", Partitions: 1, ID: "x"},
		&fsm.Put{
			Queue: "orders", Partitions: 1, ID: "dead", Given: fsm.GivenTTL, TTL: time.Hour,
		}, &fsm.Put{Queue: "mail", Partitions: 1, ID: "y"})
	grants := step("two", &fsm.Reserve{Queues: []string{"orders"}, Max: 3})[0].Grants
	refs := make([]fsm.Ref, len(grants))
	for i, g := range grants {
		refs[i] = fsm.Ref{Queue: g.Queue, Partition: g.Partition, Serial: g.Serial, Fence: g.Fence}
	}
	step("three", &fsm.Ack{Ref: refs[1]}, &fsm.Nack{
		Ref: refs[2], Dead: true, Error: "gave up",
	}, &fsm.Cancel{Queue: "mail", ID: "y"})
	step("", &fsm.Open{Queue: "parts", Partition: 2, Partitions: 4})
	now += fsm.Time(time.Hour * 2 / 3)
	step("", &fsm.Lead{Grace: time.Second})
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
	restored, err := Restore(fsm.Config{Seed: 2}, bytes.NewReader(raw))
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
			if _, err := Restore(fsm.Config{}, bytes.NewReader(damaged)); !errors.Is(err, fsm.ErrDamaged) &&
				!errors.Is(err, fsm.ErrVersion) {
				t.Fatalf("byte %d, bit %d: error %v", i, bit, err)
			}
		}
	}
	for cut := range raw {
		if _, err := Restore(fsm.Config{}, bytes.NewReader(raw[:cut])); !errors.Is(err, fsm.ErrDamaged) {
			t.Fatalf("cut at %d: error %v", cut, err)
		}
	}
	if _, err := Restore(fsm.Config{}, bytes.NewReader(append(bytes.Clone(raw), 0))); !errors.Is(err, fsm.ErrDamaged) {
		t.Errorf("a byte too many: error %v", err)
	}
}

// TestSnapshotWhileApplying writes a snapshot after the machine has gone on: the bytes must be
// those of the moment it was taken.
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
		now += fsm.Time(rng.Int64N(int64(time.Minute)))
		commands := []fsm.Command{
			&fsm.Put{
				Queue: "orders", Partitions: 1, Body: make([]byte, rng.IntN(300)), Given: fsm.GivenDelay,
				Delay: time.Duration(rng.Int64N(int64(time.Minute))),
			},
			&fsm.Reserve{
				Queues: []string{"orders", "mail"}, Max: 2, TTR: time.Minute,
			}, &fsm.Cancel{Queue: "orders", ID: "order-42", Force: true},
		}
		if _, err := m.Apply(index, codec.AppendEntry(nil, now, [][]byte{codec.AppendRequest(nil, &fsm.Request{
			ID: hex.EncodeToString([]byte{byte(index)}), Commands: commands,
		})})); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-done; !bytes.Equal(got, want) {
		t.Error("a snapshot shows what was changed after it was taken")
	}
	m.Release(s)
}

func FuzzApply(f *testing.F) {
	for _, c := range fsmtest.EveryCommand() {
		entry := codec.AppendEntry(nil, 1_800_000_000_000_000_001, [][]byte{codec.AppendRequest(nil, &fsm.Request{
			ID: "r", Commands: []fsm.Command{c, c},
		})})
		f.Add(entry[:len(entry)-4])
	}
	for _, c := range append(fsmtest.EveryKeyCommand(), fsmtest.EveryScheduleCommand()...) {
		entry := codec.AppendEntryIn(nil, 4, 1_800_000_000_000_000_001, [][]byte{codec.AppendRequestIn(nil, 4, &fsm.Request{
			ID: "r", Commands: []fsm.Command{c, c},
		})})
		f.Add(entry[:len(entry)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m := populated(t)
		entry := fsmtest.Sealed(body)
		results, err := m.Apply(m.Index()+1, entry)
		if err != nil {
			return
		}
		stamp, requests, err := codec.DecodeEntry(entry)
		if err != nil {
			t.Fatalf("Apply reads what DecodeEntry does not: %v", err)
		}
		n, format := 0, fsm.FormatOf(entry)
		var encoded [][]byte
		for i := range requests {
			n += len(requests[i].Commands)
			encoded = append(encoded, codec.AppendRequestIn(nil, format, &requests[i]))
		}
		if n != len(results) {
			t.Fatalf("%d commands, %d results", n, len(results))
		}
		again, twice, err := codec.DecodeEntry(codec.AppendEntryIn(nil, format, stamp, encoded))
		if err != nil || again != stamp || !cmp.Equal(requests, twice) {
			t.Fatalf("the entry does not survive encoding: %v", err)
		}
		if restored, err := Restore(fsm.Config{}, bytes.NewReader(snapshotBytes(t, m))); err != nil ||
			restored.Digest() != m.Digest() {
			t.Fatalf("the state does not survive a snapshot: %v", err)
		}
	})
}

func FuzzRestore(f *testing.F) {
	raw := snapshotBytes(f, populated(f))
	f.Add(raw[:len(raw)-4])
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := Restore(fsm.Config{}, bytes.NewReader(fsmtest.Sealed(body)))
		if err != nil {
			return
		}
		if again, err := Restore(fsm.Config{}, bytes.NewReader(snapshotBytes(t, m))); err != nil ||
			again.Digest() != m.Digest() {
			t.Fatalf("what was restored does not survive a snapshot: %v", err)
		}
	})
}
