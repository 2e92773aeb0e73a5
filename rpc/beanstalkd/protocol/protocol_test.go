package protocol_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/rpc/beanstalkd/protocol"
)

// TestParse has the command lines that beanstalkd 1.12 was seen to accept.
func TestParse(t *testing.T) {
	for _, tt := range []struct {
		line string
		want protocol.Command
	}{
		{"put 1 2 3 4", protocol.Command{Op: protocol.Put, Priority: 1, Delay: 2, TTR: 3, BodyBytes: 4}},
		{"put  4294967295  0 0 0", protocol.Command{Op: protocol.Put, Priority: math.MaxUint32}},
		{"reserve", protocol.Command{Op: protocol.Reserve}},
		{"reserve-with-timeout 10", protocol.Command{Op: protocol.ReserveWithTimeout, Timeout: 10}},
		{"reserve-with-timeout ", protocol.Command{Op: protocol.ReserveWithTimeout}},
		{"reserve-with-timeout a", protocol.Command{Op: protocol.ReserveWithTimeout}},
		{"reserve-with-timeout -5", protocol.Command{Op: protocol.ReserveWithTimeout, Timeout: -1}},
		{"reserve-with-timeout 3x", protocol.Command{Op: protocol.ReserveWithTimeout, Timeout: 3}},
		{"reserve-job 7", protocol.Command{Op: protocol.ReserveJob, ID: 7}},
		{"delete 18446744073709551615", protocol.Command{Op: protocol.Delete, ID: math.MaxUint64}},
		{"delete  1", protocol.Command{Op: protocol.Delete, ID: 1}},
		{"release 1 2 3", protocol.Command{Op: protocol.Release, ID: 1, Priority: 2, Delay: 3}},
		{"bury 1 2", protocol.Command{Op: protocol.Bury, ID: 1, Priority: 2}},
		{"touch 1", protocol.Command{Op: protocol.Touch, ID: 1}},
		{"kick 5", protocol.Command{Op: protocol.Kick, Bound: 5}},
		{"kick 5x", protocol.Command{Op: protocol.Kick, Bound: 5}},
		{"kick -1", protocol.Command{Op: protocol.Kick, Bound: math.MaxUint64}},
		{"kick-job 5", protocol.Command{Op: protocol.KickJob, ID: 5}},
		{"peek 5", protocol.Command{Op: protocol.Peek, ID: 5}},
		{"peek-ready", protocol.Command{Op: protocol.PeekReady}},
		{"peek-delayed", protocol.Command{Op: protocol.PeekDelayed}},
		{"peek-buried", protocol.Command{Op: protocol.PeekBuried}},
		{"use a_b", protocol.Command{Op: protocol.Use, Tube: []byte("a_b")}},
		{"watch a+b/c;d.e$f(g)h", protocol.Command{Op: protocol.Watch, Tube: []byte("a+b/c;d.e$f(g)h")}},
		{"ignore " + strings.Repeat("a", 200), protocol.Command{Op: protocol.Ignore, Tube: []byte(strings.Repeat("a", 200))}},
		{"pause-tube  a 3", protocol.Command{Op: protocol.PauseTube, Tube: []byte("a"), Delay: 3}},
		{"stats", protocol.Command{Op: protocol.Stats}},
		{"stats-job 1", protocol.Command{Op: protocol.StatsJob, ID: 1}},
		{"stats-tube a", protocol.Command{Op: protocol.StatsTube, Tube: []byte("a")}},
		{"list-tubes", protocol.Command{Op: protocol.ListTubes}},
		{"list-tube-used", protocol.Command{Op: protocol.ListTubeUsed}},
		{"list-tubes-watched", protocol.Command{Op: protocol.ListTubesWatched}},
		{"quit", protocol.Command{Op: protocol.Quit}},
		{"quit now", protocol.Command{Op: protocol.Quit}},
	} {
		got, answer := protocol.Parse([]byte(tt.line))
		if answer != "" {
			t.Errorf("%q is answered with %q", tt.line, answer)
			continue
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.line, diff)
		}
	}
}

// TestParseRefuses has the command lines that beanstalkd 1.12 was seen to refuse.
func TestParseRefuses(t *testing.T) {
	for answer, lines := range map[string][]string{
		protocol.BadFormat: {
			"put 1 0 10", "put ", "put 1 0 10 3 ", "put -1 0 10 3", "put 4294967296 0 10 3", "put 1 4294967296 10 3",
			"put 1 0 4294967296 3", "put 1 0 10 4294967296", "put a 0 10 3", "put 1 0 10 a", "put 1 0 1 3x", "reserve ",
			"reservex", "reserve-with-timeout", "reserve-job", "reserve-job a", "delete a", "delete 1a", "delete 1 ",
			"delete -1", "delete 18446744073709551616", "release 1 1", "release 9 1 0 ", "release 9 a 0", "release 9 1 0a",
			"bury 9", "bury 9 1 ", "bury 9 1a", "touch 9 ", "kick a", "kick ", "kick 99999999999999999999", "kick-job a",
			"kick-job 9 ", "peek ", "peek-readyx", "peek-ready ", "use foo ", "use  foo", "use -foo", "use ", "use a:b",
			"use " + strings.Repeat("a", 201), "use fo\x00o", "ignore -x", "list-tubes ", "list-tubesx", "list-tube-used ",
			"list-tubes-watched ", "stats-job a", "stats-tube -x", "statsx", "stats ", "pause-tube default",
			"pause-tube default a", "pause-tube default 1a", "pause-tube default 1 ", "pause-tube -x 1",
			"list-tube-used\nlist-tube-used", "stats-tube  default",
		},
		protocol.UnknownCommand: {
			"", "put", "delete", "kick", "peek", "peekx", "use", "xyz", " put 1 0 1 1", "PUT 1 0 10 3", "release", "touch",
		},
	} {
		for _, line := range lines {
			if c, got := protocol.Parse([]byte(line)); got != answer {
				t.Errorf("%q is answered with %q, read as %+v; want %q", line, got, c, answer)
			}
		}
	}
}

// TestTubes: which queue a tube is, and back.
func TestTubes(t *testing.T) {
	for tube, queue := range map[string]string{
		"default": "default", "a_b-c.d9": "a_b-c.d9", "shop/orders": "shop/orders", "a+b": "a:2Bb", "a;$()": "a:3B:24:28:29",
		"/": ":2F", "/a": ":2Fa", "a/": "a:2F", "a/b/c": "a/b:2Fc", "a//b": "a/:2Fb", ".": ":2E", "..": ":2E:2E",
		"../a": ":2E:2E/a", "a/.": "a/:2E", "...": "...",
	} {
		if got := protocol.QueueOf(tube); got != queue {
			t.Errorf("the queue of %q is %q, want %q", tube, got, queue)
		}
		if got, ok := protocol.TubeOf(queue); !ok || got != tube {
			t.Errorf("the tube of %q is %q, %v, want %q", queue, got, ok, tube)
		}
	}
	for _, queue := range []string{
		"a:b", "a:2", "a:2b", "a:41", "-a", "a/b/c", "", ":00", "a:2Fb", strings.Repeat("a", 201),
	} {
		if tube, ok := protocol.TubeOf(queue); ok {
			t.Errorf("the queue %q has the tube %q", queue, tube)
		}
	}
}

// TestIDs: an id has the shard and the serial of a job.
func TestIDs(t *testing.T) {
	for _, tt := range []struct {
		shard  uint32
		serial uint64
		id     uint64
	}{{0, 1, 1024}, {5, 1, 1029}, {1023, 1 << 40, 1<<50 + 1023}} {
		if got := protocol.IDOf(tt.shard, tt.serial); got != tt.id {
			t.Errorf("the id of serial %d in shard %d is %d, want %d", tt.serial, tt.shard, got, tt.id)
		}
		if shard, serial := protocol.SplitID(tt.id); shard != tt.shard || serial != tt.serial {
			t.Errorf("id %d is serial %d in shard %d", tt.id, serial, shard)
		}
	}
}

// FuzzParse: whatever a line is, it is answered, and a valid tube has a queue of its own.
func FuzzParse(f *testing.F) {
	for _, line := range []string{"put 1 0 10 3", "use a/b/c", "pause-tube a 1", "kick -1", "reserve-with-timeout 0a"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		c, answer := protocol.Parse(line)
		if answer == "" && !strings.HasPrefix(string(line), c.Op.String()) {
			t.Errorf("%q is read as %s", line, c.Op)
		}
		if protocol.ValidTube(line) {
			queue := protocol.QueueOf(string(line))
			if tube, ok := protocol.TubeOf(queue); !ok || tube != string(line) {
				t.Errorf("the tube %q is the queue %q, which is the tube %q, %v", line, queue, tube, ok)
			}
		}
		if tube, ok := protocol.TubeOf(string(line)); ok && protocol.QueueOf(tube) != string(line) {
			t.Errorf("the queue %q is the tube %q, which is another queue", line, tube)
		}
	})
}
