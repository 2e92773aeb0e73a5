package session

import "testing"

// TestRequestsInSessionsUseMemoryAgain, and those by Connect do not: an attempt that was given up
// may still read them.
func TestRequestsInSessionsUseMemoryAgain(t *testing.T) {
	var none *Server
	first, second := none.Request(10), none.Request(10)
	if first == second || cap(*first) < 10 {
		t.Error("memory without sessions is shared")
	}
	s := &Server{cfg: Config{Set: &Set{}}}
	large, small := s.Request(RequestBytesKept+1), s.Request(10)
	s.Free(large)
	if s.cfg.Set.requests.Get() != nil {
		t.Error("a large piece is kept")
	}
	*small = append(*small, "abc"...)
	s.Free(small)
	if again := s.Request(20); len(*again) != 0 || cap(*again) < 20 {
		t.Errorf("%d of %d bytes", len(*again), cap(*again))
	}
}
