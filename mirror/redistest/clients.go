package redistest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// slowMin is how long a command takes that the server notes.
const slowMin = time.Millisecond

// CutClients closes the connections of all clients and subscribers but the one that asks for it,
// and returns how many. Replicas stay connected.
func (s *Server) CutClients() int {
	s.t.Helper()
	cut := 0
	for _, kind := range []string{"normal", "pubsub"} {
		n, err := s.client.ClientKillByFilter(s.t.Context(), "TYPE", kind, "SKIPME", "yes").Result()
		if err != nil {
			s.t.Fatalf("cutting clients of type %s: %v", kind, err)
		}
		cut += int(n)
	}
	return cut
}

// User makes a user, or replaces it, with a password and nothing but the rules that are given, such
// as "+@read" and "~orders*", and returns where clients reach the server as that user. It outlives
// the server's process.
func (s *Server) User(name string, rules ...string) string {
	s.t.Helper()
	password := "password-of-" + name
	err := s.client.ACLSetUser(s.t.Context(), name, slices.Concat([]string{"reset", "on", ">" + password}, rules)...).Err()
	if err == nil {
		err = s.client.Do(s.t.Context(), "ACL", "SAVE").Err()
	}
	if err != nil {
		s.t.Fatalf("making user %s with %q: %v", name, rules, err)
	}
	return (&url.URL{Scheme: "redis", User: url.UserPassword(name, password), Host: s.address}).String()
}

// Replica starts a replica of the server, which refuses to write, and returns when it has what the
// server has.
func (s *Server) Replica(t testing.TB, opts ...Option) *Server {
	t.Helper()
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	replica := Start(t, append(opts, WithConfig("replicaof", host, port))...)
	if err := replica.await("it follows "+s.address, replica.follows); err != nil {
		t.Fatal(err)
	}
	return replica
}

// follows is an error until the server has what its primary has.
func (s *Server) follows(ctx context.Context) error {
	link, err := s.info(ctx, "replication", "master_link_status")
	if err == nil && link != "up" {
		err = fmt.Errorf("the link is %s", link)
	}
	return err
}

// Slowest returns the command that blocked the server longest since its last start, among those for
// which keep is true; nil keeps all. It is the zero value if no command took a millisecond. The
// error says so if the server has dropped some commands.
//
// A script is one command, and so is each command that it calls. Waiting, as in BLPOP, does not
// count. The server remembers the last 100,000 slow commands. If there are more, use WithConfig to
// record only slower ones ("slowlog-log-slower-than", in microseconds).
func (s *Server) Slowest(ctx context.Context, keep func(redis.SlowLog) bool) (redis.SlowLog, error) {
	var slowest redis.SlowLog
	all, err := s.client.SlowLogGet(ctx, -1).Result()
	if err != nil {
		return slowest, fmt.Errorf("asking for slow commands: %w", err)
	}
	// The newest comes first, and they are numbered from 0.
	if len(all) > 0 && all[0].ID+1 != int64(len(all)) {
		return slowest, fmt.Errorf("the server remembers %d slow commands of %d", len(all), all[0].ID+1)
	}
	for _, entry := range all {
		if entry.Duration > slowest.Duration && (keep == nil || keep(entry)) {
			slowest = entry
		}
	}
	return slowest, nil
}

// Commands keeps commands with one of the names, in any case. Scripts are "eval" or "evalsha".
func Commands(names ...string) func(redis.SlowLog) bool {
	return func(entry redis.SlowLog) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, entry.Args[0]) })
	}
}

// FromClient keeps commands of connections that have a name. What a script calls comes from no
// connection.
func FromClient(name string) func(redis.SlowLog) bool {
	return func(entry redis.SlowLog) bool { return entry.ClientName == name }
}

// CutReplicas has the server send its replicas nothing any more, until RestoreReplicas.
func (s *Server) CutReplicas() {
	s.t.Helper()
	s.do(s.t, "ACL", "SETUSER", "default", "-psync", "-sync")
	s.do(s.t, "CLIENT", "KILL", "TYPE", "replica")
}

// RestoreReplicas has the replicas find the server again. SYNC stays refused: a replica whose PSYNC
// was refused a moment ago asks by it next, and one that came so tells the server never what it
// has, for which WAIT waits.
func (s *Server) RestoreReplicas() {
	s.t.Helper()
	s.do(s.t, "ACL", "SETUSER", "default", "+psync")
}
