package peer

import (
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// BenchmarkFrames is what frames cost between two ends of a TCP connection: a small question with
// its answer, and one of the size in which Raft sends large messages. Exchanges with and without
// frames take turns, and their medians are compared.
func BenchmarkFrames(b *testing.B) {
	for _, size := range []int{300, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			ways := []func(net.Conn) net.Conn{func(conn net.Conn) net.Conn { return conn }, inFrames}
			var ends [2]net.Conn
			for i, wrap := range ways {
				ends[i] = wrap(answerer(b, size, wrap))
			}
			var took [2][]time.Duration
			question, answer := make([]byte, size), make([]byte, 100)
			b.SetBytes(2 * int64(size))
			b.ReportAllocs()
			for b.Loop() {
				for i, conn := range ends {
					start := time.Now()
					if _, err := conn.Write(question); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(conn, answer); err != nil {
						b.Fatal(err)
					}
					took[i] = append(took[i], time.Since(start))
				}
			}
			var medians [2]time.Duration
			for i := range took {
				slices.Sort(took[i])
				medians[i] = took[i][len(took[i])/2]
			}
			b.ReportMetric(float64(medians[0].Nanoseconds()), "plain-ns")
			b.ReportMetric(float64(medians[1].Nanoseconds()), "frames-ns")
			b.ReportMetric(float64(medians[1])/float64(medians[0]), "ratio")
		})
	}
}

// answerer returns a connection to a peer that answers each question of a size with 100 bytes.
func answerer(b *testing.B, size int, wrap func(net.Conn) net.Conn) net.Conn {
	b.Helper()
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			b.Error(err)
			close(accepted)
			return
		}
		accepted <- conn
		far, question := wrap(conn), make([]byte, size)
		for {
			if _, err := io.ReadFull(far, question); err != nil {
				return
			}
			if _, err := far.Write(question[:100]); err != nil {
				return
			}
		}
	}()
	conn, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	far, ok := <-accepted
	if !ok {
		b.FailNow()
	}
	b.Cleanup(func() { _, _ = conn.Close(), far.Close() })
	return conn
}
