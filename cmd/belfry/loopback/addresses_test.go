package loopback

import (
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"testing"
)

// TestAddresses: no address is given out twice, whichever caller asks, nor one where a program
// listens.
func TestAddresses(t *testing.T) {
	var a Addresses
	first := free(t, &a)
	host, port, err := net.SplitHostPort(first)
	if err != nil || !net.ParseIP(host).IsLoopback() || port != fmt.Sprint(portMin) {
		t.Fatalf("the first address is %s: %v", first, err)
	}
	streams, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, portMin+1))
	if err != nil {
		t.Fatal(err)
	}
	defer streams.Close()
	packets, err := net.ListenPacket("udp", //nolint:noctx // on loopback there is nothing to wait for
		fmt.Sprintf("%s:%d", host, portMin+2))
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	given := make(chan string, 20)
	var asking sync.WaitGroup
	for range cap(given) {
		asking.Go(func() { given <- free(t, &a) })
	}
	asking.Wait()
	close(given)
	seen := map[string]bool{first: true, streams.Addr().String(): true, packets.LocalAddr().String(): true}
	for address := range given {
		if seen[address] {
			t.Errorf("%s was given out, which is taken", address)
		}
		seen[address] = true
	}
	row, err := a.FreeRow(3)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ = net.SplitHostPort(row)
	if _, next, _ := net.SplitHostPort(free(t, &a)); atoi(t, next) != atoi(t, port)+3 {
		t.Errorf("after three in a row from %s on %s was given out", port, next)
	}
	a.next = portMax - portMin
	if address, err := a.Free(); err == nil {
		t.Errorf("%s is a port of outgoing connections", address)
	}
}

func atoi(t *testing.T, port string) int {
	t.Helper()
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Error(err)
	}
	return n
}

func free(t *testing.T, a *Addresses) string {
	t.Helper()
	address, err := a.Free()
	if err != nil {
		t.Error(err)
	}
	return address
}

// TestAddressesWhileProcessesStart: at what was picked a server can listen, also while other tests
// start processes.
func TestAddressesWhileProcessesStart(t *testing.T) {
	var a Addresses
	done := make(chan struct{})
	var starting sync.WaitGroup
	starting.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := exec.CommandContext(t.Context(), "true").Run(); err != nil {
				t.Error(err)
			}
		}
	})
	for range 300 {
		address := free(t, &a)
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Error(err)
			continue
		}
		l.Close()
	}
	close(done)
	starting.Wait()
}
