package network

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
)

const (
	// blocks is the number of blocks of addresses, each of 1,024.
	blocks = 4096
	// placesMax is the number of nodes of a network, and of its clients.
	placesMax = 250
)

// kind is what an address of a block is for.
type kind byte

const (
	hosts      kind = iota // where nodes listen
	advertised             // where the proxies do, one for each node
	callers                // where the connections of clients come from
	others                 // the machine's own end of the bridge
)

// block is a range of addresses that belongs to one network at a time: 10.64.0.0/12 in namespaces,
// 127.128.0.0/10 on loopback, in parts of 1,024.
type block struct {
	number     int
	namespaces bool
	lock       net.Listener
}

// tried counts the blocks at which this process has looked.
var tried atomic.Int64 //nolint:gochecknoglobals // of the process, as what it forks is

// takeBlock finds a block that no other network of this machine uses, and to which no route leads.
// The start of the search depends on the process, so two processes do not compete for the same
// block. It continues after the last block, because a process that was forked before a network was
// closed holds its sockets until it runs its own program.
func takeBlock(ctx context.Context, namespaces bool) (*block, error) {
	var routes []netip.Prefix
	if namespaces {
		var err error
		if routes, err = routed(); err != nil {
			return nil, err
		}
	}
	for range blocks {
		b := &block{number: (os.Getpid() + int(tried.Add(1))) % blocks, namespaces: namespaces}
		if b.overlaps(routes) || b.take(ctx) != nil {
			continue
		}
		return b, nil
	}
	return nil, errors.New("every block of private addresses is in use, or has a route")
}

// take makes the block this process's. The kernel gives it back when the process ends, however that
// happens.
func (b *block) take(ctx context.Context) error {
	var config net.ListenConfig
	lock, err := config.Listen(ctx, "unix", fmt.Sprintf("@belfry-jepsen-%d", b.number))
	if err != nil {
		return fmt.Errorf("block %d belongs to another run: %w", b.number, err)
	}
	b.lock = lock
	return nil
}

// prefix returns all addresses of the block.
func (b *block) prefix() netip.Prefix {
	high := byte(b.number / 64) //nolint:gosec // below 64
	first := netip.AddrFrom4([4]byte{127, 128 + high, byte(b.number%64) * 4, 0})
	if b.namespaces {
		first = netip.AddrFrom4([4]byte{10, 64 + high, byte(b.number%64) * 4, 0})
	}
	return netip.PrefixFrom(first, 22)
}

// part returns the addresses of a kind.
func (b *block) part(k kind) netip.Prefix { return netip.PrefixFrom(b.address(k, 0), 24) }

// address returns the address of a kind with a number.
func (b *block) address(k kind, number int) netip.Addr {
	a := b.prefix().Addr().As4()
	a[2] += byte(k)
	a[3] = byte(number) //nolint:gosec // at most placesMax
	return netip.AddrFrom4(a)
}

func (b *block) overlaps(routes []netip.Prefix) bool {
	for _, r := range routes {
		if r.Overlaps(b.prefix()) {
			return true
		}
	}
	return false
}

// release lets others have the block.
func (b *block) release() error { return b.lock.Close() }

// routed returns where this machine has routes to, apart from the default one.
func routed() ([]netip.Prefix, error) {
	text, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return nil, fmt.Errorf("looking for private addresses that are free: %w", err)
	}
	var routes []netip.Prefix
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 || fields[0] == "Iface" {
			continue
		}
		to, err := kernelAddr(fields[1])
		mask, maskErr := kernelAddr(fields[7])
		if err := errors.Join(err, maskErr); err != nil {
			return nil, fmt.Errorf("reading the route %q: %w", lines.Text(), err)
		}
		bits := mask.As4()
		if ones, _ := net.IPMask(bits[:]).Size(); ones > 0 {
			routes = append(routes, netip.PrefixFrom(to, ones))
		}
	}
	return routes, nil
}

// kernelAddr reads an IPv4 address as the files in /proc write it: a number in hexadecimal, in the
// order of bytes of the machine.
func kernelAddr(text string) (netip.Addr, error) {
	raw, err := hex.DecodeString(text)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q is no address: %w", text, err)
	}
	if len(raw) != 4 {
		return netip.Addr{}, fmt.Errorf("%q is no address of four bytes", text)
	}
	var a [4]byte
	binary.NativeEndian.PutUint32(a[:], binary.BigEndian.Uint32(raw))
	return netip.AddrFrom4(a), nil
}
