// Package network is the network between the nodes of a cluster under test, and between them and
// their clients. It has real sockets, and the test controls each direction of each pair and each
// service. DESIGN.md says how.
package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// Outside is the name of any program that talks to a node and is neither a node nor a client of the
// network, such as a command that an operator runs.
const Outside = "outside"

// Mode says where the nodes run.
type Mode int

const (
	// Auto takes namespaces if the process has the rights and tools for it, and else loopback. Mode
	// says which, and the log why.
	Auto Mode = iota
	// Namespaces gives each node a network of its own, where silence is packets that the kernel drops.
	Namespaces
	// Loopback has all nodes on addresses of loopback, where silence is bytes that a proxy holds back.
	Loopback
)

func (m Mode) String() string {
	switch m {
	case Auto:
		return "auto"
	case Namespaces:
		return "namespaces"
	case Loopback:
		return "loopback"
	default:
		return fmt.Sprintf("mode %d", int(m))
	}
}

// Config says what to connect. Logger is required.
type Config struct {
	// Nodes and Clients are the names of the first members: letters, digits, _ and -, each name once.
	Nodes, Clients []string
	Mode           Mode
	// Seed begins the random choices.
	Seed   uint64
	Logger *slog.Logger

	// reorderWait is how long something waits at most to be overtaken; a default if zero.
	reorderWait time.Duration
}

const (
	// reorderWaitMax is the default of Config.reorderWait.
	reorderWaitMax = 2 * time.Second
	// connsMax bounds the connections through one listener.
	connsMax = 1024
)

// Network connects nodes and clients. Its methods may be called from any goroutine.
type Network struct {
	mode        Mode
	block       *block
	spaces      *namespaces // nil on loopback
	table       *table
	dice        *dice
	taps        taps
	owners      owners
	reorderWait time.Duration
	logger      *slog.Logger

	running sync.WaitGroup
	// steering is held while rules change, so that the kernel's are those that were set last.
	steering sync.Mutex

	mu      sync.Mutex
	nodes   map[string]*member
	clients map[string]*member
	byHost  map[netip.Addr]*member
	closers []func() error
	closed  bool
}

// member is a node or a client.
type member struct {
	name   string
	number int
	// host is where a node listens; invalid for a client. face is the address under which all others
	// see it.
	host, face netip.Addr
	// packets sends and receives a node's gossip at its face.
	packets *post
	// doors are where a client reaches nodes, by name.
	doors map[string]net.Addr
}

// New makes a network. ctx bounds the making only. The caller must Close it, after the processes in
// it have ended.
func New(ctx context.Context, cfg Config) (*Network, error) {
	n := &Network{
		mode: cfg.Mode, table: newTable(), dice: newDice(cfg.Seed), reorderWait: cfg.reorderWait, logger: cfg.Logger,
		nodes: map[string]*member{}, clients: map[string]*member{}, byHost: map[netip.Addr]*member{},
	}
	if n.reorderWait == 0 {
		n.reorderWait = reorderWaitMax
	}
	if err := n.takeAddresses(ctx); err != nil {
		return nil, err
	}
	n.owners.mark = fmt.Sprintf("%s=%d/", ownerVariable, n.block.number)
	for _, name := range cfg.Nodes {
		if err := n.Add(ctx, name); err != nil {
			return nil, errors.Join(err, n.closeWithin(context.WithoutCancel(ctx)))
		}
	}
	for _, name := range cfg.Clients {
		if err := n.AddClient(ctx, name); err != nil {
			return nil, errors.Join(err, n.closeWithin(context.WithoutCancel(ctx)))
		}
	}
	return n, nil
}

// takeAddresses takes the addresses, and the namespaces' bridge.
func (n *Network) takeAddresses(ctx context.Context) (err error) {
	if n.mode != Loopback {
		n.block, n.spaces, err = openNamespaces(ctx)
		if err == nil {
			n.mode = Namespaces
			n.logger.Info("each node gets a network namespace", "addresses", n.block.prefix().String())
			return nil
		}
		if n.mode == Namespaces {
			return fmt.Errorf("making network namespaces: %w", err)
		}
		n.logger.Warn("nodes run on loopback, since network namespaces cannot be made", "error", err)
	}
	n.mode = Loopback
	n.block, err = takeBlock(ctx, false)
	return err
}

// Mode returns Namespaces or Loopback.
func (n *Network) Mode() Mode { return n.mode }

// Add brings in a node. Clients reach it at once.
func (n *Network) Add(ctx context.Context, name string) error {
	n.steering.Lock()
	defer n.steering.Unlock()
	m, err := n.enrol(n.nodes, name)
	if err != nil {
		return err
	}
	m.host, m.face = n.block.address(hosts, m.number), n.block.address(advertised, m.number)
	if n.spaces != nil {
		if err := n.spaces.add(ctx, m); err != nil {
			return err
		}
	}
	for _, service := range All.services() {
		at := netip.AddrPortFrom(m.face, service.Port())
		if _, err := n.listen(ctx, at, door{to: m, service: service}); err != nil {
			return fmt.Errorf("carrying the %s connections of %s: %w", service, name, err)
		}
	}
	if err := n.listenForPackets(ctx, m); err != nil {
		return fmt.Errorf("carrying the gossip of %s: %w", name, err)
	}
	n.mu.Lock()
	n.nodes[name], n.byHost[m.host] = m, m
	clients := values(n.clients)
	n.mu.Unlock()
	for _, client := range clients {
		if err := n.openDoor(ctx, client, m); err != nil {
			return err
		}
	}
	return n.enforce(ctx)
}

// AddClient brings in a client, which is no process of its own: whatever goes to its URLs, or is
// dialled by what DialContext returns, is the client.
func (n *Network) AddClient(ctx context.Context, name string) error {
	n.steering.Lock()
	defer n.steering.Unlock()
	m, err := n.enrol(n.clients, name)
	if err != nil {
		return err
	}
	m.face, m.doors = n.block.address(callers, m.number), map[string]net.Addr{}
	n.mu.Lock()
	n.clients[name] = m
	nodes := values(n.nodes)
	n.mu.Unlock()
	for _, node := range nodes {
		if err := n.openDoor(ctx, m, node); err != nil {
			return err
		}
	}
	return n.enforce(ctx)
}

// enrol checks a name and gives it a number. The caller holds steering.
func (n *Network) enrol(among map[string]*member, name string) (*member, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return nil, net.ErrClosed
	case !regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`).MatchString(name) || name == Outside:
		return nil, fmt.Errorf("%q cannot be the name of a node or client: have 1 to 64 letters, digits, _ and -", name)
	case n.nodes[name] != nil || n.clients[name] != nil:
		return nil, fmt.Errorf("%s is there already", name)
	case len(among) == placesMax:
		return nil, fmt.Errorf("%s finds no place: there are %d already", name, placesMax)
	}
	return &member{name: name, number: len(among) + 1}, nil
}

// openDoor lets a client reach a node at an address of its own.
func (n *Network) openDoor(ctx context.Context, client, node *member) error {
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	addr, err := n.listen(ctx, at, door{from: client, to: node, service: Client})
	if err != nil {
		return fmt.Errorf("carrying the connections of %s to %s: %w", client.name, node.name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	client.doors[node.name] = addr
	return nil
}

// Host returns the address at which a node listens; empty if there is no such node.
func (n *Network) Host(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := n.nodes[name]; m != nil {
		return m.host.String()
	}
	return ""
}

// Own returns the address of this machine in the network, which every node reaches whatever the
// rules are. In namespaces it is there as long as the network is.
func (n *Network) Own() string { return n.block.address(others, placesMax).String() }

// Advertised returns the address at which others reach a node; empty if there is no such node.
func (n *Network) Advertised(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := n.nodes[name]; m != nil {
		return m.face.String()
	}
	return ""
}

// GossipAddress returns what another node says in --join to meet this one.
func (n *Network) GossipAddress(name string) string {
	return net.JoinHostPort(n.Advertised(name), strconv.Itoa(int(Gossip.Port())))
}

// Flags returns the flags of `belfry serve` that put a node into its place.
func (n *Network) Flags(name string) []string {
	at := func(s Service) string { return net.JoinHostPort(n.Host(name), strconv.Itoa(int(s.Port()))) }
	return []string{
		"--listen", at(Client), "--peer-listen", at(Peer), "--gossip-listen", at(Gossip), "--advertise", n.Advertised(name),
		"--insecure",
	}
}

// ClientURL returns where a client reaches a node.
func (n *Network) ClientURL(client, node string) (string, error) {
	addr, err := n.door(client, node)
	if err != nil {
		return "", err
	}
	return "http://" + addr.String(), nil
}

func (n *Network) door(client, node string) (net.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.clients[client]; c != nil && c.doors[node] != nil {
		return c.doors[node], nil
	}
	return nil, fmt.Errorf("there is no client %q, or no node %q", client, node)
}

// DialContext returns how a client dials. It takes the addresses that nodes advertise to clients,
// which a client learns from routing, to its own way to that node; other addresses stay what they
// are.
func (n *Network) DialContext(client string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if at, err := netip.ParseAddrPort(address); err == nil && at.Port() == Client.Port() {
			for _, node := range n.nodesNow() {
				if node.face != at.Addr() {
					continue
				}
				addr, err := n.door(client, node.name)
				if err != nil {
					return nil, err
				}
				address = addr.String()
			}
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

// nodesNow returns the nodes.
func (n *Network) nodesNow() []*member {
	n.mu.Lock()
	defer n.mu.Unlock()
	return values(n.nodes)
}

// Wrap makes a command that was not started yet a process of a node: in the node's namespace, or,
// on loopback, marked so that the network knows whose connections its are.
func (n *Network) Wrap(name string, cmd *exec.Cmd) error {
	if n.Host(name) == "" {
		return fmt.Errorf("there is no node %q", name)
	}
	if cmd.Err != nil {
		return cmd.Err
	}
	if n.spaces != nil {
		n.spaces.wrap(name, cmd)
		return nil
	}
	cmd.Env = append(cmd.Environ(), n.owners.mark+name)
	return nil
}

// Close ends all connections, frees all addresses, and waits for everything that the network
// started. It may be called again.
func (n *Network) Close() error { return n.closeWithin(context.Background()) }

// closeWithin is Close, in which ctx bounds what the kernel is asked for.
func (n *Network) closeWithin(ctx context.Context) error {
	n.steering.Lock()
	defer n.steering.Unlock()
	n.mu.Lock()
	closers := n.closers
	done := n.closed
	n.closers, n.closed = nil, true
	n.mu.Unlock()
	if done {
		return nil
	}
	var problems []error
	for _, c := range closers {
		problems = append(problems, c())
	}
	n.running.Wait()
	if n.spaces != nil {
		problems = append(problems, n.spaces.close(ctx))
	}
	return errors.Join(append(problems, n.block.release())...)
}

// onClose has f called by Close.
func (n *Network) onClose(f func() error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closers = append(n.closers, f)
}

func values(m map[string]*member) []*member {
	all := make([]*member, 0, len(m))
	for _, v := range m {
		all = append(all, v)
	}
	return all
}
