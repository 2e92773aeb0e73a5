package oneway_test

import (
	"time"

	"github.com/belfrydb/belfry/mirror/redistest/sourcetest"
)

// lmstfyServer is a server of lmstfy whose failures end the test.
type lmstfyServer struct {
	redisDo
	ns, q  string
	serial uint64
}

// with does something at the server.
func (s *lmstfyServer) with(do func(*sourcetest.Lmstfy) error) {
	s.t.Helper()
	server := &sourcetest.Lmstfy{Redis: s.r, Namespace: s.ns, Queue: s.q}
	server.Serial.Store(s.serial)
	if err := do(server); err != nil {
		s.t.Fatal(err)
	}
	s.serial = server.Serial.Load()
}

func (s *lmstfyServer) pack(kind string, tries int, id string) (text string) {
	s.t.Helper()
	s.with(func(server *sourcetest.Lmstfy) (err error) {
		text, err = server.Pack(s.t.Context(), kind, tries, id)
		return err
	})
	return text
}

func (s *lmstfyServer) id(at time.Time, delay time.Duration) (id string) {
	s.t.Helper()
	s.with(func(server *sourcetest.Lmstfy) error {
		id = server.ID(at, delay)
		return nil
	})
	return id
}

func (s *lmstfyServer) key(id string) string { return "j/" + s.ns + "/" + s.q + "/" + id }
func (s *lmstfyServer) ready() string        { return "q/" + s.ns + "/" + s.q }
func (s *lmstfyServer) dead() string         { return "d/" + s.ns + "/" + s.q }

// value writes the value of a job; without a ttl it stays.
func (s *lmstfyServer) value(id, value string, ttl time.Duration) {
	s.t.Helper()
	args := []any{"SET", s.key(id), value, "NX"}
	if ttl > 0 {
		args = append(args, "PX", ttl.Milliseconds())
	}
	s.do(args...)
}

func (s *lmstfyServer) publish(at time.Time, value string, delay, ttl time.Duration, tries int) (id string) {
	s.t.Helper()
	s.with(func(server *sourcetest.Lmstfy) (err error) {
		id, err = server.Publish(s.t.Context(), at, value, delay, ttl, tries)
		return err
	})
	return id
}

// pump moves what is due at a time.
func (s *lmstfyServer) pump(at time.Time) {
	s.t.Helper()
	s.with(func(server *sourcetest.Lmstfy) error {
		_, err := server.Pump(s.t.Context(), at)
		return err
	})
}

// consume hands out a job for ttr; empty if none is ready.
func (s *lmstfyServer) consume(at time.Time, ttr time.Duration) (id string) {
	s.t.Helper()
	s.with(func(server *sourcetest.Lmstfy) (err error) {
		id, err = server.Consume(s.t.Context(), func() time.Time { return at }, ttr)
		return err
	})
	return id
}

// ack finishes a job, and reports whether it was there.
func (s *lmstfyServer) ack(id string) (was bool) {
	s.t.Helper()
	s.with(func(server *sourcetest.Lmstfy) (err error) {
		was, err = server.Ack(s.t.Context(), id)
		return err
	})
	return was
}
