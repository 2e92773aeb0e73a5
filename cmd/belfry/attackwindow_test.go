package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// http2Window0 are settings under which nothing of an answer but its head may be sent.
const http2Window0 = "\x00\x04\x00\x00\x00\x00"

// unread is a connection of HTTP/2 without a token whose answers cannot be sent.
type unread struct {
	conn net.Conn
	mu   sync.Mutex // of the writers
	next uint32     // the number of the next stream
}

// neverRead opens such a connection.
func neverRead(s *siege, address string) (*unread, error) {
	conn, err := reach(address, s.client("h2"))
	if err != nil {
		return nil, err
	}
	u := &unread{conn: conn, next: 1}
	_, err = conn.Write(append([]byte(http2Preface), http2Frame(http2Settings, 0, 0, http2Window0)...))
	return u, err
}

// ask makes a request, /livez and a put by turns.
func (u *unread) ask() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	head := http2Livez
	if u.next%4 == 1 {
		head = http2Put
	}
	_, err := u.conn.Write(http2Frame(http2Headers, http2EndHeaders|http2EndStream, u.next, head))
	u.next += 2
	return err
}

// listen tells of each head of an answer and each reset of a stream that comes, until told to stop
// or the connection ends.
func (u *unread) listen(heard func(kind byte) (more bool)) error {
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(u.conn, head); err != nil {
			return err
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(u.conn, payload); err != nil {
			return err
		}
		switch kind := head[3]; {
		case kind == http2Ping && head[4] == 0: // a client that does not answer is taken for dead
			u.mu.Lock()
			_, err := u.conn.Write(http2Frame(http2Ping, http2EndStream, 0, string(payload)))
			u.mu.Unlock()
			if err != nil {
				return err
			}
		case binary.BigEndian.Uint32(head[5:]) > 0 && (kind == http2Headers || kind == http2Reset) && !heard(kind):
			return nil
		}
	}
}

// unreadStreams is as many streams as a connection may have, of none of which the answer can be
// sent, until each has ended.
func unreadStreams(s *siege) string {
	u, err := neverRead(s, s.procs[1].address)
	if err != nil {
		return err.Error()
	}
	defer u.conn.Close()
	const streams = 8000 / attackThinning
	asked := make(chan error, 1)
	go func() {
		for range streams {
			if err := u.ask(); err != nil {
				asked <- err
				return
			}
		}
		asked <- nil
	}()
	ended := 0
	err = u.listen(func(kind byte) bool {
		if kind == http2Reset {
			ended++
		}
		return ended < streams
	})
	_ = u.conn.Close() // ends the goroutine that asks
	return fmt.Sprintf("%d of %d streams were ended: %v, %v", ended, streams, err, <-asked)
}

// unreadCrowd is as many connections as a node may have, each of which makes another request as
// soon as the one whose answer it did not read has ended.
func unreadCrowd(s *siege) string {
	var crowd []*unread
	var listening, stuck sync.WaitGroup
	defer func() {
		for _, u := range crowd {
			_ = u.conn.Close()
		}
		listening.Wait()
	}()
	p := s.procs[1]
	for range attackFiles / 2 {
		u, err := neverRead(s, p.address)
		if err != nil {
			continue // there are as many already
		}
		crowd = append(crowd, u)
		stuck.Add(1)
		listening.Go(func() {
			answered := sync.OnceFunc(stuck.Done)
			defer answered() // or closed for another
			if u.ask() != nil {
				return
			}
			_ = u.listen(func(kind byte) bool {
				answered()
				return kind != http2Reset || u.ask() == nil
			})
		})
	}
	stuck.Wait()
	alive := s.ask(p, "", http.MethodGet, "/livez", "")
	return fmt.Sprintf("/livez is answered %s, a put with a token %s", alive,
		s.ask(p, "shop", http.MethodPost, "/v1/put", putShop))
}
