package redistest

import "github.com/belfrydb/belfry/mirror/redistest/aof"

// WithWrites has the server keep every command that changes something, synced before each answer,
// so that Writes and Commands can tell them.
func WithWrites() Option {
	return func(s *settings) {
		WithAOF("always")(s)
		WithConfig("auto-aof-rewrite-percentage", "0")(s) // else it forgets how it came to what it has
	}
}

// Writes returns every command that changed something since the server was first started, in the
// order and the form of its append-only file: a script as its commands between MULTI and EXEC,
// BLPOP as LPOP. Commands without an effect are missing. So are commands that a killed server
// executed without recording them; it did not answer them either. The server must have been started
// WithWrites.
func (s *Server) Writes() [][]string {
	s.t.Helper()
	commands := s.Commands()
	all := make([][]string, len(commands))
	for n, c := range commands {
		all[n] = c.Args
	}
	return all
}

// Commands is Writes with the place of each command in the file.
func (s *Server) Commands() []aof.Command {
	s.t.Helper()
	commands, err := aof.Read(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	return commands
}
