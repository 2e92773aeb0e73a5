package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli/access"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// attackTimeout is how long an attacker waits for the end of what it tries: only what hangs takes
// that long.
const attackTimeout = 3 * time.Minute

// secretText is how long the secret in a token is. It may have underscores.
const secretText = 43

// attack is an attempt to get into a cluster, or to exhaust it. What it returns says what came of
// that, and want must be a part of it.
type attack struct {
	name string
	try  func(s *siege) string
	want string
}

// siege is a secured cluster of three under attack, and what the attackers have.
type siege struct {
	*crew
	dir, foreign string // certificates of the cluster, and of another one that has the same domain
	domain       string
	tokens       map[string]string
	members      *belfryv1.GetClusterResponse
	recorded     chan []byte // what a node of the cluster sent to a stranger that it was told to join
}

// TestAttacks: whatever strangers, and clients with too small a token, try at any port of a secured
// cluster is refused; nodes take bounded memory meanwhile, and a client that works all the time
// sees no error.
func TestAttacks(t *testing.T) {
	t.Parallel()
	s := newSiege(t)
	shop := filepath.Join(s.dir, "shop.token")
	honest := workAlways(t, s.crew, s.procs[0].ca, shop)
	for _, round := range [][]attack{
		append(append(append(tokenAttacks(), scopeAttacks()...), browserAttacks()...), pathAttacks()...),
		append(append(shapeAttacks(), slowAttacks()...), append(sessionAttacks(), http2Attacks()...)...),
		quotaAttacks(s),
		append(peerAttacks(), gossipAttacks()...),
		crowdAttacks(),
	} {
		s.suffer(round)
		before := honest.calls.Load()
		await(t, "the honest client to go on", func() bool { return honest.calls.Load() > before+20 || honest.failed() })
	}
	honest.end()
	s.wantOne()
	for i, p := range s.procs {
		p.awaitHealth(fmt.Sprintf("n%d after all", i+1))
		rss, most := memory(t, p, "VmRSS"), memory(t, p, "VmHWM")
		t.Logf("n%d: %d MiB, at most %d", i+1, rss>>10, most>>10)
		if most > attackMemory {
			t.Errorf("n%d took %d KiB, want at most %d", i+1, most, attackMemory)
		}
		s.wantNoSecret(p.stderr.String())
	}
}

// newSiege starts the cluster.
func newSiege(t *testing.T) *siege {
	t.Helper()
	s := &siege{
		crew: newCrew(t, 3), dir: t.TempDir(), foreign: t.TempDir(), tokens: map[string]string{},
		recorded: make(chan []byte, 1),
	}
	made := makeCerts(t, s.dir, "--node", "n1", "--node", "n2", "--node", "n3", "--node", "n4")
	s.domain = made.Domain
	makeCerts(t, s.foreign, "--node", "n2", "--domain", made.Domain)
	root, foreign := makeRoot(t, s.dir, "root"), makeRoot(t, s.foreign, "root")
	s.shell = fmt.Sprintf("ulimit -n %d; ", attackFiles)
	start := func(i int, more ...string) {
		flags := append(secureFlags(s.dir, fmt.Sprintf("n%d", i+1)), "--root-tokens", root.RootTokens)
		p := s.launch(i, append(flags, more...)...)
		p.ca, p.token = made.CA, root.Token
	}
	start(0)
	start(1)
	start(2, "--log-level", "debug") // it is the one that says what it thinks of gossip, and what else there is to tell
	s.wantOne()
	s.kill(1)
	s.record()
	start(1) // it looks for others at the stranger's, too
	s.wantOne()
	s.members = clusterOf(t, s.procs[0], launcher)
	s.tokens["foreign"] = s.readToken(foreign.Token)
	s.tokens["root"] = s.readToken(root.Token)
	for name, scope := range map[string]string{
		"shop": "put,consume:shop/*", "put": "put:shop/*", "consume": "consume:shop/*", "view": "view:shop/*",
		"admin": "admin:shop/*", "ended": "admin:*", "expired": "admin:*",
	} {
		file := filepath.Join(s.dir, name+".token")
		args := []string{"token", "create", "--scope", scope, "--about", name, "--out", file}
		if name == "expired" {
			args = append(args, "--ttl", "1s")
		}
		if got := s.procs[0].run(launcher, args...); got.Code != 0 {
			t.Fatalf("making a token: %+v", got)
		}
		s.tokens[name] = s.readToken(file)
	}
	if got := s.procs[0].run(launcher, "token", "delete", textID(t, filepath.Join(s.dir, "ended.token"))); got.Code != 0 {
		t.Fatalf("ending a token: %+v", got)
	}
	for _, p := range s.procs {
		await(t, "every node to know the tokens", func() bool {
			return s.status(p, "shop", http.MethodGet, "/q/shop/nothing") == http.StatusNoContent &&
				s.status(p, "ended", http.MethodGet, "/metrics") == http.StatusUnauthorized &&
				s.status(p, "expired", http.MethodGet, "/metrics") == http.StatusUnauthorized
		})
	}
	return s
}

// readToken returns the token in a file.
func (s *siege) readToken(file string) string {
	s.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// suffer makes all attacks of a round at one time.
func (s *siege) suffer(round []attack) {
	s.t.Helper()
	var group sync.WaitGroup
	got, took := make([]string, len(round)), make([]time.Duration, len(round))
	begun := time.Now()
	for i, a := range round {
		group.Go(func() { got[i], took[i] = a.try(s), time.Since(begun) })
	}
	group.Wait()
	for i, a := range round {
		s.t.Logf("%-60s %6.1f s  %s", a.name, took[i].Seconds(), cut(got[i], 120))
		if !strings.Contains(got[i], a.want) || a.want == "" {
			s.t.Errorf("%s: %q, want %q", a.name, cut(got[i], 1000), a.want)
		}
	}
}

// cut returns the beginning of a text.
func cut(text string, most int) string { return text[:min(len(text), most)] }

// wantNoSecret fails the test if a log has a token, a key or the body of a job.
func (s *siege) wantNoSecret(log string) {
	s.t.Helper()
	for name, token := range s.tokens {
		if secret := token[len(token)-secretText:]; strings.Contains(log, secret) {
			s.t.Errorf("the token %s is in a log", name)
		}
	}
	keys, err := os.ReadFile(filepath.Join(s.dir, access.GossipKeyFile))
	if err != nil {
		s.t.Fatal(err)
	}
	if strings.Contains(log, strings.TrimSpace(string(keys))) || strings.Contains(log, "PRIVATE KEY") ||
		strings.Contains(log, "the body of a job") {
		s.t.Error("a key or a body is in a log")
	}
}

// memory returns a line of what the system tells of a process's memory, in KiB.
func memory(t *testing.T, p *process, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("there is no %s in:\n%s", name, text)
	}
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

// client returns the settings of clients of the cluster, which speak one protocol.
func (s *siege) client(protocol string) *tls.Config {
	cfg := believing(s.t, s.procs[0].ca)
	cfg.NextProtos = []string{protocol}
	return cfg
}

// ask makes a call and returns the status of the answer and the reason in it. token is the name of
// one, or else what stands in the header. A node that does not want the rest of a large body may
// close before its answer is read; then the call is made again.
func (s *siege) ask(p *process, token, method, path, body string, headers ...string) string {
	for again := 1; ; again++ {
		told, err := s.askOnce(p, token, method, path, body, headers...)
		switch {
		case err == nil:
			return told
		case again == 20 || !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE):
			return err.Error()
		}
	}
}

// askOnce is ask without repeats.
func (s *siege) askOnce(p *process, token, method, path, body string, headers ...string) (told string, err error) {
	req, err := http.NewRequestWithContext(s.t.Context(), method, "https://"+p.address, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.URL.Opaque = path // as it is
	if known := s.tokens[token]; known != "" {
		token = "Bearer " + known
	}
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: s.client("http/1.1"), DisableKeepAlives: true}, Timeout: attackTimeout,
	}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	told = fmt.Sprintf("%d %s", res.StatusCode, reasonIn(string(text)))
	if status := res.Header.Get("Grpc-Status"); status != "" {
		told += "grpc-status " + status
	}
	return told, err
}

// status is the status of ask.
func (s *siege) status(p *process, token, method, path string) int {
	s.t.Helper()
	code, err := strconv.Atoi(strings.Fields(s.ask(p, token, method, path, ""))[0])
	if err != nil {
		s.t.Fatal(s.ask(p, token, method, path, ""))
	}
	return code
}

// reasonIn returns the reasons in an answer.
func reasonIn(text string) string {
	var all []string
	for _, found := range regexp.MustCompile(`"reason":\s?"([A-Z_]+)"`).FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return strings.Join(all, " ")
}

// talk connects to a port, has say write to it, and returns what came until the other side closed,
// and that it did.
func talk(address string, secure *tls.Config, say func(conn net.Conn)) string {
	conn, err := reach(address, secure)
	if err != nil {
		return err.Error()
	}
	return converse(conn, say)
}

// converse is talk on a connection that is open.
func converse(conn net.Conn, say func(conn net.Conn)) string {
	defer conn.Close()
	said := make(chan struct{})
	go func() {
		defer close(said)
		say(conn)
	}()
	heard, err := io.ReadAll(conn)
	_ = conn.Close() // ends the goroutine that writes
	<-said
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("%s, still open", firstLine(heard))
	case err != nil:
		return fmt.Sprintf("%s, closed: %v", firstLine(heard), err)
	default:
		return fmt.Sprintf("%s, closed", firstLine(heard))
	}
}

// reach opens a connection that an attacker gives up after its timeout.
func reach(address string, secure *tls.Config) (net.Conn, error) {
	raw, err := net.Dial("tcp", address) //nolint:noctx // it has a deadline
	if err != nil {
		return nil, err
	}
	if err := raw.SetDeadline(time.Now().Add(attackTimeout)); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	if secure == nil {
		return raw, nil
	}
	secure = secure.Clone()
	secure.ServerName = "localhost"
	conn := tls.Client(raw, secure)
	if err := conn.Handshake(); err != nil { //nolint:noctx // it has a deadline
		return nil, errors.Join(err, raw.Close())
	}
	return conn, nil
}

// firstLine returns the status line of an answer with the reasons in it, or how what came begins,
// in hexadecimal.
func firstLine(heard []byte) string {
	line, _, ok := bytes.Cut(heard, []byte("\r\n"))
	if !ok || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return fmt.Sprintf("%x", cut(string(heard), 8))
	}
	return strings.TrimSpace(string(line) + " " + reasonIn(string(heard)))
}

// record listens where the nodes are told that another one is, and keeps the first frame of gossip
// that one sends there.
func (s *siege) record() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.gossip = append(s.gossip, l.Addr().String())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			frame := recordGossip(conn)
			_ = conn.Close()
			if frame == nil {
				continue
			}
			select {
			case s.recorded <- frame:
			default:
			}
		}
	}()
	s.t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
}

// drip writes a byte now and then until the other side closes.
func drip(conn net.Conn) {
	often := time.NewTicker(200 * time.Millisecond)
	defer often.Stop()
	w := bufio.NewWriterSize(conn, 1)
	for range often.C {
		if _, err := w.WriteString("xx"); err != nil {
			return
		}
	}
}

// shelled returns a command that runs after what a shell is told first.
func shelled(shell string, args ...string) *exec.Cmd {
	return exec.Command("sh", //nolint:noctx,gosec // the cleanup kills it
		append([]string{"-c", shell + `exec "$0" "$@"`}, args...)...)
}
