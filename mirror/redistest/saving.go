package redistest

import (
	"context"
	"fmt"
	"os"
)

// CannotSave has the server fail to write its data to disk, and refuse to change them therefore,
// until CanSave.
func (s *Server) CannotSave() {
	s.t.Helper()
	if err := os.Mkdir(s.file("dump.rdb"), 0o700); err != nil { // in the place of the file
		s.t.Fatal(err)
	}
	s.do(s.t, "CONFIG", "SET", "save", "3600 1")
	s.save("err")
}

// CanSave ends CannotSave.
func (s *Server) CanSave() {
	s.t.Helper()
	if err := os.Remove(s.file("dump.rdb")); err != nil {
		s.t.Fatal(err)
	}
	s.save("ok")
	s.do(s.t, "CONFIG", "SET", "save", "")
}

// save has the server write its data to disk, with the result that is wanted.
func (s *Server) save(want string) {
	s.t.Helper()
	s.do(s.t, "BGSAVE")
	err := s.await("saving ends with "+want, func(ctx context.Context) error {
		got, err := s.info(ctx, "persistence", "rdb_last_bgsave_status")
		if err == nil && got != want {
			err = fmt.Errorf("it ended with %s", got)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}
