package routing

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// TestAnnouncedLengthTakesNoMemory: a length that a sender announces takes no memory before the
// bytes arrive.
func TestAnnouncedLengthTakesNoMemory(t *testing.T) {
	head := binary.BigEndian.AppendUint32(nil, peerBytesMax)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := readForwarded(io.MultiReader(bytes.NewReader(head), strings.NewReader("little")), fsm.LatestFormat)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > peerBytesMax/8 {
		t.Errorf("%d bytes were allocated: %v", took, err)
	}
	if _, _, err := readForwarded(bytes.NewReader(binary.BigEndian.AppendUint32(nil, peerBytesMax+1)),
		fsm.LatestFormat); err == nil || !strings.Contains(err.Error(), "are the most") {
		t.Errorf("too much: %v", err)
	}
	entry := (&Peers{}).forwarded(aPut())
	whole := append(binary.BigEndian.AppendUint32(nil, uint32(len(entry))), entry...)
	if req, _, err := readForwarded(bytes.NewReader(whole), fsm.LatestFormat); err != nil || len(req.Commands) != 1 {
		t.Errorf("an honest request: %+v, %v", req, err)
	}
}

// slowBody is a body that delivers a piece after each pause, until done is closed.
type slowBody struct {
	pause  time.Duration
	piece  []byte
	pieces int
	done   <-chan struct{}
}

// Read implements io.Reader.
func (d *slowBody) Read(p []byte) (int, error) {
	if d.pieces == 0 {
		return 0, io.EOF
	}
	d.pieces--
	pause := time.NewTimer(d.pause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-d.done:
		return 0, io.ErrUnexpectedEOF
	}
	return copy(p, d.piece), nil
}

// TestSlowSenders: a body must keep up the minimum rate. A body that keeps it up may take long.
func TestSlowSenders(t *testing.T) {
	for _, tt := range []struct {
		name  string
		path  string
		first string // comes at once
		body  slowBody
		want  time.Duration // after which it is refused; zero if it is not
	}{
		{"nothing comes", pathDo + "?shard=0", "", slowBody{time.Minute, []byte("x"), 1, nil}, stallTimeout},
		{"byte by byte", pathDo + "?shard=0", "", slowBody{3 * time.Second, []byte("x"), 60, nil}, stallTimeout},
		{"byte by byte, a Reserve", pathReserve + "?shard=0&wait=1h&stoppable", "",
			slowBody{3 * time.Second, []byte("\x00"), 60, nil}, stallTimeout},
		{"byte by byte, a call in JSON", "/echo", "", slowBody{3 * time.Second, []byte(" "), 60, nil}, stallTimeout},
		{"a length, and then nothing", pathReserve + "?shard=0&wait=1h", "\x03\xff\xff\xff",
			slowBody{time.Minute, []byte("x"), 1, nil}, stallTimeout},
		{"slowly and steadily", "/echo", "", slowBody{time.Second / 4, bytes.Repeat([]byte(" "), stallBytes/32), 200, nil},
			0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := routingtest.NewNetwork()
				a, b := startPeers(t, network.Link("a.1")), startPeers(t, network.Link("b.2"))
				answerShards(b, &loneHost{}, "b.2")
				Handle(b, "/echo", func(_ context.Context, _ string, q string) (string, error) { return q, nil })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tt.body.done = ctx.Done()
				body := io.MultiReader(strings.NewReader(tt.first), &tt.body, strings.NewReader(`"x"`))
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://b.2"+tt.path, body)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				response, err := a.client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				took := time.Since(began)
				if tt.want == 0 && (response.StatusCode != http.StatusOK || took < 2*stallTimeout) ||
					tt.want > 0 && (response.StatusCode != http.StatusBadRequest || took < tt.want || took > tt.want+time.Second) {
					t.Errorf("after %v: status %d", took, response.StatusCode)
				}
			})
		})
	}
}

// TestSlowAnswer: an answer that has started must go on. If it does not, its outcome is unknown.
func TestSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		a, b := startPeers(t, network.Link("a.1")), startPeers(t, network.Link("b.2"))
		b.mux.HandleFunc("POST /slow", func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(`"x`))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		_, err := Call[string](ctx, a, "b.2", "/slow", "")
		if took := time.Since(began); !errors.Is(err, node.ErrUnknownOutcome) || !errors.Is(err, errStalled) ||
			took != stallTimeout {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// TestIdleCallsAreNotCut: a poll whose caller is silent for an hour is not a slow sender. Neither
// is a connection without a call.
func TestIdleCallsAreNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, from := newLoneHost(t)
		host.reserve = func(ctx context.Context, wait node.Wait) (node.Reply, error) {
			late := time.NewTimer(wait.For)
			defer late.Stop()
			select {
			case <-late.C:
				return node.Reply{}, nil
			case <-wait.Stop:
				return node.Reply{}, errors.New("the caller seems to have stopped")
			case <-ctx.Done():
				return node.Reply{}, ctx.Err()
			}
		}
		for range 2 {
			began := time.Now()
			_, err := from.reserve(t.Context(), forwardedTo{server: "b.2"}, aPut(), node.Wait{
				For: time.Hour, Stop: make(chan struct{}),
			})
			if took := time.Since(began); err != nil || took != time.Hour {
				t.Errorf("after %v: %v", took, err)
			}
			idle := time.NewTimer(time.Hour)
			<-idle.C
		}
	})
}

// TestFrameThatIsNeverWhole: a connection on which a frame stays unfinished is closed, even while
// bytes arrive.
func TestFrameThatIsNeverWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		from := network.Link("a.1")
		startPeers(t, network.Link("b.2"))
		conn, err := from.DialPeer(t.Context(), "b.2")
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_, _ = io.Copy(io.Discard, conn)
		}()
		settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		frame := "\x00\x40\x00\x01\x04\x00\x00\x00\x01" // the beginning of a header of 16 KiB
		if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings+frame); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		drip := time.NewTicker(time.Second)
		defer drip.Stop()
		for time.Since(began) < time.Hour {
			select {
			case <-closed:
				if took := time.Since(began); took > 2*(peerPingAfter+peerPingWait) {
					t.Errorf("it was closed after %v", took)
				}
				return
			case <-drip.C:
				_, _ = conn.Write([]byte{0}) // it fails when the connection is closed
			}
		}
		t.Error("it was not closed")
	})
}
