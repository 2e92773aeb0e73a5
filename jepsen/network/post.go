package network

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/belfrydb/belfry/wakeup"
)

const (
	// packetBytesMax is the largest packet of UDP.
	packetBytesMax = 64 << 10
	// packetsMax bounds the packets that wait for one node. What is more is lost, as in a router.
	packetsMax = 1024
	// packetBufferBytes is what the kernel is asked to keep of packets that come in a burst.
	packetBufferBytes = 1 << 20
)

// packet is a packet on its way.
type packet struct {
	due    time.Time
	number uint64 // packets that are due together leave as they came
	from   *member
	link   *link
	bytes  []byte
}

// box is a heap of packets, the one that is due first on top.
type box []packet

// Len implements heap.Interface.
func (b box) Len() int { return len(b) }

// Less implements heap.Interface.
func (b box) Less(i, j int) bool {
	return cmp.Or(b[i].due.Compare(b[j].due), cmp.Compare(b[i].number, b[j].number)) < 0
}

// Swap implements heap.Interface.
func (b box) Swap(i, j int) { b[i], b[j] = b[j], b[i] }

// Push implements heap.Interface.
func (b *box) Push(x any) { *b = append(*b, x.(packet)) }

// Pop implements heap.Interface.
func (b *box) Pop() any {
	last := len(*b) - 1
	p := (*b)[last]
	(*b)[last] = packet{}
	*b = (*b)[:last]
	return p
}

// post takes the packets that are sent to a node and hands them on. Its socket is the node's face:
// what the node sends to others leaves from there too.
type post struct {
	network *Network
	to      *member
	socket  *net.UDPConn
	more    wakeup.Signal // sent when a packet was put in

	mu      sync.Mutex
	waiting box
	taken   uint64
	held    map[*link]uint64 // the number of the packet that waits for the next one of its link
}

// listenForPackets carries a node's packets until Close.
func (n *Network) listenForPackets(ctx context.Context, m *member) error {
	var config net.ListenConfig
	at := netip.AddrPortFrom(m.face, Gossip.Port())
	socket, err := config.ListenPacket(ctx, "udp4", at.String())
	if err != nil {
		return err
	}
	p := &post{network: n, to: m, socket: socket.(*net.UDPConn), more: wakeup.New(), held: map[*link]uint64{}}
	m.packets = p
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.onClose(func() error {
		cancel()
		return p.socket.Close()
	})
	if err := p.socket.SetReadBuffer(packetBufferBytes); err != nil {
		return fmt.Errorf("making room for packets: %w", err)
	}
	n.running.Go(p.collect)
	n.running.Go(func() { p.deliver(life) })
	return nil
}

// collect takes packets until the socket is closed.
func (p *post) collect() {
	buf := make([]byte, packetBytesMax)
	for {
		count, from, err := p.socket.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the kernel says that an earlier packet had no receiver
		}
		p.network.mu.Lock()
		sender := p.network.byHost[from.Addr().Unmap()]
		p.network.mu.Unlock()
		if sender != nil && sender != p.to { // only members gossip
			p.take(packet{from: sender, link: p.network.table.link(way{sender.name, p.to.name, Gossip}),
				bytes: bytes.Clone(buf[:count])})
		}
	}
}

// take does to a packet what the rule says, and puts it in.
func (p *post) take(in packet) {
	rule, _ := in.link.now()
	dice := p.network.dice
	if p.lost(in.link, rule) || dice.happens(rule.Loss) {
		return
	}
	dice.corrupt(rule, in.bytes)
	copies := 1
	if dice.happens(rule.Duplicate) {
		copies = 2
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for range copies {
		in.due = in.link.reserve(len(in.bytes)).Add(dice.latency(rule))
		if _, waits := p.held[in.link]; !waits && dice.happens(rule.Reorder) {
			late := in
			late.due = late.due.Add(p.network.reorderWait)
			if number, ok := p.put(late); ok {
				p.held[in.link] = number
			}
			continue
		}
		if _, ok := p.put(in); ok {
			p.release(in)
		}
	}
	p.more.Send()
}

// put lets a packet wait until it is due, or loses it if there is no room. The caller holds mu.
func (p *post) put(in packet) (number uint64, ok bool) {
	if len(p.waiting) == packetsMax {
		return 0, false
	}
	p.taken++
	in.number = p.taken
	heap.Push(&p.waiting, in)
	return in.number, true
}

// release lets the packet that was held back leave right after the one that overtook it. The caller
// holds mu.
func (p *post) release(overtook packet) {
	number, waits := p.held[overtook.link]
	if !waits {
		return
	}
	delete(p.held, overtook.link)
	for i := range p.waiting {
		if late := &p.waiting[i]; late.number == number {
			late.due = overtook.due
			p.taken++
			late.number = p.taken
			heap.Fix(&p.waiting, i)
			return
		}
	}
}

// lost reports whether a rule lets no packet pass.
func (p *post) lost(l *link, rule Rule) bool {
	return rule.Reset || rule.Mute || p.network.silent(l.way, rule)
}

// deliver hands on what is due until ctx ends.
func (p *post) deliver(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, wait := p.next()
		if next.link != nil {
			p.send(next)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-p.more:
		case <-ctx.Done():
			return
		}
	}
}

// next takes out the packet that is due, or says how long nothing is.
func (p *post) next() (packet, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		return packet{}, time.Hour
	}
	if wait := time.Until(p.waiting[0].due); wait > 0 {
		return packet{}, wait
	}
	out := heap.Pop(&p.waiting).(packet)
	if number, waits := p.held[out.link]; waits && number == out.number {
		delete(p.held, out.link) // nothing overtook it in time
	}
	return out, 0
}

// send passes on a packet as its sender. It does not check that a receiver gets it.
func (p *post) send(out packet) {
	if rule, _ := out.link.now(); p.lost(out.link, rule) {
		return
	}
	_, _ = out.from.packets.socket.WriteToUDPAddrPort(out.bytes, netip.AddrPortFrom(p.to.host, Gossip.Port()))
}
