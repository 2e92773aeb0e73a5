package beanstalkd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/cron"
	"github.com/belfrydb/belfry/cron/calendar"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
)

// jobBytesMax is beanstalkd's default.
const jobBytesMax = 1<<16 - 1

// serve starts a door on loopback over a backendtest.Node, and returns its address.
func serve(t testing.TB) (address string, node *backendtest.Node) {
	t.Helper()
	return serveWith(t, rpc.Beanstalkd{JobBytesMax: jobBytesMax, Version: "test"})
}

// serveWith is serve with settings of its own.
func serveWith(t testing.TB, settings rpc.Beanstalkd,
	change ...func(*rpc.Config)) (address string, node *backendtest.Node) {
	t.Helper()
	node, catalog := backendtest.NewNode(3), backendtest.NewCatalog()
	node.Format = fsm.LatestFormat
	catalog.SetNode(node)
	zones, err := cron.BuiltInZones()
	if err != nil {
		t.Fatal(err)
	}
	cfg := rpc.Config{
		Node: node, Catalog: catalog, Cluster: &backendtest.SingleNode{Node: node}, Logger: slog.New(slog.DiscardHandler),
		Registry: prometheus.NewRegistry(), Calendars: calendar.New(zones), Name: "n1",
	}
	for _, f := range change {
		f(&cfg)
	}
	server, err := rpc.NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	door := server.NewBeanstalkd(settings)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- door.Serve(l) }()
	t.Cleanup(func() {
		server.Drain()
		if err := door.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), node
}

// client is a connection to a door, or to a beanstalkd.
type client struct {
	net.Conn
	in *bufio.Reader
}

func connect(t testing.TB, address string) *client {
	t.Helper()
	c, err := dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func dial(ctx context.Context, address string) (*client, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &client{c, bufio.NewReader(c)}, nil
}

// send sends a command, or several. Each line feed becomes the end of a line.
func (c *client) send(text string) error {
	_, err := io.WriteString(c, strings.ReplaceAll(text, "\n", "\r\n"))
	return err
}

// receive reads one answer: its line, and the data that follow it after a space.
func (c *client) receive() (string, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "RESERVED", "FOUND", "OK":
		size, err := strconv.Atoi(rest[strings.LastIndexByte(rest, ' ')+1:])
		if err != nil {
			return "", fmt.Errorf("the answer %q: %w", line, err)
		}
		data := make([]byte, size+2)
		if _, err := io.ReadFull(c.in, data); err != nil {
			return "", err
		}
		return line + " " + string(data[:size]), nil
	default:
		return line, nil
	}
}

// ask sends a command and returns the answer.
func (c *client) ask(t testing.TB, command string) string {
	t.Helper()
	if err := c.send(command); err != nil {
		t.Fatalf("sending %q: %v", command, err)
	}
	answer, err := c.receive()
	if err != nil {
		t.Fatalf("the answer to %q: %v", command, err)
	}
	return answer
}
