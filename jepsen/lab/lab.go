// Package lab runs a cluster of real processes for fault injection: it starts and kills them, sets
// their clocks wrong, and asks them how they are.
package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// The ports at which every node listens, on an address of its own.
const (
	ClientPort = 7400
	PeerPort   = 7401
	GossipPort = 7402
)

// Network says where nodes listen and how they are reached.
type Network interface {
	// Host returns the address at which a node listens, Advertised the one under which the other nodes
	// reach it.
	Host(node string) string
	Advertised(node string) string
	// ClientURL returns where a client reaches a node. Every client has a way of its own.
	ClientURL(client, node string) (string, error)
	// Wrap has a command run where the node is.
	Wrap(node string, command *exec.Cmd) error
	// Add makes room for a node that was not named at the start.
	Add(ctx context.Context, node string) error
}

// Config says what to run. All fields but Containers are required.
type Config struct {
	// Dir is where everything about the run is kept.
	Dir string
	// Program is the server, built with the tag "jepsen".
	Program string
	// Names are those of the nodes that found the cluster.
	Names   []string
	Network Network
	// Shards is the number of shards; SnapshotBytes how much each group logs before a snapshot, and
	// keeps behind it.
	Shards        int
	SnapshotBytes int64
	// Data returns the data directory of a node, which exists and is empty.
	Data func(node string) (string, error)
	// Env is the environment of every server, but for what the lab adds, Flags what every one is
	// started with besides.
	Env, Flags []string
	// Containers are where the servers run; nil if they are processes of this machine. What a server
	// is told is then told to its container: Program, Data, Env and most of Network are not used.
	Containers *Containers
	// Secured says that nodes and clients prove their identities to each other, and that every call
	// needs a token. There are no containers then.
	Secured bool
	Logger  *slog.Logger
}

// Lab is a cluster under test. Its methods may be called from any goroutine.
type Lab struct {
	cfg     Config
	secrets *Secrets // nil unless it is secured

	mu        sync.Mutex
	nodes     []*Node
	surprises []string
	// keys are the gossip keys that a node is given which is made now.
	keys []Key
}

// New returns a lab in which nothing runs yet.
func New(cfg Config) (*Lab, error) {
	l := &Lab{cfg: cfg, keys: []Key{NewKey()}}
	for _, dir := range []string{l.Journals(), l.Logs(), filepath.Join(cfg.Dir, "clocks"),
		filepath.Join(cfg.Dir, "keys")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("making a directory of the run: %w", err)
		}
	}
	if cfg.Secured {
		var err error
		if l.secrets, err = NewSecrets(cfg.Dir, cfg.Program); err != nil {
			return nil, err
		}
	}
	for _, name := range cfg.Names {
		if _, err := l.newNode(name); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// JournalsDir is where the nodes' journals are in the directory of a run, LogsDir what they wrote
// to standard error, one file each.
const (
	JournalsDir = "journals"
	LogsDir     = "logs"
)

// Secrets returns what the cluster proves itself with; nil unless it is secured.
func (l *Lab) Secrets() *Secrets { return l.secrets }

// Journals is the directory of the nodes' journals.
func (l *Lab) Journals() string { return filepath.Join(l.cfg.Dir, JournalsDir) }

// Logs is the directory of what the nodes wrote to standard error, one file each.
func (l *Lab) Logs() string { return filepath.Join(l.cfg.Dir, LogsDir) }

// Add makes a node that joins the cluster when it is started.
func (l *Lab) Add(ctx context.Context, name string) (*Node, error) {
	if err := l.cfg.Network.Add(ctx, name); err != nil {
		return nil, err
	}
	return l.newNode(name)
}

// newNode makes a node and all that is its own.
func (l *Lab) newNode(name string) (*Node, error) {
	data, err := l.cfg.Data(name)
	if err != nil {
		return nil, err
	}
	clock, err := newClock(filepath.Join(l.cfg.Dir, "clocks", name))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := &Node{lab: l, Name: name, Data: data, Clock: clock, Log: filepath.Join(l.Logs(), name+".log"), place: name}
	if err := n.equip(l.keys); err != nil {
		return nil, err
	}
	l.nodes = append(l.nodes, n)
	return n, nil
}

// Nodes returns all nodes, also those that do not run, in the order in which they were made.
func (l *Lab) Nodes() []*Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*Node(nil), l.nodes...)
}

// Node returns a node by its name.
func (l *Lab) Node(name string) *Node {
	for _, n := range l.Nodes() {
		if n.Name == name {
			return n
		}
	}
	panic("there is no node " + name)
}

// Running returns the nodes whose process runs.
func (l *Lab) Running() (up []*Node) {
	for _, n := range l.Nodes() {
		if n.Running() {
			up = append(up, n)
		}
	}
	return up
}

// Start starts all nodes at once and returns when each of them answers.
func (l *Lab) Start(ctx context.Context) error { return Start(ctx, l.Nodes()) }

// Start starts nodes at once and returns when each of them answers.
func Start(ctx context.Context, nodes []*Node) error {
	problems := make([]error, len(nodes))
	var starts sync.WaitGroup
	for i, n := range nodes {
		starts.Go(func() { problems[i] = n.Start(ctx) })
	}
	starts.Wait()
	return errors.Join(problems...)
}

// Stop ends every process, and returns what went wrong with those that should have ended in peace.
func (l *Lab) Stop() error {
	var problems []error
	for _, n := range l.Nodes() {
		if n.Running() {
			problems = append(problems, n.Stop())
		}
	}
	return errors.Join(problems...)
}

// KillSoon sends SIGKILL to every process and does not wait: one that hangs in a disk ends when the
// disk does.
func (l *Lab) KillSoon() {
	for _, n := range l.Nodes() {
		n.KillSoon()
	}
}

// Kill kills every process and waits until each has ended.
func (l *Lab) Kill() {
	for _, n := range l.Nodes() {
		n.Kill()
	}
}

// Surprises returns the unrequested acts of nodes: each end of a process that no fault caused.
func (l *Lab) Surprises() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.surprises...)
}

// surprised notes the end of a process.
func (l *Lab) surprised(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.surprises = append(l.surprises, fmt.Sprintf(format, args...))
}

// join returns where a new node finds the others.
func (l *Lab) join() string {
	var seeds []string
	for _, n := range l.Nodes() {
		seeds = append(seeds, fmt.Sprintf("%s:%d", l.cfg.Network.Advertised(n.Name), GossipPort))
	}
	return strings.Join(seeds, ",")
}

// Program is the server that nodes run unless they were told to use another one.
func (l *Lab) Program() string { return l.cfg.Program }

// command returns the command that runs a node.
func (l *Lab) command(n *Node) *exec.Cmd {
	if l.cfg.Containers != nil {
		return l.cfg.Containers.command(n.Name)
	}
	host, port := l.cfg.Network.Host(n.place), ClientPort
	if n.stranger {
		port = strangerPort
	}
	args := []string{
		"serve", "--node-id", n.Name, "--zone", "z-" + n.Name, "--data", n.Data, "--advertise", n.advertised(),
		"--gossip-keys", n.keysFile(),
		"--listen", fmt.Sprintf("%s:%d", host, port), "--peer-listen", fmt.Sprintf("%s:%d", host, PeerPort),
		// the elections are at that level
		"--gossip-listen", fmt.Sprintf("%s:%d", host, GossipPort), "--print-addresses", "--log-format", "json",
		"--log-level", "debug",
	}
	if l.secrets != nil {
		args = append(args, l.secrets.Flags(n.Name)...)
	} else {
		args = append(args, "--insecure")
	}
	if !n.stranger || n.joins {
		args = append(args, "--join", l.join())
	}
	if !n.stranger && l.founds(n) {
		args = append(args, "--bootstrap-expect", fmt.Sprint(len(l.cfg.Names)), "--shards", fmt.Sprint(l.cfg.Shards))
	}
	if !n.stranger {
		args = append(args, l.cfg.Flags...)
	}
	c := exec.Command(n.runs(), args...) //nolint:noctx // it lives until it is stopped or killed
	c.Env = append(slices.Clone(l.cfg.Env), fmt.Sprintf("BELFRY_JEPSEN_SNAPSHOT_BYTES=%d", l.cfg.SnapshotBytes))
	if !n.stranger {
		c.Env = append(c.Env, "BELFRY_JEPSEN_JOURNAL="+l.Journals(), "BELFRY_JEPSEN_CLOCK="+n.Clock.path)
	}
	return c
}

// process returns what a started command runs.
func (l *Lab) process(n *Node, command *exec.Cmd) process {
	if l.cfg.Containers != nil {
		return newContained(l.cfg.Containers, n.Name, command)
	}
	return local{command}
}

// Containers returns where the servers run, nil if they are processes of this machine.
func (l *Lab) Containers() *Containers { return l.cfg.Containers }

// founds reports whether a node is one of those that found the cluster.
func (l *Lab) founds(n *Node) bool {
	for _, name := range l.cfg.Names {
		if name == n.Name {
			return true
		}
	}
	return false
}

// waitMax bounds every wait for a node: only what hangs takes that long, however busy the machine
// is.
const waitMax = 2 * time.Minute
