package peer

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

func beanstalkdPeers() []Queue {
	one := func(name, keeps string, options ...string) Queue {
		return Queue{Name: name, Keeps: keeps, program: "beanstalkd", pack: "beanstalkd",
			Cannot: map[string]string{"pendingids": errNames.Error()},
			Start: func(ctx context.Context, s *Site) (*Running, error) {
				return startBeanstalkd(ctx, s, options)
			}}
	}
	return []Queue{
		one("beanstalkd-memory", "nothing"),
		one("beanstalkd-log", "nothing; synced every 50 ms", "-b", "."),
		one("beanstalkd-sync", "the put", "-b", ".", "-f", "0"),
	}
}

// startBeanstalkd runs a server.
func startBeanstalkd(ctx context.Context, s *Site, options []string) (*Running, error) {
	address, err := s.Addresses.Free()
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	version, err := exec.CommandContext(ctx, "beanstalkd", "-v").Output()
	if err != nil {
		return nil, fmt.Errorf("asking beanstalkd for its version: %w", err)
	}
	dir := s.NewDir("beanstalkd")
	if err := os.MkdirAll(filepath.Clean(dir), 0o700); err != nil {
		return nil, err
	}
	p, err := start(dir, "beanstalkd", append([]string{"-l", host, "-p", port}, options...)...)
	if err != nil {
		return nil, err
	}
	err = p.await(ctx, func(ctx context.Context) error {
		c, err := dialBeanstalkd(ctx, address)
		if err != nil {
			return err
		}
		return c.Close()
	})
	return &Running{
		Version: strings.TrimSpace(string(version)), Processes: []*Process{p},
		Caller: func(ctx context.Context, _ Kind) (Caller, error) { return dialBeanstalkd(ctx, address) },
	}, err
}

// dialBeanstalkd connects to a server that speaks beanstalkd's protocol.
func dialBeanstalkd(ctx context.Context, address string) (*beanstalkdCaller, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s for beanstalkd's protocol: %w", address, err)
	}
	return &beanstalkdCaller{conn: conn, in: bufio.NewReader(conn), out: bufio.NewWriter(conn)}, nil
}

// beanstalkdCaller is a connection. The protocol is that of beanstalkd's doc/protocol.txt; a batch
// is so many commands written before the first answer is read.
type beanstalkdCaller struct {
	// used and watched are the queues, its tubes, of the last put and take; "" is the one that it
	// begins with, which is never used.
	used, watched string

	conn net.Conn
	in   *bufio.Reader
	out  *bufio.Writer
}

const beanstalkdTTR = 60 // seconds

// Put implements Caller.
func (c *beanstalkdCaller) Put(_ context.Context, all Batch) error {
	if all.IDs != nil {
		return errNames
	}
	if tube := QueueName(all.Queue); c.used != tube {
		fmt.Fprintf(c.out, "use %s\r\n", tube)
		if err := c.flushed("USING"); err != nil {
			return err
		}
		c.used = tube
	}
	for _, body := range all.Bodies {
		// Delays are whole seconds.
		fmt.Fprintf(c.out, "put 0 %d %d %d\r\n", int(math.Ceil(all.Delay.Seconds())), beanstalkdTTR, len(body))
		c.out.Write(body)         //nolint:errcheck // likewise
		c.out.WriteString("\r\n") //nolint:errcheck // likewise
	}
	if err := c.out.Flush(); err != nil {
		return err
	}
	for range all.Bodies {
		if _, err := c.answer("INSERTED"); err != nil {
			return err
		}
	}
	return nil
}

// Take implements Caller.
func (c *beanstalkdCaller) Take(_ context.Context, what Wanted, seen func([]byte)) (int, error) {
	if err := c.watch(QueueName(what.Queue)); err != nil {
		return 0, err
	}
	for n := range what.Most {
		seconds := 0
		if n == 0 {
			seconds = int(what.Wait.Seconds())
		}
		fmt.Fprintf(c.out, "reserve-with-timeout %d\r\n", seconds)
	}
	if err := c.out.Flush(); err != nil {
		return 0, err
	}
	var ids []string
	for range what.Most {
		line, err := c.line()
		if err != nil {
			return 0, err
		}
		words := strings.Fields(line)
		if len(words) == 1 && words[0] == "TIMED_OUT" {
			continue
		}
		if len(words) != 3 || words[0] != "RESERVED" {
			return 0, fmt.Errorf("beanstalkd answers %q", line)
		}
		size, err := strconv.Atoi(words[2])
		if err != nil {
			return 0, fmt.Errorf("beanstalkd answers %q", line)
		}
		body := make([]byte, size+2)
		if _, err := io.ReadFull(c.in, body); err != nil {
			return 0, err
		}
		seen(bytes.TrimSuffix(body, []byte("\r\n")))
		ids = append(ids, words[1])
	}
	for _, id := range ids {
		fmt.Fprintf(c.out, "delete %s\r\n", id)
	}
	if err := c.out.Flush(); err != nil {
		return 0, err
	}
	for range ids {
		if _, err := c.answer("DELETED"); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// watch has takes come from one tube.
func (c *beanstalkdCaller) watch(tube string) error {
	if c.watched == tube {
		return nil
	}
	last := c.watched
	if last == "" {
		last = "default"
	}
	fmt.Fprintf(c.out, "watch %s\r\nignore %s\r\n", tube, last)
	if err := c.flushed("WATCHING"); err != nil {
		return err
	}
	c.watched = tube
	_, err := c.answer("WATCHING")
	return err
}

// flushed sends what was written, and reads one answer.
func (c *beanstalkdCaller) flushed(want string) error {
	if err := c.out.Flush(); err != nil {
		return err
	}
	_, err := c.answer(want)
	return err
}

// answer reads a line that should begin with a word.
func (c *beanstalkdCaller) answer(want string) (string, error) {
	line, err := c.line()
	if err == nil && !strings.HasPrefix(line, want) {
		err = fmt.Errorf("beanstalkd answers %q", line)
	}
	return line, err
}

func (c *beanstalkdCaller) line() (string, error) {
	line, err := c.in.ReadString('\n')
	return strings.TrimSuffix(line, "\r\n"), err
}

// Close implements Caller.
func (c *beanstalkdCaller) Close() error { return c.conn.Close() }
