package beanstalkd_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
)

// expect sends a command and compares the answer.
func (c *client) expect(t testing.TB, command, want string) {
	t.Helper()
	if got := c.ask(t, command+"\n"); got != want {
		t.Errorf("%q is answered with %q, want %q", command, got, want)
	}
}

// put puts a job and returns its id.
func (c *client) put(t testing.TB, arguments, body string) (id string) {
	t.Helper()
	answer := c.ask(t, fmt.Sprintf("put %s %d\n%s\n", arguments, len(body), body))
	id, ok := strings.CutPrefix(answer, "INSERTED ")
	if !ok {
		t.Fatalf("a put is answered with %q", answer)
	}
	return id
}

// awaitPolls returns when n reserves wait.
func awaitPolls(t *testing.T, n *backendtest.Node, polls int) {
	t.Helper()
	for until := time.Now().Add(time.Minute); n.ParkedPolls() != polls; {
		if time.Now().After(until) {
			t.Fatalf("%d polls wait, want %d", n.ParkedPolls(), polls)
		}
	}
}

// TestLife: a job is put, reserved and deleted.
func TestLife(t *testing.T) {
	address, _ := serve(t)
	c := connect(t, address)
	id := c.put(t, "5 0 60", "body\rof\x00 two")
	c.expect(t, "reserve", "RESERVED "+id+" 12 body\rof\x00 two")
	c.expect(t, "reserve-with-timeout 0", "TIMED_OUT")
	c.expect(t, "touch "+id, "TOUCHED")
	c.expect(t, "release "+id+" 7 0", "RELEASED")
	c.expect(t, "delete "+id, "DELETED")
	c.expect(t, "delete "+id, "NOT_FOUND")
}

// TestPipeline: the answers come in the order of the commands, however they are cut.
func TestPipeline(t *testing.T) {
	address, _ := serve(t)
	c := connect(t, address)
	var all strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&all, "put %d 0 60 4\n%04d\n", i%3, i)
		if i%7 == 0 {
			all.WriteString("no command\n")
		}
		if i%100 == 0 {
			fmt.Fprintf(&all, "use t%d\n", i)
		}
	}
	go func() { // answers come before all is sent
		text := strings.ReplaceAll(all.String(), "\n", "\r\n")
		for cut := 1; len(text) > 0; cut = cut%977 + 13 {
			n := min(cut, len(text))
			if _, err := io.WriteString(c, text[:n]); err != nil {
				return // the test fails for want of an answer
			}
			text = text[n:]
		}
	}()
	want := func(prefix string) {
		if got, err := c.receive(); err != nil || !strings.HasPrefix(got, prefix) {
			t.Fatalf("answer %q, %v; want %q", got, err, prefix)
		}
	}
	for i := range 1000 {
		want("INSERTED ")
		if i%7 == 0 {
			want("UNKNOWN_COMMAND")
		}
		if i%100 == 0 {
			want(fmt.Sprintf("USING t%d", i))
		}
	}
}

// TestDeletesInAPipeline: deletes of jobs that the connection holds are carried out together; a second
// one of the same job finds none.
func TestDeletesInAPipeline(t *testing.T) {
	address, _ := serve(t)
	c := connect(t, address)
	var deletes strings.Builder
	for range 10 {
		id := c.put(t, "5 0 60", "x")
		c.expect(t, "reserve", "RESERVED "+id+" 1 x")
		fmt.Fprintf(&deletes, "delete %s\ndelete %s\n", id, id)
	}
	if err := c.send(deletes.String()); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		want := []string{"DELETED", "NOT_FOUND"}[i%2]
		if got, err := c.receive(); got != want {
			t.Errorf("delete %d is answered with %q, %v; want %q", i, got, err, want)
		}
	}
}

// TestReserveWaits: a reserve without a job waits for one. Commands that follow it are answered after it.
func TestReserveWaits(t *testing.T) {
	address, node := serve(t)
	consumer, producer := connect(t, address), connect(t, address)
	if err := consumer.send("reserve\nlist-tube-used\n"); err != nil {
		t.Fatal(err)
	}
	awaitPolls(t, node, 1)
	id := producer.put(t, "5 0 60", "x")
	for _, want := range []string{"RESERVED " + id + " 1 x", "USING default"} {
		if got, err := consumer.receive(); got != want {
			t.Errorf("answer %q, %v; want %q", got, err, want)
		}
	}
}

// TestHalfClose: a client that will send no more gets TIMED_OUT for a reserve that waits, and then the
// end.
func TestHalfClose(t *testing.T) {
	address, node := serve(t)
	c := connect(t, address)
	if err := c.send("reserve\n"); err != nil {
		t.Fatal(err)
	}
	awaitPolls(t, node, 1)
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := c.receive(); got != "TIMED_OUT" {
		t.Errorf("answer %q, %v; want TIMED_OUT", got, err)
	}
	if got, err := c.receive(); !errors.Is(err, io.EOF) {
		t.Errorf("answer %q, %v; want the end", got, err)
	}
	awaitPolls(t, node, 0)
}

// TestCloseReleases: the jobs of a connection that ends are ready at once.
func TestCloseReleases(t *testing.T) {
	address, node := serve(t)
	first, second := connect(t, address), connect(t, address)
	id := first.put(t, "5 0 60", "x")
	first.expect(t, "reserve", "RESERVED "+id+" 1 x")
	second.expect(t, "delete "+id, "NOT_FOUND") // it is held
	if err := second.send("reserve\n"); err != nil {
		t.Fatal(err)
	}
	awaitPolls(t, node, 1)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := second.receive(); got != "RESERVED "+id+" 1 x" {
		t.Errorf("answer %q, %v", got, err)
	}
}

// TestLapse: a job whose lease ends is reserved by the next one. Its first holder cannot finish it.
func TestLapse(t *testing.T) {
	address, _ := serve(t)
	first, second := connect(t, address), connect(t, address)
	id := first.put(t, "5 0 1", "x")
	first.expect(t, "reserve", "RESERVED "+id+" 1 x")
	second.expect(t, "reserve", "RESERVED "+id+" 1 x")
	first.expect(t, "touch "+id, "NOT_FOUND")
	if got := first.ask(t, "stats-job "+id+"\n"); strings.Contains(got, "timeouts: 0\n") {
		t.Errorf("statistics %q", got)
	}
}

// TestDeadlineSoon: in the last second of a lease a reserve without a job says so.
func TestDeadlineSoon(t *testing.T) {
	address, _ := serve(t)
	c := connect(t, address)
	id := c.put(t, "5 0 1", "x")
	other := c.put(t, "6 0 60", "y")
	c.expect(t, "reserve", "RESERVED "+id+" 1 x")
	c.expect(t, "reserve", "RESERVED "+other+" 1 y") // there is a job
	c.expect(t, "reserve", "DEADLINE_SOON")
	c.expect(t, "reserve-with-timeout 100", "DEADLINE_SOON")
	c.expect(t, "touch "+id, "TOUCHED")
	c.expect(t, "delete "+id, "DELETED")
	c.expect(t, "reserve-with-timeout 0", "TIMED_OUT")
}

// TestBodies: what is wrong with a body is answered, and the next command is found.
func TestBodies(t *testing.T) {
	address, _ := serve(t)
	c := connect(t, address)
	for _, tt := range []struct{ sent, want string }{
		{"put 1 0 60 65536\n" + strings.Repeat("x", 65536) + "\n", "JOB_TOO_BIG"},
		{"put 1 0 60 3\nabcde", "EXPECTED_CRLF"},
		{strings.Repeat("x", 224) + "\n", "BAD_FORMAT"},
		{strings.Repeat("y", 100_000) + "\n", "BAD_FORMAT"},
	} {
		if got := c.ask(t, tt.sent); got != tt.want {
			t.Errorf("%.20q… is answered with %q, want %q", tt.sent, got, tt.want)
		}
		c.expect(t, "list-tube-used", "USING default")
	}
	id := c.put(t, "1 0 60", strings.Repeat("x", 65535))
	c.expect(t, "reserve", "RESERVED "+id+" 65535 "+strings.Repeat("x", 65535))
}

// TestGroups: many connections put at a time; each gets an id of its own, and all jobs are there.
func TestGroups(t *testing.T) {
	address, node := serve(t)
	const connections, puts = 50, 40
	var all sync.Map
	var group sync.WaitGroup
	for range connections {
		c := connect(t, address)
		group.Go(func() {
			for range puts {
				err := c.send("put 1 0 60 1\nx\n")
				answer, received := c.receive()
				if err != nil || received != nil || !strings.HasPrefix(answer, "INSERTED ") {
					t.Errorf("a put is answered with %q, %v, %v", answer, err, received)
					return
				}
				if _, again := all.LoadOrStore(answer, true); again {
					t.Errorf("%q was answered twice", answer)
				}
			}
		})
	}
	group.Wait()
	var ready uint64
	for shard := range uint32(node.ShardCount()) {
		r, _, err := node.Peek(shard, &fsm.QueueQuery{Queue: "default"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range r.Queues {
			ready += r.Queues[i].Counts.Ready
		}
	}
	if ready != connections*puts {
		t.Errorf("%d jobs are ready, want %d", ready, connections*puts)
	}
}
