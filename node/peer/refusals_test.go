package peer

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestRefusalsAreSaidOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		from := func(host string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(host), Port: port} }
		other, meant := errors.New("another cluster"), errors.New("meant for another server")
		seeks := func(group, sender string) error {
			return &refusedError{verdict: refusedReceiver,
				hello: greeting{version: protocolVersion, group: group, sender: sender, receiver: "n2.old"}, self: "n2.new"}
		}
		for _, step := range []struct {
			from net.Addr
			why  error
			want bool
		}{
			{from("10.0.0.1", 1000), meant, true},
			{from("10.0.0.1", 1001), meant, false}, // each attempt comes from another port
			{from("10.0.0.2", 1000), meant, true},
			{from("10.0.0.1", 1000), other, true},
			{&net.UnixAddr{Name: "x"}, meant, true},
			{from("10.0.0.1", 1000), seeks("shard-0", "n1.a"), true},
			{from("10.0.0.1", 1003), seeks("shard-1", "n1.a"), false}, // a peer comes with all its groups
			{from("10.0.0.1", 1003), seeks("shard-1", "n3.a"), true},
		} {
			if got := r.fresh(step.from, step.why); got != step.want {
				t.Errorf("%v from %v: %v", step.why, step.from, got)
			}
		}
		<-time.After(refusalPeriod)
		if !r.fresh(from("10.0.0.1", 1002), meant) {
			t.Error("after a minute it is not said again")
		}
		for i := range 10 * refusalsMax {
			r.fresh(from("10.0.0.1", 1), fmt.Errorf("%d", i))
		}
		if len(r.said) > refusalsMax {
			t.Errorf("%d refusals are remembered", len(r.said))
		}
	})
}

// TestRefusalLevels: refusals that are ordinary while nodes start and stop are logged at debug
// level, those that an operator should fix as warnings.
func TestRefusalLevels(t *testing.T) {
	for _, test := range []struct {
		err  error
		want slog.Level
	}{
		{passing{errors.New("the group is stopping")}, slog.LevelDebug},
		{&refusedError{verdict: refusedGroup, self: "n2.new"}, slog.LevelDebug},
		{&refusedError{verdict: refusedReceiver, hello: greeting{version: protocolVersion, receiver: "n2.old"},
			self: "n2.new"}, slog.LevelInfo},
		{&refusedError{verdict: refusedReceiver, hello: greeting{version: protocolVersion, receiver: "n3.old"},
			self: "n2.new"}, slog.LevelWarn},
		{fmt.Errorf("reading a greeting: %w", io.EOF), slog.LevelDebug},
		{fmt.Errorf("reading a greeting: %w", io.ErrUnexpectedEOF), slog.LevelDebug},
		{fmt.Errorf("sending a greeting: %w", &net.OpError{Op: "write", Err: errors.New("broken pipe")}), slog.LevelDebug},
		{fmt.Errorf("reading a greeting: %w", net.ErrClosed), slog.LevelDebug},
		{fmt.Errorf("sending a greeting: %w", io.ErrClosedPipe), slog.LevelDebug},
		{&refusedError{verdict: refusedCluster, hello: greeting{version: protocolVersion, cluster: "c2", receiver: "n2.old"},
			self: "n2.new"}, slog.LevelWarn},
		{errors.New("this is no peer"), slog.LevelWarn},
	} {
		if got := refusalLevel(test.err); got != test.want {
			t.Errorf("%v is %v, want %v", test.err, got, test.want)
		}
	}
}
