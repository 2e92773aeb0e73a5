package beanstalkd_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/rpc"
)

// TestAnnouncedBodies: many connections announce large bodies and send little of them. They take
// memory for what they sent only, and others are served.
func TestAnnouncedBodies(t *testing.T) {
	const connections, bodyBytes, perConnection = 500, 1 << 20, 64 << 10
	address, _ := serveWith(t, rpc.Beanstalkd{JobBytesMax: bodyBytes})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range connections {
		c := connect(t, address)
		begun := fmt.Sprintf("list-tube-used\r\nput 1 0 60 %d\r\n%s", bodyBytes, strings.Repeat("x", 100))
		if _, err := io.WriteString(c, begun); err != nil {
			t.Fatal(err)
		}
		if got, err := c.receive(); got != "USING default" {
			t.Fatal(got, err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := int64(after.HeapAlloc) - int64(before.HeapAlloc) //nolint:gosec // far less
	if used > connections*perConnection {
		t.Errorf("%d connections take %d bytes", connections, used)
	}
	c := connect(t, address)
	id := c.put(t, "1 0 60", "x")
	c.expect(t, "reserve", "RESERVED "+id+" 1 x")
}

// TestFloodWithoutReading: a client that sends commands and takes no answer is held back, and others are
// served.
func TestFloodWithoutReading(t *testing.T) {
	address, _ := serve(t)
	flood := connect(t, address)
	sent := make(chan error, 1)
	go func() {
		command := strings.Repeat("list-tubes-watched\r\n", 1000)
		for {
			if _, err := io.WriteString(flood, command); err != nil {
				sent <- err
				return
			}
		}
	}()
	c := connect(t, address)
	for range 1000 {
		id := c.put(t, "1 0 60", "x")
		c.expect(t, "reserve", "RESERVED "+id+" 1 x")
		c.expect(t, "delete "+id, "DELETED")
	}
	if err := flood.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err == nil {
		t.Error("a closed connection takes commands")
	}
}

// TestNoise: random bytes end no server, and what follows a line end is answered.
func TestNoise(t *testing.T) {
	address, _ := serve(t)
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(1, seed))
		c := connect(t, address)
		noise := make([]byte, random.IntN(2000))
		for i := range noise {
			noise[i] = byte(random.Uint32()) //nolint:gosec // any byte
		}
		text := "x" + strings.NewReplacer("\n", ".", "\r", ".").Replace(string(noise)) + "\r\nlist-tube-used\r\n"
		go func() { _, _ = io.WriteString(c, text) }() // the answers tell
		for {
			got, err := c.receive()
			if err != nil {
				t.Fatalf("noise of seed %d: %v", seed, err)
			}
			if got == "USING default" {
				break
			}
		}
	}
}

// FuzzConnection: whatever a client sends, the server goes on.
func FuzzConnection(f *testing.F) {
	for _, text := range []string{
		"put 1 0 60 3\r\nabc\r\nreserve-with-timeout 0\r\n", "use a\r\nkick 5\r\nstats\r\n", "watch b\r\nignore default\r\n",
		"put 1 0 60 3\r\nabcdef\r\n", "delete 1024\r\nstats-job 1024\r\nreserve-job 1024\r\nquit\r\n",
		"pause-tube default 1\r\n",
	} {
		f.Add([]byte(text))
	}
	address, _ := serve(f)
	f.Fuzz(func(t *testing.T, sent []byte) {
		c := connect(t, address)
		if _, err := c.Write(append(sent, "\r\nquit\r\n"...)); err != nil {
			return // a body that was too large
		}
		_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		other := connect(t, address)
		other.expect(t, "list-tube-used", "USING default")
	})
}
