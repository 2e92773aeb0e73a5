package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// spacePrefix, bridgePrefix, cablePrefix and chainPrefix begin the names of what a network makes
	// in the kernel. The number of its block of addresses follows: whose the block is, those are.
	spacePrefix  = "belfry-jepsen-"
	bridgePrefix = "bjb"
	cablePrefix  = "bjv"
	chainPrefix  = "BELFRY-JEPSEN-"
	// spaceFolder is where `ip netns` keeps namespaces by name.
	spaceFolder = "/run/netns"
	// removeMax bounds the removal of everything.
	removeMax = 30 * time.Second
)

// namespaces are the networks of the nodes, each with a cable to a bridge in this process's own,
// where the proxies are.
type namespaces struct{ block *block }

// drop is a way that the kernel lets nothing pass on.
type drop struct {
	from, to *member
	service  Service
}

// openNamespaces takes a block of addresses and makes the bridge. What dead runs left behind is
// removed first.
func openNamespaces(ctx context.Context) (*block, *namespaces, error) {
	if os.Geteuid() != 0 {
		return nil, nil, errors.New("that takes root")
	}
	for tool, of := range map[string]string{"ip": "iproute2", "iptables": "iptables", "iptables-restore": "iptables",
		"iptables-save": "iptables", "nsenter": "util-linux"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, nil, fmt.Errorf("that takes %s, which is in the package %s: %w", tool, of, err)
		}
	}
	if err := sweep(ctx); err != nil {
		return nil, nil, fmt.Errorf("removing what a dead run left behind: %w", err)
	}
	b, err := takeBlock(ctx, true)
	if err != nil {
		return nil, nil, err
	}
	n := &namespaces{block: b}
	if err := n.open(ctx); err != nil {
		return nil, nil, errors.Join(err, n.close(context.WithoutCancel(ctx)), b.release())
	}
	return b, n, nil
}

// open makes the bridge, and the chain of rules that the kernel asks about what comes and goes
// there.
func (n *namespaces) open(ctx context.Context) error {
	bridge := n.bridge()
	own := netip.PrefixFrom(n.block.address(others, placesMax), n.block.prefix().Bits())
	commands := []string{
		fmt.Sprintf("link add %s type bridge", bridge),
		fmt.Sprintf("addr add %s dev %s", own, bridge),
		fmt.Sprintf("link set %s up", bridge),
		// All addresses of these parts are this machine's, without a word for each.
		fmt.Sprintf("route add local %s dev %s", n.block.part(advertised), bridge),
		fmt.Sprintf("route add local %s dev %s", n.block.part(callers), bridge),
	}
	if err := run(ctx, strings.Join(commands, "\n"), "ip", "-batch", "-"); err != nil {
		return err
	}
	if err := n.enforce(ctx, nil); err != nil {
		return err
	}
	chain := n.chain()
	if err := run(ctx, "", "iptables", "-w", "-I", "INPUT", "-i", bridge, "-j", chain); err != nil {
		return err
	}
	return run(ctx, "", "iptables", "-w", "-I", "OUTPUT", "-o", bridge, "-j", chain)
}

// add makes the namespace of a node.
func (n *namespaces) add(ctx context.Context, m *member) error {
	space, cable := n.space(m.name), fmt.Sprintf("%s%d-%d", cablePrefix, n.block.number, m.number)
	commands := []string{
		"netns add " + space,
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", cable, space),
		fmt.Sprintf("link set %s master %s", cable, n.bridge()),
		// A node reaches the proxies only, never another node past them.
		fmt.Sprintf("link set %s type bridge_slave isolated on", cable),
		fmt.Sprintf("link set %s up", cable),
	}
	if err := run(ctx, strings.Join(commands, "\n"), "ip", "-batch", "-"); err != nil {
		return fmt.Errorf("making the namespace of %s: %w", m.name, err)
	}
	inside := []string{
		"link set lo up",
		fmt.Sprintf("addr add %s dev eth0", netip.PrefixFrom(m.host, n.block.prefix().Bits())),
		"link set eth0 up",
	}
	if err := run(ctx, strings.Join(inside, "\n"), "ip", "-netns", space, "-batch", "-"); err != nil {
		return fmt.Errorf("setting up the namespace of %s: %w", m.name, err)
	}
	return nil
}

// wrap puts a command into the namespace of a node. The process keeps its id: the tool becomes the
// program.
func (n *namespaces) wrap(name string, cmd *exec.Cmd) {
	//nolint:noctx // only its path is used
	tool := exec.Command("nsenter", "--net="+spaceFolder+"/"+n.space(name), "--", cmd.Path)
	args := cmd.Args
	cmd.Path, cmd.Args = tool.Path, tool.Args
	if len(args) > 0 {
		cmd.Args = append(cmd.Args, args[1:]...)
	}
}

// enforce makes the kernel drop exactly the traffic of these ways. It is one change, so no packet
// reaches half of it.
//
// A way is cut where it enters the proxy, from the node to the face of the other, and where it
// leaves the proxy, from the face of the node to the other. Answers to connections of the other
// direction use the same two addresses and are cut too. A network that drops one direction loses
// acknowledgements in the same way.
func (n *namespaces) enforce(ctx context.Context, drops []drop) error {
	var script strings.Builder
	chain := n.chain()
	fmt.Fprintf(&script, "*filter\n:%s - [0:0]\n", chain)
	for _, d := range drops {
		match := fmt.Sprintf("-p tcp -m multiport --ports %d", d.service.Port())
		if d.from.host.IsValid() {
			fmt.Fprintf(&script, "-A %s -s %s -d %s %s -j DROP\n", chain, d.from.host, d.to.face, match)
		}
		if d.to.host.IsValid() {
			fmt.Fprintf(&script, "-A %s -s %s -d %s %s -j DROP\n", chain, d.from.face, d.to.host, match)
		}
		if d.service == Gossip {
			packets := strings.Replace(match, "tcp", "udp", 1)
			fmt.Fprintf(&script, "-A %s -s %s -d %s %s -j DROP\n", chain, d.from.host, d.to.face, packets)
			fmt.Fprintf(&script, "-A %s -s %s -d %s %s -j DROP\n", chain, d.from.face, d.to.host, packets)
		}
	}
	// What this machine's own rules say about strangers is not about the nodes.
	fmt.Fprintf(&script, "-A %s -s %s -d %s -j ACCEPT\nCOMMIT\n", chain, n.block.prefix(), n.block.prefix())
	return run(ctx, script.String(), "iptables-restore", "-w", "--noflush")
}

func (n *namespaces) space(node string) string {
	return fmt.Sprintf("%s%d-%s", spacePrefix, n.block.number, node)
}
func (n *namespaces) bridge() string { return bridgePrefix + strconv.Itoa(n.block.number) }
func (n *namespaces) chain() string  { return chainPrefix + strconv.Itoa(n.block.number) }

// close removes everything. A process that still runs in a namespace keeps it, without a cable.
func (n *namespaces) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removeMax)
	defer cancel()
	left, err := leftovers(ctx)
	if err != nil {
		return err
	}
	return n.remove(ctx, left[n.block.number])
}

// leftover is what there is in the kernel of one block.
type leftover struct {
	spaces, cables []string
	bridge, chain  bool
}

// remove removes what there is.
func (n *namespaces) remove(ctx context.Context, left leftover) error {
	var problems []error
	for _, cable := range left.cables {
		problems = append(problems, run(ctx, "", "ip", "link", "del", cable))
	}
	for _, space := range left.spaces {
		problems = append(problems, run(ctx, "", "ip", "netns", "del", space))
	}
	if left.chain {
		// After a start that was interrupted one of the jumps may not be there.
		_ = run(ctx, "", "iptables", "-w", "-D", "INPUT", "-i", n.bridge(), "-j", n.chain())
		_ = run(ctx, "", "iptables", "-w", "-D", "OUTPUT", "-o", n.bridge(), "-j", n.chain())
		problems = append(problems, run(ctx, "", "iptables", "-w", "-F", n.chain()),
			run(ctx, "", "iptables", "-w", "-X", n.chain()))
	}
	if left.bridge {
		problems = append(problems, run(ctx, "", "ip", "link", "del", n.bridge()))
	}
	return errors.Join(problems...)
}

// sweep removes the remains of runs whose process is gone: their block has no lock holder.
func sweep(ctx context.Context) error {
	all, err := leftovers(ctx)
	if err != nil {
		return err
	}
	var problems []error
	for number := range all {
		n := &namespaces{block: &block{number: number, namespaces: true}}
		if n.block.take(ctx) == nil {
			// what is there now: another run may have swept meanwhile
			problems = append(problems, n.close(ctx), n.block.release())
		}
	}
	return errors.Join(problems...)
}

// leftovers returns what there is in the kernel, by block.
func leftovers(ctx context.Context) (map[int]leftover, error) {
	all := map[int]leftover{}
	note := func(name, prefix string, add func(*leftover)) {
		rest, ok := strings.CutPrefix(name, prefix)
		digits, _, _ := strings.Cut(rest, "-")
		if number, err := strconv.Atoi(digits); ok && err == nil && number >= 0 && number < blocks {
			left := all[number]
			add(&left)
			all[number] = left
		}
	}
	spaces, err := os.ReadDir(spaceFolder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("looking for namespaces: %w", err)
	}
	for _, s := range spaces {
		note(s.Name(), spacePrefix, func(l *leftover) { l.spaces = append(l.spaces, s.Name()) })
	}
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("looking for bridges: %w", err)
	}
	for _, l := range links {
		note(l.Name, bridgePrefix, func(l *leftover) { l.bridge = true })
		note(l.Name, cablePrefix, func(of *leftover) { of.cables = append(of.cables, l.Name) })
	}
	rules, err := exec.CommandContext(ctx, "iptables-save", "-t", "filter").Output()
	if err != nil {
		return nil, fmt.Errorf("looking for rules with iptables-save: %w", err)
	}
	for line := range strings.Lines(string(rules)) {
		if name, ok := strings.CutPrefix(line, ":"); ok {
			name, _, _ = strings.Cut(name, " ")
			note(name, chainPrefix, func(l *leftover) { l.chain = true })
		}
	}
	return all, nil
}

// run runs a command to its end. The error holds what it said.
func run(ctx context.Context, input, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // the commands of this file
	cmd.Stdin = strings.NewReader(input)
	// an interrupt of the harness at a terminal must not interrupt its cleanup
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
