package network

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The test's own program is a process of a node when one of these variables is set.
const (
	helperDial = "NETWORK_TEST_DIAL" // dials the address, and copies what it hears to its output
	helperEcho = "NETWORK_TEST_ECHO" // listens at the address, sends back what it hears, and prints each caller
	// listens at the first of two addresses, sends the third word to the second one again and again,
	// and prints what comes.
	helperGossip = "NETWORK_TEST_GOSSIP"
)

func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Getenv(helperDial) != "":
		err = dialAndCopy(os.Getenv(helperDial))
	case os.Getenv(helperEcho) != "":
		err = echo(os.Getenv(helperEcho))
	case os.Getenv(helperGossip) != "":
		err = gossip(strings.Fields(os.Getenv(helperGossip)))
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func dialAndCopy(address string) error {
	conn, err := net.Dial("tcp", address) //nolint:noctx // the test ends this process
	if err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, conn)
	return err
}

func echo(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		fmt.Println(conn.RemoteAddr().(*net.TCPAddr).IP)
		go func() { _, _ = io.Copy(conn, conn) }() // until the test ends
	}
}

func gossip(words []string) error {
	socket, err := net.ListenPacket("udp4", words[0]) //nolint:noctx // the test ends this process
	if err != nil {
		return err
	}
	to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(words[1]))
	go func() {
		for range time.Tick(time.Millisecond) {
			_, _ = socket.WriteTo([]byte(words[2]), to) // the other one may not be there yet
		}
	}()
	buf := make([]byte, 100)
	for {
		n, from, err := socket.ReadFrom(buf)
		if err != nil {
			return err
		}
		fmt.Println(from, string(buf[:n]))
	}
}

// process runs a process of a node, as the variable says, until the test ends, and returns the
// lines that it prints.
func (w *world) process(node, variable, value string) <-chan string {
	w.t.Helper()
	program, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), variable+"="+value)
	if err := w.Wrap(node, cmd); err != nil {
		w.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	lines := make(chan string, 16)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for in := bufio.NewScanner(out); in.Scan(); {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
			}
		}
		_ = cmd.Wait() // it is killed, or the connection was
	}()
	w.t.Cleanup(func() {
		cancel()
		<-ended
	})
	return lines
}
