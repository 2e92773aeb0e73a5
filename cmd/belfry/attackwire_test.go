package main

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/belfrydb/belfry/stream"
)

// saying is an attack of bytes over TLS, until the node closes.
func saying(name, text, want string) attack {
	return attack{name, func(s *siege) string {
		return talk(s.procs[0].address, s.client("http/1.1"), func(conn net.Conn) { _, _ = io.WriteString(conn, text) })
	}, want}
}

// slowAttacks take their time.
func slowAttacks() []attack {
	old := func(s *siege) *tls.Config {
		cfg := s.client("http/1.1")
		cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS10, tls.VersionTLS12
		return cfg
	}
	bare := func(name, text, want string) attack {
		return attack{name, func(s *siege) string {
			return talk(s.procs[0].address, nil, func(conn net.Conn) { _, _ = io.WriteString(conn, text) })
		}, want}
	}
	slow := func(name, head, want string) attack {
		return attack{name, func(s *siege) string {
			return talk(s.procs[0].address, s.client("http/1.1"), func(conn net.Conn) {
				_, _ = io.WriteString(conn, strings.ReplaceAll(head, "TOKEN", s.tokens["shop"]))
				drip(conn)
			})
		}, want}
	}
	return []attack{
		bare("HTTP without TLS", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.0 400 Bad Request, closed"),
		bare("HTTP/2 without TLS", http2Preface, "closed"),
		bare("silence instead of TLS", "", "closed"),
		bare("half a greeting of TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "closed"),
		bare("garbage instead of TLS", strings.Repeat("\xff", 4096), "closed"),
		{"TLS 1.2", func(s *siege) string { return talk(s.procs[0].address, old(s), func(net.Conn) {}) }, "protocol version"},
		slow("garbage that drips after TLS", "", "closed"),
		saying("silence after TLS", "", "closed"),
		slow("a head that drips", "GET /livez HTTP/1.1\r\nHost: x\r\nX: ", "closed"),
		slow("a body that drips, without a token", "POST /v1/put HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
			"401 Unauthorized UNAUTHENTICATED, closed"),
		slow("a body that drips, where no token is needed",
			"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", "closed"),
		slow("a body that drips, with a token",
			"POST /v1/put HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer TOKEN\r\nContent-Length: 100000\r\n\r\n",
			"400 Bad Request INVALID, closed"),
		{"a body that never ends", func(s *siege) string {
			return talk(s.procs[0].address, s.client("http/1.1"), func(conn net.Conn) {
				_, _ = fmt.Fprintf(conn,
					"POST /v1/put HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n",
					s.tokens["shop"])
				piece := "10000\r\n" + strings.Repeat(" ", 1<<16) + "\r\n"
				for range 1 << 20 {
					if _, err := io.WriteString(conn, piece); err != nil {
						return
					}
				}
			})
		}, "closed"},
	}
}

// sessionAttacks are upgraded connections that break the rules, or that have too small a token.
func sessionAttacks() []attack {
	const upgrade = "GET " + stream.SessionPath + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: " +
		stream.SessionProtocol +
		"\r\n"
	session := func(name string, frames func() []byte, want string) attack {
		return attack{name, func(s *siege) string {
			return talk(s.procs[0].address, s.client("http/1.1"), func(conn net.Conn) {
				_, _ = fmt.Fprintf(conn, upgrade+"Authorization: Bearer %s\r\n\r\n", s.tokens["put"])
				_, _ = conn.Write(frames())
			})
		}, want}
	}
	const upgraded = "101 Switching Protocols, closed"
	return []attack{
		saying("a session without a token", upgrade+"Connection: close\r\n\r\n", "401 Unauthorized UNAUTHENTICATED, closed"),
		session("a frame of a kind that there is not", func() []byte { return sessionFrame(99, 0, 0, nil) }, upgraded),
		session("an answer from a client", func() []byte { return sessionFrame(stream.Answer, 0, 4, nil) }, upgraded),
		session("a ping of 4 GiB", func() []byte { return sessionFrame(stream.Ping, 0, 1<<32-1, nil) }, upgraded),
		session("a call of 4 GiB", func() []byte {
			return sessionFrame(stream.Call, byte(stream.PutBatch), 1<<32-1, nil)
		}, upgraded),
		session("a head that is none", func() []byte { return bytes.Repeat([]byte{0xff}, 20) }, upgraded),
		session("HTTP in a session", func() []byte { return []byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") }, upgraded),
		{"a reserve in a session with a token to put", sessionOfAnother, "FORBIDDEN"},
	}
}

// sessionFrame returns a frame of a session. size is what its head says of the payload, if there is
// none.
func sessionFrame(kind stream.Kind, method byte, size uint32, payload []byte) []byte {
	if payload != nil {
		size = uint32(len(payload)) //nolint:gosec // it is small
	}
	b := binary.BigEndian.AppendUint32([]byte{byte(kind), method, 0, 0}, 1)
	b = binary.BigEndian.AppendUint32(b, size)
	b = binary.BigEndian.AppendUint64(b, 0)
	return append(b, payload...)
}

// sessionOfAnother reserves in a session, with a token that may only put, and returns what comes
// until the answer.
func sessionOfAnother(s *siege) string {
	conn, err := reach(s.procs[0].address, s.client("http/1.1"))
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn,
		"GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\nAuthorization: Bearer %s\r\n\r\n",
		stream.SessionPath,
		stream.SessionProtocol, s.tokens["put"])
	_, _ = conn.Write(sessionFrame(stream.Call, byte(stream.Reserve), 0, []byte("\x0a\x0bshop/orders"))) // queues
	var heard []byte
	for buf := make([]byte, 4096); !bytes.Contains(heard, []byte("FORBIDDEN")); {
		n, err := conn.Read(buf)
		if heard = append(heard, buf[:n]...); err != nil {
			return fmt.Sprintf("%q %v", heard, err)
		}
	}
	return "FORBIDDEN"
}

// The parts of HTTP/2 that attacks are made of.
const (
	http2Preface      = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	http2Data         = 0
	http2Headers      = 1
	http2Reset        = 3
	http2Settings     = 4
	http2Ping         = 6
	http2WindowUpdate = 8
	http2Continuation = 9

	http2EndStream  = 1
	http2EndHeaders = 4
	// http2Livez is GET https://x/livez, http2Put POST https://x/v1/put.
	http2Livez = "\x82\x87\x04\x06/livez\x41\x01x"
	http2Put   = "\x83\x87\x04\x07/v1/put\x41\x01x"
)

// http2Frame returns a frame.
func http2Frame(kind, flags byte, stream uint32, payload string) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// http2Attacks break the rules of HTTP/2, or follow them too often.
func http2Attacks() []attack {
	speaking := func(name string, say func(send func(kind, flags byte, stream uint32, payload string) bool),
		want string) attack {
		return attack{name, func(s *siege) string {
			return talk(s.procs[1].address, s.client("h2"), func(conn net.Conn) {
				_, _ = conn.Write(append([]byte(http2Preface), http2Frame(http2Settings, 0, 0, "")...))
				say(func(kind, flags byte, stream uint32, payload string) bool {
					_, err := conn.Write(http2Frame(kind, flags, stream, payload))
					return err == nil
				})
			})
		}, want}
	}
	type send = func(kind, flags byte, stream uint32, payload string) bool
	return []attack{
		{"a preface that is none", func(s *siege) string {
			return talk(s.procs[1].address, s.client("h2"), func(conn net.Conn) {
				_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			})
		}, "closed"},
		{"silence instead of a preface", func(s *siege) string {
			return talk(s.procs[1].address, s.client("h2"), func(net.Conn) {})
		}, "closed"},
		speaking("a frame of 16 MiB", func(f send) { f(http2Data, 0, 1, strings.Repeat("x", 1<<24-1)) }, "closed"),
		speaking("data of a stream that is not open", func(f send) { f(http2Data, 0, 7, "x") }, "closed"),
		speaking("a head without end", func(f send) {
			f(http2Headers, 0, 1, http2Livez)
			for f(http2Continuation, 0, 1, strings.Repeat("\x00\x01x\x01y", 1000)) {
			}
		}, "closed"),
		speaking("a head that cannot be read", func(f send) {
			f(http2Headers, http2EndHeaders, 1, "\xff\xff\xff\xff\xff")
		}, "closed"),
		speaking("a window beyond its bound", func(f send) {
			for f(http2WindowUpdate, 0, 0, "\x7f\xff\xff\xff") {
			}
		}, "closed"),
		{"settings and pings without end, whose answers nobody reads", func(s *siege) string {
			conn, err := reach(s.procs[1].address, s.client("h2"))
			if err != nil {
				return err.Error()
			}
			defer conn.Close()
			_, err = io.WriteString(conn, http2Preface)
			for more := append(http2Frame(http2Settings, 0, 0, ""), http2Frame(http2Ping, 0, 0, "12345678")...); err == nil; {
				_, err = conn.Write(more)
			}
			return fmt.Sprintf("closed: %v", err)
		}, "closed"},
		speaking("up to 100,000 requests that are taken back at once", func(f send) {
			for i := uint32(1); i < 200_000/attackThinning; i += 2 {
				if !f(http2Headers, http2EndHeaders|http2EndStream, i, http2Livez) || !f(http2Reset, 0, i, "\x00\x00\x00\x08") {
					return
				}
			}
			f(http2Data, 0, 0, "x") // the end, if it has not come
		}, "closed"),
		speaking("up to 20,000 bodies without a token that never end", func(f send) {
			for i := uint32(1); i < 40_000/attackThinning && f(http2Headers, http2EndHeaders, i, http2Put); i += 2 {
			}
			f(http2Data, 0, 0, "x") // the end, if it has not come
		}, "closed"),
		{"a window of 0, and up to 8,000 answers on one connection", unreadStreams, "streams were ended: <nil>, <nil>"},
		{"gRPC over HTTP/2 without a token", grpcWithoutToken, "grpc-status 16"},
	}
}

// grpcWithoutToken puts over gRPC and returns its status.
func grpcWithoutToken(s *siege) string {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.client("h2"), ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost,
		"https://"+s.procs[1].address+"/belfry.v1.QueueService/Put", strings.NewReader("\x00\x00\x00\x00\x00"))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Content-Type", "application/grpc")
	res, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	_, err = io.ReadAll(res.Body)
	return fmt.Sprintf("grpc-status %s%s %v", res.Header.Get("Grpc-Status"), res.Trailer.Get("Grpc-Status"), err)
}
