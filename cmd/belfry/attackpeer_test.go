package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// silentCrowd is more connections than a node listens to at one time, for peers and for gossip.
const silentCrowd = 300

// greeting is what opens a connection between nodes, with a group and a sender.
type greeting struct {
	version                          byte
	cluster, group, sender, receiver string
}

// bytes returns the greeting as it is sent.
func (g greeting) bytes() []byte {
	b := append([]byte("BLFY"), g.version, 0)
	for _, text := range []string{g.cluster, g.group, g.sender, g.receiver} {
		b = append(append(b, byte(len(text))), text...)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// serverID returns that of a node of the cluster.
func (s *siege) serverID(i int) string {
	return s.members.Nodes[i].Name + "." + s.members.Nodes[i].Incarnation
}

// from returns the greeting of a node for a shard of the first one.
func (s *siege) from(sender string) greeting {
	return greeting{2, s.members.ClusterId, "shard-0", sender, s.serverID(0)}
}

// certificate returns what a file and its key have.
func certificate(dir, name string) (tls.Certificate, error) {
	return tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem"))
}

// issued returns a certificate of the cluster's own authority that names what uri says, or nothing,
// until then.
func (s *siege) issued(uri string, until time.Time) (tls.Certificate, error) {
	authority, err := certificate(s.dir, "ca")
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "n4"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if name, err := url.Parse(uri); err == nil && uri != "" {
		template.URIs = []*url.URL{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, key.Public(), authority.PrivateKey)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// peering is an attack on the peer port with a certificate, nil for none, and what is said after
// the handshake. What came as an answer to a greeting is told by its verdict.
func peering(name string, cert func(s *siege) (tls.Certificate, error), say func(s *siege) []byte, want string) attack {
	return attack{name, func(s *siege) string {
		cfg := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13} //nolint:gosec // attackers trust anybody
		if cert != nil {
			pair, err := cert(s)
			if err != nil {
				return err.Error()
			}
			cfg.Certificates = []tls.Certificate{pair}
		}
		heard := talk(s.procs[0].peers, cfg, func(conn net.Conn) { _, _ = conn.Write(say(s)) })
		if b, err := hex.DecodeString(heard[:min(12, len(heard))]); err == nil && len(b) == 6 && string(b[:4]) == "BLFY" {
			_, end, _ := strings.Cut(heard, ",")
			return fmt.Sprintf("verdict %d,%s", b[5], end)
		}
		return heard
	}, want}
}

// peerAttacks are what strangers, and nodes with a certificate that is another's, try where nodes
// talk to each other.
func peerAttacks() []attack {
	foreign := func(s *siege) (tls.Certificate, error) { return certificate(s.foreign, "n2") }
	own := func(s *siege) (tls.Certificate, error) { return certificate(s.dir, "n4") }
	fake := func(uri string, until time.Duration) func(s *siege) (tls.Certificate, error) {
		return func(s *siege) (tls.Certificate, error) {
			return s.issued(strings.Replace(uri, "DOMAIN", s.domain, 1), time.Now().Add(until))
		}
	}
	posing := func(s *siege) []byte { return s.from(s.serverID(1)).bytes() }
	n4 := func(change func(g *greeting)) func(s *siege) []byte {
		return func(s *siege) []byte {
			g := s.from("n4.0123456789abcdef")
			change(&g)
			return g.bytes()
		}
	}
	bare := func(name, text string) attack {
		return attack{name, func(s *siege) string {
			return talk(s.procs[0].peers, nil, func(conn net.Conn) { _, _ = io.WriteString(conn, text) })
		}, "closed"}
	}
	after := func(more string) func(s *siege) []byte {
		return func(s *siege) []byte { return append(n4(func(*greeting) {})(s), more...) }
	}
	return []attack{
		bare("peers: silence", ""),
		bare("peers: HTTP without TLS", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		bare("peers: garbage instead of TLS", strings.Repeat("\xff", 1<<16)),
		{"peers: a greeting without TLS", func(s *siege) string {
			return talk(s.procs[0].peers, nil, func(conn net.Conn) { _, _ = conn.Write(posing(s)) })
		}, "closed"},
		peering("peers: TLS without a certificate", nil, posing, "certificate required"),
		peering("peers: a certificate of another authority for the domain", foreign, posing, "bad certificate"),
		peering("peers: the authority's certificate for another domain",
			fake("belfry://"+strings.Repeat("a", 32)+"/node/n2", time.Hour), posing, "bad certificate"),
		peering("peers: the authority's certificate for no node", fake("", time.Hour), posing, "bad certificate"),
		peering("peers: a certificate that has expired", fake("belfry://DOMAIN/node/n2", -time.Minute), posing,
			"bad certificate"),
		peering("peers: n4's certificate, as n2", own, posing, "verdict 7, closed"),
		peering("peers: another cluster", own, n4(func(g *greeting) {
			g.cluster = strings.Repeat("0", len(g.cluster))
		}), "verdict 2, closed"),
		peering("peers: another cluster, with a certificate made like the expired one",
			fake("belfry://DOMAIN/node/n4", time.Hour), n4(func(g *greeting) {
				g.cluster = "x"
			}), "verdict 2, closed"),
		peering("peers: for another node", own, n4(func(g *greeting) {
			g.receiver = "n2.0123456789abcdef"
		}), "verdict 3, closed"),
		peering("peers: as the node itself", own, n4(func(g *greeting) { g.sender = g.receiver }), "verdict 4, closed"),
		peering("peers: from nobody", own, n4(func(g *greeting) { g.sender = "" }), "verdict 4, closed"),
		peering("peers: for a group that there is not", own, n4(func(g *greeting) {
			g.group = "shard-99"
		}), "verdict 5, closed"),
		peering("peers: another version", own, n4(func(g *greeting) { g.version = 99 }), "verdict 1, closed"),
		peering("peers: silence after TLS", own, func(*siege) []byte { return nil }, "closed"),
		peering("peers: garbage after TLS", own, func(*siege) []byte { return bytes.Repeat([]byte{0xff}, 1<<16) }, "closed"),
		peering("peers: a greeting with a wrong sum", own, func(s *siege) []byte {
			return append(posing(s)[:20], make([]byte, 300)...)
		}, "closed"),
		peering("peers: half a greeting", own, func(s *siege) []byte { return posing(s)[:20] }, "closed"),
		peering("peers: garbage after the greetings", own, after(strings.Repeat("\xff", 1<<16)), "verdict 0, closed"),
		peering("peers: a frame of 4 GiB", own, after(string(frameOf(1<<32-1))), "verdict 0, closed"),
	}
}

// frameOf returns the head of a frame between nodes, the first of a connection, of so many bytes.
func frameOf(size uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, size)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return append(b, make([]byte, 1<<16)...)
}

// silence opens a crowd of connections that say nothing, asks something among them, and waits until
// all are closed.
func silence(address string, ask func() string) string {
	var crowd []net.Conn
	defer func() {
		for _, conn := range crowd {
			_ = conn.Close()
		}
	}()
	for range silentCrowd {
		conn, err := reach(address, nil)
		if err != nil {
			return err.Error()
		}
		crowd = append(crowd, conn)
	}
	answer := ask()
	for _, conn := range crowd {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !strings.Contains(fmt.Sprint(err), "reset") {
			return fmt.Sprintf("a silent connection ends with %v", err)
		}
	}
	return fmt.Sprintf("all closed, and a node is answered %s", answer)
}

// crowdAttacks fill the ports.
func crowdAttacks() []attack {
	return []attack{
		{"peers: 300 that say nothing", func(s *siege) string {
			return silence(s.procs[0].peers, func() string {
				pair, err := certificate(s.dir, "n4")
				if err != nil {
					return err.Error()
				}
				cfg := &tls.Config{
					InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
				} //nolint:gosec // it only asks which node is here
				return talk(s.procs[0].peers, cfg, func(conn net.Conn) {
					_, _ = conn.Write(greeting{version: 2, group: "hello"}.bytes())
				})
			})
		}, "and a node is answered 424c4659"},
		{"gossip: 300 streams that say nothing", func(s *siege) string {
			return silence(s.gossip[2], func() string {
				return talk(s.gossip[2], nil, func(conn net.Conn) { _, _ = io.WriteString(conn, gossipHello) })
			})
		}, "and a node is answered 42470268"},
		{"a crowd of HTTP/2 connections without a stream, and one of connections that say nothing", func(s *siege) string {
			var crowd []net.Conn
			defer func() {
				for _, conn := range crowd {
					_ = conn.Close()
				}
			}()
			for i := range 2 * attackFiles {
				// Those that say nothing come last: they cost no handshake, so they are there all at one
				// time, before any is closed for its silence, however busy the machine is.
				var secure *tls.Config
				if i < attackFiles {
					secure = s.client("h2")
				}
				conn, err := reach(s.procs[0].address, secure)
				if err != nil {
					return err.Error()
				}
				crowd = append(crowd, conn)
				if secure != nil {
					_, _ = conn.Write(append([]byte(http2Preface), http2Frame(http2Settings, 0, 0, "")...))
				}
			}
			answer := s.ask(s.procs[0], "shop", http.MethodPost, "/v1/put", putShop)
			for _, conn := range crowd[:len(crowd)-attackFiles/2] {
				_, _ = io.Copy(io.Discard, conn) // it is closed although it might stay for two minutes
			}
			if !strings.Contains(s.procs[0].stderr.String(), "there are too many connections of clients") {
				return "the log does not say that there are too many"
			}
			return "those that were silent for longest were closed, and a put is answered " + answer
		}, "a put is answered 200"},
		{"a window of 0 on as many connections as there may be, over and over", unreadCrowd,
			"/livez is answered 200 , a put with a token 200"},
	}
}
