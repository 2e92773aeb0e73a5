package main

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/access"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The frames of gossip, and the types of its messages that attacks are made of.
const (
	gossipPacket    = "BG\x02p"
	gossipStream    = "BG\x02s"
	gossipKnock     = "BG\x02k\r\n\r\n"
	gossipChallenge = "BG\x02c"
	gossipHello     = "BG\x02h"

	challengeSize = 16

	gossipSuspect    = 3
	gossipAlive      = 4
	gossipDead       = 5
	gossipPushPull   = 6
	gossipCompound   = 7
	gossipUser       = 8
	gossipCompressed = 9
)

// recordGossip answers a node that opens a stream, and returns the first frame that it sends then;
// nil if that is no gossip.
func recordGossip(conn net.Conn) []byte {
	knock := make([]byte, len(gossipKnock))
	if _, err := io.ReadFull(conn, knock); err != nil || string(knock) != gossipKnock {
		return nil
	}
	if _, err := io.WriteString(conn, gossipChallenge+strings.Repeat("x", challengeSize)); err != nil {
		return nil
	}
	head := make([]byte, 8)
	if _, err := io.ReadFull(conn, head); err != nil || string(head[:4]) != gossipStream {
		return nil
	}
	content := make([]byte, min(binary.BigEndian.Uint32(head[4:]), 1<<20))
	if _, err := io.ReadFull(conn, content); err != nil {
		return nil
	}
	return append(head, content...)
}

// sealed returns what follows a head, bound to more than that.
func sealed(key []byte, head, bound, plain string) []byte {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil
	}
	return seal.Seal([]byte(head), nil, []byte(plain), []byte(head+bound))
}

// sealedStream returns a frame of a stream that began with a challenge.
func sealedStream(key []byte, challenge, plain string) []byte {
	return sealed(key, string(binary.BigEndian.AppendUint32([]byte(gossipStream), uint32(len(plain)+28))), challenge,
		plain) //nolint:gosec // it is small
}

// sealedPacket returns a packet of gossip that goes to n3.
func (s *siege) sealedPacket(key []byte, plain string) []byte {
	to, err := netip.ParseAddrPort(s.gossip[2])
	if err != nil {
		return nil
	}
	ip := to.Addr().As16()
	return sealed(key, gossipPacket, "", string(binary.BigEndian.AppendUint16(ip[:], to.Port()))+plain)
}

// trueKey is the gossip key of the cluster, keyless what nodes without one seal with.
func (s *siege) trueKey() []byte {
	keys, err := gossip.ReadKeyFile(filepath.Join(s.dir, access.GossipKeyFile))
	if err != nil {
		return nil
	}
	return keys[0]
}

func keyless() []byte {
	sum := sha256.Sum256([]byte("belfry gossip without a key, version 1"))
	return sum[:]
}

// packet is an attack of packets of gossip. The node says in its log, which is that of the most,
// what it thinks of the sender.
func packet(name string, made func(s *siege) []byte, says string) attack {
	return attack{name, func(s *siege) string {
		conn, err := net.Dial("udp", s.gossip[2]) //nolint:noctx // it does not wait
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		often := time.NewTicker(100 * time.Millisecond) // a packet may be lost
		defer often.Stop()
		for range attackTimeout / (100 * time.Millisecond) {
			if _, err := conn.Write(made(s)); err != nil {
				return err.Error()
			}
			<-often.C
			for line := range strings.Lines(s.procs[2].stderr.String()) {
				if strings.Contains(line, conn.LocalAddr().String()) && strings.Contains(line, says) {
					return "n3 says: " + line
				}
			}
		}
		return "n3 says nothing"
	}, says}
}

// ping returns a question of gossip whether n3 is there, with a number by which its answer is
// known.
func (s *siege) ping(number byte) string {
	id := s.serverID(2)
	return "\x00\x82\xa5SeqNo" + string(rune(number)) + "\xa4Node" + string([]byte{0xa0 + byte(len(id))}) + id
}

// unheard is an attack of a packet of gossip that gets no answer: the ping under the true key that
// follows it gets the first.
func unheard(name string, made func(s *siege) []byte) attack {
	return attack{name, func(s *siege) string {
		conn, err := net.Dial("udp", s.gossip[2]) //nolint:noctx // it has deadlines
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		buf := make([]byte, 1<<16)
		for range attackTimeout / time.Second { // a packet may be lost
			_, first := conn.Write(made(s))
			_, second := conn.Write(s.sealedPacket(s.trueKey(), s.ping(7)))
			if err := errors.Join(first, second, conn.SetReadDeadline(time.Now().Add(time.Second))); err != nil {
				return err.Error()
			}
			n, err := conn.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				continue
			}
			plain, opened := unsealed(s.trueKey(), buf[:n])
			if strings.Contains(plain, "SeqNo\x07") && !strings.Contains(plain, "SeqNo\x01") {
				return "only the ping under the key is answered"
			}
			return fmt.Sprintf("the answer is %q: %v, %v", plain, err, opened)
		}
		return "not even a ping under the key is answered"
	}, "only the ping under the key is answered"}
}

// unsealed opens a packet of gossip.
func unsealed(key, frame []byte) (string, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return "", err
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil || len(frame) < len(gossipPacket) {
		return "", err
	}
	plain, err := seal.Open(nil, nil, frame[len(gossipPacket):], frame[:len(gossipPacket)])
	return string(plain), err
}

// again is an attack of a packet that was recorded on its way to n3. It is opened once, and n3 says
// so of each repeat. The list of members stays as it was.
func again(name string, message func(s *siege) string) attack {
	var frame []byte
	repeat := packet(name, func(s *siege) []byte {
		if frame == nil {
			frame = s.sealedPacket(s.trueKey(), message(s))
		}
		return frame
	}, "opened before")
	return attack{name, func(s *siege) string {
		told := repeat.try(s)
		c, got := &belfryv1.GetClusterResponse{}, s.procs[2].run(launcher, "cluster", "status", "-o", "json")
		if err := cli.DecodeJSON([]byte(got.Out), c); err != nil {
			return err.Error()
		}
		silent := slices.ContainsFunc(c.Nodes, func(n *belfryv1.Node) bool { return n.SilentSince != nil })
		return fmt.Sprintf("%d nodes more, one is silent: %t; %s", len(c.Nodes)-len(s.members.Nodes), silent, told)
	}, "0 nodes more, one is silent: false; n3 says: "}
}

// gossipMessage returns a gossip message of a kind about a node.
func gossipMessage(kind byte, id string, fields int) string {
	return string([]byte{kind, 0x80 | byte(fields)}) + "\xabIncarnation\x00\xa4Node" +
		string([]byte{0xa0 + byte(len(id))}) + id
}

// streaming is an attack of a frame on a stream of gossip, without a knock before it.
func streaming(name, frame string) attack {
	return attack{name, func(s *siege) string {
		return talk(s.gossip[2], nil, func(conn net.Conn) { _, _ = io.WriteString(conn, frame) })
	}, ", closed"}
}

// knocking is an attack of a frame on a stream of gossip to which the node at an address gave its
// challenge.
func knocking(name string, made func(s *siege, challenge string) []byte, want string) attack {
	return attack{name, func(s *siege) string { return s.knock(s.gossip[2], made) }, want}
}

// knock is what a node answers to a frame behind its challenge.
func (s *siege) knock(address string, made func(s *siege, challenge string) []byte) string {
	conn, err := reach(address, nil)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	challenge := make([]byte, len(gossipChallenge)+challengeSize)
	if _, err := io.WriteString(conn, gossipKnock); err != nil {
		return err.Error()
	}
	if _, err := io.ReadFull(conn, challenge); err != nil || !strings.HasPrefix(string(challenge), gossipChallenge) {
		return fmt.Sprintf("the challenge is %x, %v", challenge, err)
	}
	return converse(conn, func(conn net.Conn) { _, _ = conn.Write(made(s, string(challenge[len(gossipChallenge):]))) })
}

// joining is an attack by a node that wants to be part of gossip, and what it complains of.
func joining(name string, change func(s *siege, cfg *gossip.Config), want string) attack {
	return attack{name, func(s *siege) string {
		cfg := gossip.Config{
			Self: gossip.Info{
				Cluster: s.members.ClusterId, Name: "n9", ServerID: "n9.0123456789abcdef", PeerAddr: "127.0.0.1:9",
				ClientAddr: "127.0.0.1:9", Shards: 2, Format: 1,
			},
			Listen: "127.0.0.1:0", Join: []string{s.gossip[2]}, KeyFile: filepath.Join(s.dir, access.GossipKeyFile),
			Logger: slog.New(slog.DiscardHandler),
		}
		change(s, &cfg)
		g, err := gossip.Start(s.t.Context(), cfg)
		if err != nil {
			return err.Error()
		}
		defer g.Close()
		often := time.NewTicker(10 * time.Millisecond)
		defer often.Stop()
		for range attackTimeout / (10 * time.Millisecond) {
			if problems := g.Problems(); len(problems) > 0 {
				return fmt.Sprintf("it sees %d nodes: %s", len(g.Members()), problems[0].Text)
			}
			<-often.C
		}
		return "nothing is said"
	}, want}
}

// gossipAttacks are what strangers, and programs with the key, try where nodes look for each other.
func gossipAttacks() []attack {
	const malformed = "refusing a message"
	const refused = "42470272, closed" // "BG", version 2, refused
	with := func(plain string) func(s *siege) []byte {
		return func(s *siege) []byte { return s.sealedPacket(s.trueKey(), plain) }
	}
	stream := func(key func(s *siege) []byte, plain string) func(*siege, string) []byte {
		return func(s *siege, challenge string) []byte { return sealedStream(key(s), challenge, plain) }
	}
	after := func(frame string) func(*siege, string) []byte {
		return func(*siege, string) []byte { return []byte(frame) }
	}
	always := func(frame []byte) func(s *siege) []byte { return func(*siege) []byte { return frame } }
	other := make([]byte, 32)
	compound := string([]byte{gossipCompound, 1, 0, 4, gossipCompound, 1, 0, 0})
	manyNodes := string([]byte{gossipPushPull}) + "\x83\xa5Nodes\xce\x7f\xff\xff\xff\xacUserStateLen\x00\xa4Join\xc2"
	return []attack{
		packet("gossip: a packet of garbage", always([]byte(strings.Repeat("x", 1000))), malformed),
		unheard("gossip: a ping without a key", func(s *siege) []byte { return s.sealedPacket(keyless(), s.ping(1)) }),
		unheard("gossip: a ping under another key", func(s *siege) []byte { return s.sealedPacket(other, s.ping(1)) }),
		unheard("gossip: a ping under the key with a bit flipped", func(s *siege) []byte {
			frame := s.sealedPacket(s.trueKey(), s.ping(1))
			frame[len(frame)/2] ^= 1
			return frame
		}),
		packet("gossip: an empty packet", always([]byte(gossipPacket)), malformed),
		packet("gossip: a packet of another version", always([]byte("BG\x09p"+strings.Repeat("x", 60))), malformed),
		unheard("gossip: a packet of 60,000 bytes, under the key", with(strings.Repeat("x", 60_000))),
		packet("gossip: with the key, an empty message", with(""), malformed),
		packet("gossip: with the key, what may unfold to gigabytes",
			with(string([]byte{gossipCompressed})+strings.Repeat("x", 100)), malformed),
		packet("gossip: with the key, a message of a user", with(string([]byte{gossipUser})+"x"), malformed),
		packet("gossip: with the key, a compound in a compound", with(compound), malformed),
		packet("gossip: with the key, a compound cut short", with(compound[:2]), malformed),
		unheard("gossip: a ping under the key that went to another node", func(s *siege) []byte {
			return sealed(s.trueKey(), gossipPacket, "", strings.Repeat("x", 18)+s.ping(1))
		}),
		again("gossip: that n9 is there, again", func(*siege) string {
			return gossipMessage(gossipAlive, "n9.0123456789abcdef", 6) +
				"\xa4Addr\xa4\x7f\x00\x00\x01\xa4Port\x09\xa4Meta\xa1m\xa3Vsn\xa6\x01\x05\x02\x00\x00\x00"
		}),
		again("gossip: that n2 may be dead, again", func(s *siege) string {
			return gossipMessage(gossipSuspect, s.serverID(1), 3) + "\xa4From\xa2n1"
		}),
		again("gossip: that n2 is dead, again", func(s *siege) string {
			return gossipMessage(gossipDead, s.serverID(1), 3) + "\xa4From\xa2n1"
		}),
		streaming("gossip: a stream of HTTP", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		streaming("gossip: a silent stream", ""),
		streaming("gossip: a frame without a knock", string(sealed(keyless(), gossipStream+"\x00\x00\x00\x1d", "", "x"))),
		knocking("gossip: a knock, and nothing after it", after(""), ", closed"),
		knocking("gossip: half a frame", after(gossipStream+"\x00\x00\x10\x00x"), ", closed"),
		knocking("gossip: a frame of 4 GiB", after(gossipStream+"\xff\xff\xff\xff"+strings.Repeat("x", 1000)), ", closed"),
		knocking("gossip: a stream without a key", stream(func(*siege) []byte { return keyless() }, "x"), refused),
		knocking("gossip: a stream under another key", stream(func(*siege) []byte { return other }, "x"), refused),
		knocking("gossip: with the key, two billion nodes", stream((*siege).trueKey, manyNodes), ", closed"),
		{"gossip: what n2 said earlier, again, to n3 and n1", func(s *siege) string {
			earlier := after(string(<-s.recorded))
			return s.knock(s.gossip[2], earlier) + "; " + s.knock(s.gossip[0], earlier)
		}, refused + "; " + refused},
		joining("gossip: a node of another cluster that has the key", func(_ *siege, cfg *gossip.Config) {
			cfg.Self.Cluster = "another"
		}, "it sees 0 nodes: "),
		joining("gossip: a node that has no key", func(_ *siege, cfg *gossip.Config) {
			cfg.KeyFile, cfg.Insecure = "", true
		}, "it sees 0 nodes: "),
		joining("gossip: a node of another authority, with its key", func(s *siege, cfg *gossip.Config) {
			cfg.KeyFile = filepath.Join(s.foreign, access.GossipKeyFile)
		}, "it sees 0 nodes: "),
	}
}
