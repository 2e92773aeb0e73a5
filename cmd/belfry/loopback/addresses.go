// Package loopback picks addresses for servers that a process starts beside itself.
package loopback

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
)

// Ports below those that the system gives to outgoing connections: one of these may be taken
// between the moment in which it is found free and that in which a server listens on it, or comes
// back to it.
const (
	portMin = 10_000
	portMax = 32_000
)

// Addresses gives out addresses for servers that are started later, or again at the same address.
// The zero value is ready. Its methods may be called from any goroutine.
type Addresses struct {
	mu   sync.Mutex
	next int // added to portMin
}

// Free returns an address on loopback without a listener, which it never returns again. The address
// is on a host that belongs to this process. So it is still free when its server starts, whatever
// other processes choose meanwhile. It fails once the ports are used up.
func (a *Addresses) Free() (string, error) { return a.FreeRow(1) }

// FreeRow is Free for so many ports in a row, of which it returns the first: a server takes those
// after its own unless it is told others.
func (a *Addresses) FreeRow(n int) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := os.Getpid() // at most 22 bits on Linux, where all of 127.0.0.0/8 is loopback
	host := fmt.Sprintf("127.%d.%d.%d", 64+id>>16&63, id>>8&255, id&255)
	for ; portMin+a.next+n <= portMax; a.next++ {
		taken := false
		for i := range n {
			taken = taken || !isFree(fmt.Sprintf("%s:%d", host, portMin+a.next+i))
		}
		if !taken {
			first := portMin + a.next
			a.next += n
			return fmt.Sprintf("%s:%d", host, first), nil
		}
	}
	return "", errors.New("there is no free port")
}

// isFree reports whether an address has no listener, neither for streams nor for packets; a
// listener on all hosts counts too. For streams it does not listen itself, because a process that
// is forked meanwhile would hold the address until it runs its own program. For packets there is no
// other way.
func isFree(address string) bool {
	if stream, err := net.Dial("tcp", address); !errors.Is(err, //nolint:noctx // on loopback there is nothing to wait for
		syscall.ECONNREFUSED) {
		if err == nil {
			_ = stream.Close() // it was only a question
		}
		return false
	}
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	packets, err := net.ListenPacket("udp", address) //nolint:noctx // as above
	return err == nil && packets.Close() == nil
}
