package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
)

// Ports below those that the system gives to outgoing connections: a port of these may be taken between the moment in which it is found free and that in
// which a server listens on it, or comes back to it.
const (
	portMin = 10_000
	portMax = 32_000
)

// addresses gives out addresses for servers, none of them twice.
type addresses struct {
	mu   sync.Mutex
	next int // added to portMin
}

// free returns an address on loopback that nobody listens on. Its host belongs to this process, so that no other one picks it meanwhile.
func (a *addresses) free() (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := os.Getpid() // at most 22 bits on Linux, where all of 127.0.0.0/8 is loopback
	host := fmt.Sprintf("127.%d.%d.%d", 64+id>>16&63, id>>8&255, id&255)
	for portMin+a.next < portMax {
		address := fmt.Sprintf("%s:%d", host, portMin+a.next)
		a.next++
		if isFree(address) {
			return address, nil
		}
	}
	return "", errors.New("there is no free port")
}

// isFree reports whether nobody listens at an address, neither for streams nor for packets.
func isFree(address string) bool {
	if stream, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) { //nolint:noctx // on loopback there is nothing to wait for
		if err == nil {
			_ = stream.Close() // it was only a question
		}
		return false
	}
	packets, err := net.ListenPacket("udp", address) //nolint:noctx // as above
	return err == nil && packets.Close() == nil
}
