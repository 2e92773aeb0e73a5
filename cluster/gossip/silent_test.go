package gossip_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip/gossiptest"
)

// TestSilentStreams: a node listens to 64 streams that say nothing, and closes the oldest for one
// more. It closes each of them after 5 seconds.
func TestSilentStreams(t *testing.T) {
	inWorld(t, func(w *world) {
		g := w.run(w.config(1))
		stranger, err := w.net.Listen(t.Context(), netip.AddrPortFrom(host(9), 7402))
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
		var streams []net.Conn
		for range 66 {
			conn, err := stranger.Dial(t.Context(), g.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			streams = append(streams, conn)
			synctest.Wait()
		}
		closed := func() (n int) {
			for _, conn := range streams {
				err := conn.SetReadDeadline(time.Now().Add(time.Millisecond))
				if err == nil {
					_, err = conn.Read(make([]byte, 1))
				}
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					n++
				}
			}
			return n
		}
		if n := closed(); n != 2 {
			t.Errorf("%d of 66 silent streams were closed at once, want 2", n)
		}
		gossiptest.Pass(6 * time.Second)
		if n := closed(); n != len(streams) {
			t.Errorf("%d of 66 silent streams were closed after 5 s, want all", n)
		}
	})
}
