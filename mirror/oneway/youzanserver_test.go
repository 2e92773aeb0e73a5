package oneway_test

import (
	"time"

	"github.com/belfrydb/belfry/mirror/redistest/sourcetest"
)

// youzanServer is a server of ouqiang/delay-queue whose failures end the test.
type youzanServer struct {
	redisDo
	pushed int
}

// with does something at the server.
func (s *youzanServer) with(do func(*sourcetest.Youzan) error) {
	s.t.Helper()
	server := &sourcetest.Youzan{Redis: s.r}
	server.Scans.Store(uint64(s.pushed))
	if err := do(server); err != nil {
		s.t.Fatal(err)
	}
	s.pushed = int(server.Scans.Load())
}

// pack writes a job as a server does.
func (s *youzanServer) pack(topic, id string, due, ttr int64, body string) string {
	return (*sourcetest.Youzan)(nil).Pack(topic, id, due, ttr, body)
}

func (s *youzanServer) push(topic, id string, due time.Time, ttr int64, body string) {
	s.t.Helper()
	s.with(func(server *sourcetest.Youzan) error { return server.Push(s.t.Context(), topic, id, due, ttr, body) })
}

// tick looks at the head of each bucket until none is due.
func (s *youzanServer) tick(at time.Time) {
	s.t.Helper()
	s.with(func(server *sourcetest.Youzan) error { return server.Tick(s.t.Context(), at) })
}

// pop hands out a job of a topic and returns its lease's end; the id is empty if none is ready or
// the one that was is gone.
func (s *youzanServer) pop(topic string, at time.Time) (id string, until time.Time) {
	s.t.Helper()
	s.with(func(server *sourcetest.Youzan) (err error) {
		id, until, err = server.Pop(s.t.Context(), topic, func() time.Time { return at })
		return err
	})
	return id, until
}

// finish ends a job, and reports whether it was there.
func (s *youzanServer) finish(id string) (was bool) {
	s.t.Helper()
	s.with(func(server *sourcetest.Youzan) (err error) {
		was, err = server.Finish(s.t.Context(), id)
		return err
	})
	return was
}
