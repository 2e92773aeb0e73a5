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
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/belfrydb/belfry/cluster/gossip"
)

// The frames of gossip, and the types of its messages that attacks are made of.
const (
	gossipPacket = "BG\x01p"
	gossipStream = "BG\x01s"
	gossipHello  = "BG\x01h"

	gossipPushPull   = 6
	gossipCompound   = 7
	gossipUser       = 8
	gossipCompressed = 9
)

// readGossip reads one frame of a stream.
func readGossip(conn net.Conn) []byte {
	head := make([]byte, 8)
	if _, err := io.ReadFull(conn, head[:4]); err != nil || string(head[:4]) != gossipStream {
		return nil
	}
	if _, err := io.ReadFull(conn, head[4:]); err != nil {
		return nil
	}
	content := make([]byte, min(binary.BigEndian.Uint32(head[4:]), 1<<20))
	if _, err := io.ReadFull(conn, content); err != nil {
		return nil
	}
	return append(head, content...)
}

// sealed returns a frame of gossip under a key.
func sealed(key []byte, kind, plain string) []byte {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil
	}
	head := []byte(kind)
	if kind == gossipStream {
		head = binary.BigEndian.AppendUint32(head, uint32(len(plain)+28)) //nolint:gosec // it is small
	}
	return seal.Seal(head, nil, []byte(plain), head)
}

// trueKey is the gossip key of the cluster, keyless what nodes without one seal with.
func (s *siege) trueKey() []byte {
	keys, err := gossip.ReadKeyFile(filepath.Join(s.dir, gossipKeyFile))
	if err != nil {
		return nil
	}
	return keys[0]
}

func keyless() []byte {
	sum := sha256.Sum256([]byte("belfry gossip without a key, version 1"))
	return sum[:]
}

// packet is an attack of packets of gossip. The node says in its log, which is that of the most, what it thinks of the sender.
func packet(name string, made func(s *siege) []byte, says string) attack {
	return attack{name, func(s *siege) string {
		conn, err := net.Dial("udp", s.gossip[2]) //nolint:noctx // it does not wait
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		often := time.NewTicker(100 * time.Millisecond) // a packet may be lost
		defer often.Stop()
		for range attackPatience / (100 * time.Millisecond) {
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

// ping returns a question of gossip whether n3 is there, with a number by which its answer is known.
func (s *siege) ping(number byte) string {
	id := s.serverID(2)
	return "\x00\x82\xa5SeqNo" + string(rune(number)) + "\xa4Node" + string([]byte{0xa0 + byte(len(id))}) + id
}

// unheard is an attack of a packet of gossip that gets no answer: the ping under the true key that follows it gets the first.
func unheard(name string, made func(s *siege) []byte) attack {
	return attack{name, func(s *siege) string {
		conn, err := net.Dial("udp", s.gossip[2]) //nolint:noctx // it has deadlines
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		buf := make([]byte, 1<<16)
		for range attackPatience / time.Second { // a packet may be lost
			_, first := conn.Write(made(s))
			_, second := conn.Write(sealed(s.trueKey(), gossipPacket, s.ping(7)))
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

// streaming is an attack of a frame on a stream of gossip.
func streaming(name string, made func(s *siege) []byte, want string) attack {
	return attack{name, func(s *siege) string {
		return talk(s.gossip[2], nil, func(conn net.Conn) { _, _ = conn.Write(made(s)) })
	}, want}
}

// joining is an attack by a node that wants to be part of gossip, and what it complains of.
func joining(name string, change func(s *siege, cfg *gossip.Config), want string) attack {
	return attack{name, func(s *siege) string {
		cfg := gossip.Config{
			Self: gossip.Info{
				Cluster: s.members.ClusterId, Name: "n9", ServerID: "n9.0123456789abcdef", PeerAddr: "127.0.0.1:9", ClientAddr: "127.0.0.1:9", Shards: 2, Format: 1,
			},
			Listen: "127.0.0.1:0", Join: []string{s.gossip[2]}, KeyFile: filepath.Join(s.dir, gossipKeyFile), Logger: slog.New(slog.DiscardHandler),
		}
		change(s, &cfg)
		g, err := gossip.Start(s.t.Context(), cfg)
		if err != nil {
			return err.Error()
		}
		defer g.Close()
		often := time.NewTicker(10 * time.Millisecond)
		defer often.Stop()
		for range attackPatience / (10 * time.Millisecond) {
			if problems := g.Problems(); len(problems) > 0 {
				return fmt.Sprintf("it sees %d nodes: %s", len(g.Members()), problems[0].Text)
			}
			<-often.C
		}
		return "nothing is said"
	}, want}
}

// gossipAttacks are what strangers, and whoever has the key, try where nodes look for each other.
func gossipAttacks() []attack {
	const malformed = "refusing a message"
	with := func(kind, plain string) func(s *siege) []byte {
		return func(s *siege) []byte { return sealed(s.trueKey(), kind, plain) }
	}
	always := func(frame []byte) func(s *siege) []byte { return func(*siege) []byte { return frame } }
	other := make([]byte, 32)
	compound := string([]byte{gossipCompound, 1, 0, 4, gossipCompound, 1, 0, 0})
	manyNodes := string([]byte{gossipPushPull}) + "\x83\xa5Nodes\xce\x7f\xff\xff\xff\xacUserStateLen\x00\xa4Join\xc2"
	return []attack{
		packet("gossip: a packet of garbage", always([]byte(strings.Repeat("x", 1000))), malformed),
		unheard("gossip: a ping without a key", func(s *siege) []byte { return sealed(keyless(), gossipPacket, s.ping(1)) }),
		unheard("gossip: a ping under another key", func(s *siege) []byte { return sealed(other, gossipPacket, s.ping(1)) }),
		unheard("gossip: a ping under the key with a bit flipped", func(s *siege) []byte {
			frame := sealed(s.trueKey(), gossipPacket, s.ping(1))
			frame[len(frame)/2] ^= 1
			return frame
		}),
		packet("gossip: an empty packet", always([]byte(gossipPacket)), malformed),
		packet("gossip: a packet of another version", always([]byte("BG\x09p"+strings.Repeat("x", 60))), malformed),
		unheard("gossip: a packet of 60,000 bytes, under the key", with(gossipPacket, strings.Repeat("x", 60_000))),
		packet("gossip: with the key, an empty message", with(gossipPacket, ""), malformed),
		packet("gossip: with the key, what may unfold to gigabytes", with(gossipPacket, string([]byte{gossipCompressed})+strings.Repeat("x", 100)), malformed),
		packet("gossip: with the key, a message of a user", with(gossipPacket, string([]byte{gossipUser})+"x"), malformed),
		packet("gossip: with the key, a compound in a compound", with(gossipPacket, compound), malformed),
		packet("gossip: with the key, a compound cut short", with(gossipPacket, compound[:2]), malformed),
		streaming("gossip: a stream of HTTP", always([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")), ", closed"),
		streaming("gossip: a silent stream", always(nil), ", closed"),
		streaming("gossip: half a frame", always([]byte("BG\x01s\x00\x00\x10\x00x")), ", closed"),
		streaming("gossip: a frame of 4 GiB", always([]byte("BG\x01s\xff\xff\xff\xff"+strings.Repeat("x", 1000))), ", closed"),
		streaming("gossip: a stream without a key", always(sealed(keyless(), gossipStream, "x")), "42470172, closed"), // "BG", version 1, refused
		streaming("gossip: a stream under another key", always(sealed(other, gossipStream, "x")), "42470172, closed"),
		streaming("gossip: with the key, two billion nodes", with(gossipStream, manyNodes), ", closed"),
		streaming("gossip: what n2 said earlier, again", func(s *siege) []byte {
			return <-s.recorded
		}, "42470173"), // a sealed answer, which whoever has no key cannot open
		joining("gossip: a node of another cluster that has the key", func(_ *siege, cfg *gossip.Config) { cfg.Self.Cluster = "another" }, "it sees 0 nodes: "),
		joining("gossip: a node that has no key", func(_ *siege, cfg *gossip.Config) { cfg.KeyFile, cfg.Insecure = "", true }, "it sees 0 nodes: "),
		joining("gossip: a node of another authority, with its key", func(s *siege, cfg *gossip.Config) { cfg.KeyFile = filepath.Join(s.foreign, gossipKeyFile) }, "it sees 0 nodes: "),
	}
}
