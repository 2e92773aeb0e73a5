package fsm

import (
	"bytes"
	"testing"
	"time"
)

func TestSmoke(t *testing.T) {
	m := New(Config{})
	idx := uint64(0)
	apply := func(at Time, cmds ...Command) []Result {
		idx++
		r, err := m.Apply(idx, AppendEntry(nil, at, [][]byte{AppendRequest(nil, &Request{Commands: cmds})}))
		if err != nil {
			t.Fatal(err)
		}
		snap := m.Snapshot()
		var b bytes.Buffer
		if _, err := snap.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		m.Release(snap)
		n, err := Restore(Config{}, &b)
		if err != nil {
			t.Fatal(err)
		}
		if n.Digest() != m.Digest() {
			t.Fatal("digest")
		}
		m = n
		return r
	}
	t0 := Time(1e18)
	r := apply(t0, &Put{Queue: "a", Partitions: 1, ID: "x", Given: GivenDelay, Delay: time.Second, Body: []byte("hi")}, &Put{Queue: "a", Partitions: 1, Body: []byte("now")})
	t.Logf("%+v", r)
	r = apply(t0.Add(time.Second), &Reserve{Queues: []string{"a"}, Max: 5})
	t.Logf("%+v", r)
	g := r[0].Grants
	if len(g) != 2 {
		t.Fatal("grants")
	}
	r = apply(t0.Add(2*time.Second), &Ack{Ref{"a", 0, g[0].Serial, g[0].Fence}}, &Nack{Ref: Ref{"a", 0, g[1].Serial, g[1].Fence}, Error: "boo"})
	t.Logf("%+v", r)
	r = apply(t0.Add(3*time.Second), &Ack{Ref{"a", 0, g[0].Serial, g[0].Fence}}, &Put{Queue: "a", Partitions: 1, ID: "x", Given: GivenDelay, Delay: time.Second, Body: []byte("hi")})
	t.Logf("%+v", r)
	q, _ := m.Queue("a", m.Clock())
	t.Logf("%+v", q)
	t.Logf("%+v", m.Stats())
}
