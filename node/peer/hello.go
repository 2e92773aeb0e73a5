package peer

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/founding"
)

// Introduction is what a node tells a stranger about itself.
type Introduction struct {
	// ClusterID is the cluster of the node, empty if it has none yet; ServerID is its server id:
	// name.incarnation.
	ClusterID, ServerID string
	// Shards is the number of shards of the cluster, or of the one that the node would found.
	Shards int
	// Founder is for a node without a cluster: the server id of the node that it lets found one,
	// its own if it is about to do so. It is empty until the node has agreed to a founder.
	Founder string
	// Format is the format in which the node writes. A node that does not read it cannot join. For
	// a node without a cluster, it is the latest format that it reads.
	Format fsm.Format
	// Founding is how the cluster of the node was founded by several; nil if it was not.
	Founding *founding.Plan
}

// Hello asks the node that listens for its peers at addr who it is. The caller need not be a node
// yet. dial is as in Config; nil dials TCP. After the dialling, Hello takes at most five seconds.
func Hello(ctx context.Context, dial func(ctx context.Context, addr string) (net.Conn, error),
	addr string) (Introduction, error) {
	return hello(ctx, dial, addr, "")
}

// AskToFound is Hello of a node without a cluster that wants to found one. The answer says whether
// the other node lets asker, the server id of this node, found it. See AnswerStrangers.
func AskToFound(ctx context.Context, dial func(ctx context.Context, addr string) (net.Conn, error), addr,
	asker string) (Introduction, error) {
	return hello(ctx, dial, addr, asker)
}

func hello(ctx context.Context, dial func(ctx context.Context, addr string) (net.Conn, error), addr,
	asker string) (Introduction, error) {
	if dial == nil {
		dial = dialTCP
	}
	conn, err := dial(ctx, addr)
	if err != nil {
		return Introduction{}, fmt.Errorf("dialling %s: %w", addr, err)
	}
	defer func() { _ = conn.Close() }() // everything that matters was read
	var intro Introduction
	err = during(ctx, conn, func() (err error) {
		if intro, err = askWho(conn, asker); err != nil {
			return err
		}
		return disproved(conn, intro.ServerID)
	})
	if err != nil {
		return Introduction{}, fmt.Errorf("asking %s which cluster it belongs to: %w", addr, err)
	}
	return intro, nil
}

// askWho is a stranger's side of a Hello.
func askWho(conn net.Conn, asker string) (Introduction, error) {
	if err := writeGreeting(conn, greeting{version: protocolVersion, group: helloGroup, sender: asker}); err != nil {
		return Introduction{}, err
	}
	reply, err := readGreeting(conn)
	if err != nil {
		return Introduction{}, err
	}
	if reply.verdict != accepted || reply.version != protocolVersion {
		return Introduction{}, fmt.Errorf("%s: by %s", reply.verdict, reply)
	}
	var rest [3]byte
	frame := &frameReader{from: conn}
	if _, err := io.ReadFull(frame, rest[:]); err != nil {
		return Introduction{}, fmt.Errorf("reading the number of shards and the format: %w", err)
	}
	intro := Introduction{
		ClusterID: reply.cluster, ServerID: reply.sender, Shards: int(binary.BigEndian.Uint16(rest[:2])),
		Format: fsm.Format(rest[2]), Founder: reply.receiver,
	}
	if reply.group != helloGroup || intro.ServerID == "" || intro.Shards < 1 || intro.Shards > founding.ShardsMax ||
		intro.Format < fsm.FirstFormat {
		return Introduction{}, fmt.Errorf("the answer %s with %d shards and format %d makes no sense", reply, intro.Shards,
			intro.Format)
	}
	if rest := frame.unread(); len(rest) > 0 {
		intro.Founding = &founding.Plan{}
		if err := json.Unmarshal(rest, intro.Founding); err != nil {
			return Introduction{}, fmt.Errorf("reading how the cluster was founded: %w", err)
		}
		if err := intro.Founding.Check(intro.Shards); err != nil {
			return Introduction{}, err
		}
	}
	return intro, nil
}

// introduce answers a stranger.
func (m *Mux) introduce(conn net.Conn) error {
	return writeIntroduction(conn, Introduction{
		//nolint:gosec // it was a format
		ClusterID: m.cfg.ClusterID, ServerID: m.cfg.Self, Shards: m.cfg.Shards, Format: fsm.Format(m.format.Load()),
		Founding: m.cfg.Founding,
	})
}

// writeIntroduction sends the answer to a stranger: a greeting and a frame. The frame has the
// number of shards in two bytes and the format in one. The rest says how several nodes founded the
// cluster, if they did. Programs before format 2 read only the first three bytes.
func writeIntroduction(conn net.Conn, intro Introduction) error {
	reply := greeting{version: protocolVersion, cluster: intro.ClusterID, group: helloGroup, sender: intro.ServerID,
		receiver: intro.Founder}
	if err := writeGreeting(conn, reply); err != nil {
		return err
	}
	rest := append(binary.BigEndian.AppendUint16(nil, uint16(intro.Shards)), byte(max(fsm.FirstFormat, intro.Format)))
	if intro.Founding != nil {
		rest = append(rest, intro.Founding.Encode()...)
	}
	if _, err := (&frameWriter{to: conn}).Write(rest); err != nil {
		return fmt.Errorf("sending the number of shards and the format: %w", err)
	}
	return nil
}

// dialTCP is the default of Config.Dial.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}
