package machine

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// TestUsageWithoutAQueue: what is removed together with its queue is not counted any more, what the
// namespace's others hold is.
func TestUsageWithoutAQueue(t *testing.T) {
	m := New(fsm.Config{})
	index := uint64(0)
	apply := func(commands ...fsm.Command) {
		index++
		if _, err := m.Apply(index,
			codec.AppendEntry(nil, fsm.Time(index),
				[][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: commands})})); err != nil {
			t.Fatal(err)
		}
	}
	put := func(queue string) fsm.Command { return &fsm.Put{Queue: queue, Partitions: 1, Body: []byte("four")} }
	apply(put("ns/a"), put("ns/a"), put("ns/b"), put("other/a"), put("plain"))
	apply(&fsm.Reserve{Queues: []string{"ns/a", "ns/b"}, Max: 3})
	for _, step := range []struct {
		does fsm.Command
		want fsm.Usage
	}{
		{&fsm.Expire{}, fsm.Usage{Jobs: 3, Bytes: 12, InFlight: 3}},
		{&fsm.DeleteQueue{Queue: "ns/a"}, fsm.Usage{Jobs: 1, Bytes: 4, InFlight: 1}},
		{put("ns/a"), fsm.Usage{Jobs: 2, Bytes: 8, InFlight: 1}},
		{&fsm.DeleteQueue{Queue: "ns/a"}, fsm.Usage{Jobs: 1, Bytes: 4, InFlight: 1}},
		{&fsm.DeleteQueue{Queue: "ns/b"}, fsm.Usage{}},
	} {
		if apply(step.does); m.UsageOf("ns") != step.want {
			t.Errorf("after %T: %+v, want %+v", step.does, m.UsageOf("ns"), step.want)
		}
	}
	if got := m.UsageOf("other").Jobs; got != 1 {
		t.Errorf("the other namespace has %d jobs, want 1", got)
	}
}

// TestKnownReserve: a remembered Reserve is nothing but a repeat while a lease that it granted is
// live. Then it is carried out anew, and counts.
func TestKnownReserve(t *testing.T) {
	m := New(fsm.Config{})
	index := uint64(0)
	apply := func(req *fsm.Request) []fsm.Result {
		index++
		results, err := m.Apply(index, codec.AppendEntry(nil, fsm.Time(index), [][]byte{codec.AppendRequest(nil, req)}))
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	reserve := &fsm.Request{ID: "r", Commands: []fsm.Command{&fsm.Reserve{Queues: []string{"ns/a"}, Max: 3}}}
	apply(&fsm.Request{Commands: []fsm.Command{&fsm.Put{Queue: "ns/a", Partitions: 1}}})
	if m.Knows(reserve, fsm.Time(index)) {
		t.Error("it is known before it was made")
	}
	grants := apply(reserve)[0].Grants
	if len(grants) != 1 || !m.Knows(reserve, fsm.Time(index)) {
		t.Errorf("%d leases were granted, and the request is not known", len(grants))
	}
	apply(&fsm.Request{Commands: []fsm.Command{&fsm.Release{Ref: fsm.Ref{
		Queue: "ns/a", Serial: grants[0].Serial, Fence: grants[0].Fence,
	}}}})
	if m.Knows(reserve, fsm.Time(index)) {
		t.Error("it is taken for a repeat, and will be granted a lease anew")
	}
}

// TestQueuesOf: queues are counted by namespace, those without one together, as they come and go,
// and in what a snapshot restores.
func TestQueuesOf(t *testing.T) {
	m := New(fsm.Config{QueuesMax: 9})
	index := uint64(0)
	apply := func(commands ...fsm.Command) {
		index++
		if _, err := m.Apply(index,
			codec.AppendEntry(nil, fsm.Time(index),
				[][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: commands})})); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(m *Machine, what string, plain, ns, other int) {
		t.Helper()
		held, most := m.QueueRoom()
		if m.QueuesOf("") != plain || m.QueuesOf("ns") != ns || m.QueuesOf("other") != other || held != plain+ns+other ||
			most != 9 {
			t.Errorf("%s: %d, %d and %d queues, %d of %d in all", what, m.QueuesOf(""), m.QueuesOf("ns"), m.QueuesOf("other"),
				held, most)
		}
	}
	put := func(queue string) fsm.Command { return &fsm.Put{Queue: queue, Partitions: 1} }
	apply(put("a"), put("b"), put("ns/a"), put("ns/a"), put("ns/b"), put("ns/c"), &fsm.Open{
		Queue: "other/a", Partitions: 2,
	}, &fsm.Open{Queue: "c", Partitions: 1})
	expect(m, "made", 3, 3, 1)
	apply(&fsm.DeleteQueue{Queue: "b"}, &fsm.DeleteQueue{Queue: "ns/b"}, &fsm.DeleteQueue{Queue: "other/a"},
		&fsm.DeleteQueue{Queue: "never was"})
	expect(m, "deleted", 2, 2, 0)
	var b bytes.Buffer
	s := m.Snapshot()
	if _, err := s.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	m.Release(s)
	restored, err := Restore(fsm.Config{QueuesMax: 9}, &b)
	if err != nil {
		t.Fatal(err)
	}
	expect(restored, "restored", 2, 2, 0)
}

// TestQueuesToCreate: a request creates the queues that its puts name and that are not there,
// unless the machine answers it without carrying it out.
func TestQueuesToCreate(t *testing.T) {
	m := New(fsm.Config{})
	put := func(queue string, partitions uint32) fsm.Command {
		return &fsm.Put{Queue: queue, Partitions: partitions}
	}
	old := "00000000-0000-7000-8000-000000000000"
	first := &fsm.Request{Caller: "c", ID: "r", Commands: []fsm.Command{put("a", 1), put("b", 1), put("b", 1)}}
	now := fsm.Time(time.Hour)
	for _, step := range []struct {
		apply, ask *fsm.Request
		at         fsm.Time
		want       []string
	}{
		{nil, first, now, []string{"a", "b", "b"}},
		{first, first, now, nil},
		{&fsm.Request{Commands: []fsm.Command{&fsm.DeleteQueue{Queue: "a"}}}, first, now, nil}, // it is remembered
		{nil, &fsm.Request{Commands: first.Commands}, now, []string{"a"}},
		{nil, &fsm.Request{Caller: "another", ID: "r", Commands: first.Commands}, now, []string{"a"}},
		{nil, first, now.Add(fsm.RequestWindow), nil},
		{nil, first, now.Add(fsm.RequestWindow + 1), []string{"a"}},
		{nil, &fsm.Request{ID: old, Commands: first.Commands}, now, nil},
		{nil, &fsm.Request{Commands: []fsm.Command{put("c", 2), &fsm.Put{
			Queue: "d", Partition: 1, Partitions: 1,
		}, &fsm.Reserve{Queues: []string{"e"}}, &fsm.Purge{Queue: "f"}}}, now, nil},
		{&fsm.Request{Commands: []fsm.Command{&fsm.DeleteQueue{Queue: "b"}, &fsm.Import{Step: fsm.ImportBegin}}},
			&fsm.Request{Commands: first.Commands}, now, nil},
	} {
		if step.apply != nil {
			if _, err := m.Apply(m.Index()+1,
				codec.AppendEntry(nil, now, [][]byte{codec.AppendRequest(nil, step.apply)})); err != nil {
				t.Fatal(err)
			}
		}
		if got := m.QueuesToCreate(step.ask, step.at); !slices.Equal(got, step.want) {
			t.Errorf("%+v makes %q, want %q", step.ask, got, step.want)
		}
	}
}
