package fsm

import (
	"bytes"
	"slices"
	"testing"
	"time"
)

// TestUsageWithoutAQueue: what is removed together with its queue is not counted any more, what the namespace's others hold is.
func TestUsageWithoutAQueue(t *testing.T) {
	m := New(Config{})
	index := uint64(0)
	apply := func(commands ...Command) {
		index++
		if _, err := m.Apply(index, AppendEntry(nil, Time(index), [][]byte{AppendRequest(nil, &Request{Commands: commands})})); err != nil {
			t.Fatal(err)
		}
	}
	put := func(queue string) Command { return &Put{Queue: queue, Partitions: 1, Body: []byte("four")} }
	apply(put("ns/a"), put("ns/a"), put("ns/b"), put("other/a"), put("plain"))
	apply(&Reserve{Queues: []string{"ns/a", "ns/b"}, Max: 3})
	for _, step := range []struct {
		does Command
		want Usage
	}{
		{&Expire{}, Usage{Jobs: 3, Bytes: 12, InFlight: 3}},
		{&DeleteQueue{Queue: "ns/a"}, Usage{Jobs: 1, Bytes: 4, InFlight: 1}},
		{put("ns/a"), Usage{Jobs: 2, Bytes: 8, InFlight: 1}},
		{&DeleteQueue{Queue: "ns/a"}, Usage{Jobs: 1, Bytes: 4, InFlight: 1}},
		{&DeleteQueue{Queue: "ns/b"}, Usage{}},
	} {
		if apply(step.does); m.UsageOf("ns") != step.want {
			t.Errorf("after %T: %+v, want %+v", step.does, m.UsageOf("ns"), step.want)
		}
	}
	if len(m.queues.spaces) != 1 || m.UsageOf("other").Jobs != 1 {
		t.Errorf("%d namespaces are held, want one with a job", len(m.queues.spaces))
	}
}

// TestKnownReserve: a remembered Reserve is nothing but a repeat while a lease that it granted is live. Then it is carried out anew, and counts.
func TestKnownReserve(t *testing.T) {
	m := New(Config{})
	index := uint64(0)
	apply := func(req *Request) []Result {
		index++
		results, err := m.Apply(index, AppendEntry(nil, Time(index), [][]byte{AppendRequest(nil, req)}))
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	reserve := &Request{ID: "r", Commands: []Command{&Reserve{Queues: []string{"ns/a"}, Max: 3}}}
	apply(&Request{Commands: []Command{&Put{Queue: "ns/a", Partitions: 1}}})
	if m.Knows(reserve, Time(index)) {
		t.Error("it is known before it was made")
	}
	grants := apply(reserve)[0].Grants
	if len(grants) != 1 || !m.Knows(reserve, Time(index)) {
		t.Errorf("%d leases were granted, and the request is not known", len(grants))
	}
	apply(&Request{Commands: []Command{&Release{Ref: Ref{Queue: "ns/a", Serial: grants[0].Serial, Fence: grants[0].Fence}}}})
	if m.Knows(reserve, Time(index)) {
		t.Error("it is taken for a repeat, and will be granted a lease anew")
	}
}

// TestQueuesOf: queues are counted by namespace, those without one together, as they come and go, and in what a snapshot restores.
func TestQueuesOf(t *testing.T) {
	m := New(Config{QueuesMax: 9})
	index := uint64(0)
	apply := func(commands ...Command) {
		index++
		if _, err := m.Apply(index, AppendEntry(nil, Time(index), [][]byte{AppendRequest(nil, &Request{Commands: commands})})); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(m *Machine, what string, plain, ns, other int) {
		t.Helper()
		held, most := m.QueueRoom()
		if m.QueuesOf("") != plain || m.QueuesOf("ns") != ns || m.QueuesOf("other") != other || held != plain+ns+other || most != 9 {
			t.Errorf("%s: %d, %d and %d queues, %d of %d in all", what, m.QueuesOf(""), m.QueuesOf("ns"), m.QueuesOf("other"), held, most)
		}
	}
	put := func(queue string) Command { return &Put{Queue: queue, Partitions: 1} }
	apply(put("a"), put("b"), put("ns/a"), put("ns/a"), put("ns/b"), put("ns/c"), &Open{Queue: "other/a", Partitions: 2}, &Open{Queue: "c", Partitions: 1})
	expect(m, "made", 3, 3, 1)
	apply(&DeleteQueue{Queue: "b"}, &DeleteQueue{Queue: "ns/b"}, &DeleteQueue{Queue: "other/a"}, &DeleteQueue{Queue: "never was"})
	expect(m, "deleted", 2, 2, 0)
	var b bytes.Buffer
	s := m.Snapshot()
	if _, err := s.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	m.Release(s)
	restored, err := Restore(Config{QueuesMax: 9}, &b)
	if err != nil {
		t.Fatal(err)
	}
	expect(restored, "restored", 2, 2, 0)
}

// TestQueuesToCreate: a request creates the queues that its puts name and that are not there,
// unless the machine answers it without carrying it out.
func TestQueuesToCreate(t *testing.T) {
	m := New(Config{})
	put := func(queue string, partitions uint32) Command { return &Put{Queue: queue, Partitions: partitions} }
	old := "00000000-0000-7000-8000-000000000000"
	first := &Request{Caller: "c", ID: "r", Commands: []Command{put("a", 1), put("b", 1), put("b", 1)}}
	now := Time(time.Hour)
	for _, step := range []struct {
		apply, ask *Request
		at         Time
		want       []string
	}{
		{nil, first, now, []string{"a", "b", "b"}},
		{first, first, now, nil},
		{&Request{Commands: []Command{&DeleteQueue{Queue: "a"}}}, first, now, nil}, // it is remembered
		{nil, &Request{Commands: first.Commands}, now, []string{"a"}},
		{nil, &Request{Caller: "another", ID: "r", Commands: first.Commands}, now, []string{"a"}},
		{nil, first, now.Add(RequestWindow), nil},
		{nil, first, now.Add(RequestWindow + 1), []string{"a"}},
		{nil, &Request{ID: old, Commands: first.Commands}, now, nil},
		{nil, &Request{Commands: []Command{put("c", 2), &Put{Queue: "d", Partition: 1, Partitions: 1}, &Reserve{Queues: []string{"e"}}, &Purge{Queue: "f"}}}, now, nil},
		{&Request{Commands: []Command{&DeleteQueue{Queue: "b"}, &Import{Step: ImportBegin}}}, &Request{Commands: first.Commands}, now, nil},
	} {
		if step.apply != nil {
			if _, err := m.Apply(m.Index()+1, AppendEntry(nil, now, [][]byte{AppendRequest(nil, step.apply)})); err != nil {
				t.Fatal(err)
			}
		}
		if got := m.QueuesToCreate(step.ask, step.at); !slices.Equal(got, step.want) {
			t.Errorf("%+v makes %q, want %q", step.ask, got, step.want)
		}
	}
}
