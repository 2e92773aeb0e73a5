package fsm

import "testing"

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
