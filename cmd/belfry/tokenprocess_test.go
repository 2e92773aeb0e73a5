package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/access"
)

// TestTokensOfACluster: in a cluster with TLS, gossip keys and root tokens every command and call
// needs a token that allows it; tokens are made, rotated under load without an error, and ended on
// all nodes; the root token is replaced by files and SIGHUP. Whoever looks around sees no secret.
func TestTokensOfACluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made := makeCerts(t, dir, "--node", "n1", "--node", "n2", "--node", "n3")
	root := makeRoot(t, dir, "root")
	c := newCrew(t, 3)
	launch := func(i int) {
		p := c.launch(i, append(secureFlags(dir, fmt.Sprintf("n%d", i+1)), "--root-tokens", root.RootTokens)...)
		p.ca, p.token = made.CA, root.Token
	}
	for i := range c.procs {
		launch(i)
	}
	c.wantOne()
	n1 := c.procs[0]
	bare := n1.with("")
	bare.refuses(cli.CodeForbidden, "--token-file", "put", "orders", "x")
	bare.awaitHealth("health without a token")
	shop := filepath.Join(dir, "shop.token")
	if got := n1.run(launcher, "token", "create", "--scope", "put,consume:shop/*", "--about", "the shop", "--out",
		shop); got.Code != 0 || !strings.Contains(got.Out, "put,consume:shop/*") &&
		!strings.Contains(got.Out, "consume,put:shop/*") {
		t.Fatalf("making a token: %+v", got)
	}
	n1.refuses(cli.CodeUsage, "is there already", "token", "create", "--scope", "put:a", "--out", shop)
	id := tokenID(t, n1, "the shop")
	for i, p := range c.procs {
		await(t, fmt.Sprintf("n%d to know the token", i+1), func() bool {
			return p.with(shop).run(launcher, "put", "shop/orders", "x").Code == 0
		})
	}
	if got := n1.with(shop).run(launcher, "put", "orders", "x"); got.Code == 0 ||
		!strings.Contains(got.Err, "it takes put:orders") {
		t.Errorf("a put elsewhere: %+v", got)
	}
	if got := n1.with(shop).run(launcher, "cluster", "status"); got.Code == 0 ||
		!strings.Contains(got.Err, "it takes view:*") {
		t.Errorf("the cluster's state: %+v", got)
	}
	if code := bare.status("/metrics"); code != http.StatusUnauthorized {
		t.Errorf("metrics without a token: %d", code)
	}
	if code := n1.status("/metrics"); code != http.StatusOK {
		t.Errorf("metrics with the root token: %d", code)
	}
	sightOfACluster(t, c, dir, shop)

	rotateTwice(t, n1, dir)
	id = rotateUnderLoad(t, c, made.CA, dir, shop, id, func() {
		c.kill(2)
		launch(2) // it has to hear anew which tokens there are, and refuses no call before
		c.wantOne()
	})
	replaceRoot(t, c, dir, root)
	endByText(t, n1, shop, id)
	n1.refuses(cli.CodeNotFound, "it has ended before", "token", "delete", id)
	for _, p := range c.procs {
		await(t, "every node to refuse the token", func() bool {
			got := p.with(shop).run(launcher, "put", "shop/orders", "x")
			return got.Code == cli.CodeForbidden && strings.Contains(got.Err, "not known here")
		})
		if said := p.stderr.String(); strings.Contains(said, "belfry_") ||
			!strings.Contains(said, `msg=audit changed="what SIGHUP reads again" outcome=ok`) && p == n1 {
			t.Errorf("a token is in the log, or nothing of what was administered:\n%s", said)
		}
	}
}

// endByText ends the token in a file, which is given itself in the place of its id.
func endByText(t *testing.T, n1 *process, file, id string) {
	t.Helper()
	text, err := os.ReadFile(file) //nolint:gosec // the test's own
	if err != nil {
		t.Fatal(err)
	}
	if got := n1.run(launcher, "token", "delete", string(text)); got.Code != 0 ||
		strings.TrimSpace(got.Out) != "ended "+id {
		t.Fatalf("ending the last: %+v", got)
	}
}

// rotateTwice: what is made of a token that is to end already lasts as long as that was made for.
func rotateTwice(t *testing.T, n1 *process, dir string) {
	t.Helper()
	first := filepath.Join(dir, "first.token")
	if got := n1.run(launcher, "token", "create", "--scope", "view:none", "--out", first); got.Code != 0 {
		t.Fatalf("making a token: %+v", got)
	}
	for _, next := range []string{"lost", "found"} {
		got := n1.run(launcher, "token", "rotate", textID(t, first), "--overlap", "10m", "--out",
			filepath.Join(dir, next+".token"))
		if got.Code != 0 || !strings.Contains(got.Out, "(ends: never)") {
			t.Errorf("rotating to %s: %+v", next, got)
		}
	}
}

// rotateUnderLoad replaces the token in a file twice while clients carry it and a node is
// restarted, and returns the id of the last.
func rotateUnderLoad(t *testing.T, c *crew, ca, dir, shop, id string, restart func()) string {
	t.Helper()
	n1 := c.procs[0]
	stop := workAlways(t, c, ca, shop)
	for range 2 {
		next := filepath.Join(dir, "next.token")
		if got := n1.run(launcher, "token", "rotate", id, "--overlap", "10m", "--out", next); got.Code != 0 {
			t.Fatalf("rotating: %+v", got)
		}
		for _, p := range c.procs { // the overlap is for this
			await(t, "every node to know the next token", func() bool {
				return p.with(next).run(launcher, "put", "shop/orders", "x").Code == 0
			})
		}
		if err := os.Rename(next, shop); err != nil {
			t.Fatal(err)
		}
		stop.replaced()
		old := id
		id = textID(t, shop)
		if got := n1.run(launcher, "token", "delete", old); got.Code != 0 {
			t.Fatalf("ending the old one: %+v", got)
		}
		restart()
	}
	stop.end()
	return id
}

// replaceRoot replaces the root token by another one, node by node.
func replaceRoot(t *testing.T, c *crew, dir string, root access.MadeRoot) {
	t.Helper()
	second := makeRoot(t, dir, "second")
	for _, p := range c.procs {
		p.signal(syscall.SIGHUP)
		await(t, "the second root token to be known", func() bool {
			return p.with(second.Token).run(launcher, "token", "list").Code == 0
		})
	}
	only(t, root.RootTokens, second.ID)
	for _, p := range c.procs {
		p.signal(syscall.SIGHUP)
		awaitText(t, p, "root tokens in use\" tokens=2")
		await(t, "the first root token to be refused", func() bool {
			return p.run(launcher, "token", "list").Code == cli.CodeForbidden
		})
		p.token = second.Token
	}
}

// awaitHealth waits until a server says that it is ready; a leadership may be on its way from one
// node to another.
func (p *process) awaitHealth(what string) {
	p.t.Helper()
	await(p.t, what, func() bool { return p.run(launcher, "health").Code == 0 })
}

// with returns a server whose commands carry another token.
func (p *process) with(token string) *process {
	other := *p
	other.token = token
	return &other
}

// makeRoot runs `token root` in a directory and returns what it says.
func makeRoot(t *testing.T, dir, name string) (made access.MadeRoot) {
	t.Helper()
	got := runProgram(t, launcher, nil, "token", "root", "--dir", dir, "--name", name, "-o", "json")
	if err := json.Unmarshal([]byte(got.Out), &made); got.Code != 0 || err != nil {
		t.Fatalf("making a root token: %+v, %v", got, err)
	}
	return made
}

// only leaves one line of a file of root tokens.
func only(t *testing.T, name, id string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, id) {
			if err := os.WriteFile(name, []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("%s is not in %s", id, text)
}

// tokenID returns the id of the token that is about something.
func tokenID(t *testing.T, p *process, about string) string {
	t.Helper()
	got := p.run(launcher, "token", "list", "-o", "json")
	var list struct{ Tokens []struct{ ID, About string } }
	if err := json.Unmarshal([]byte(got.Out), &list); err != nil {
		t.Fatalf("%+v: %v", got, err)
	}
	for _, token := range list.Tokens {
		if token.About == about {
			return token.ID
		}
	}
	t.Fatalf("no token is about %s: %s", about, got.Out)
	return ""
}

// textID returns the id that a token in a file has.
func textID(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "_")[1]
}

// status asks for a page.
func (p *process) status(path string) int {
	p.t.Helper()
	caller, url := p.caller()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, url+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := caller.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// load is a client that puts, reserves and acks through all nodes, with the token of a file, until
// it is ended or a call fails.
type load struct {
	t      *testing.T
	cancel context.CancelFunc
	calls  atomic.Int64
	work   sync.WaitGroup
	mu     sync.Mutex
	err    error
}

func workAlways(t *testing.T, c *crew, ca, token string) *load {
	t.Helper()
	var urls []string
	for _, p := range c.procs {
		urls = append(urls, "https://"+p.address)
	}
	sdk, err := client.New(strings.Join(urls, ","), client.WithTLS(believing(t, ca)), client.WithTokenFile(token))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{t: t, cancel: cancel}
	t.Cleanup(func() { cancel(); l.work.Wait(); _ = sdk.Close() })
	fail := func(err error) bool {
		if err == nil || ctx.Err() != nil {
			return ctx.Err() != nil
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.err = err
		return true
	}
	for range 4 {
		l.work.Go(func() {
			for {
				if _, err := sdk.Put(ctx, "shop/load", []byte("x")); fail(err) {
					return
				}
				jobs, err := sdk.Reserve(ctx, client.ReserveOptions{Queues: []string{"shop/load"}})
				if fail(err) {
					return
				}
				for _, job := range jobs {
					if fail(job.Ack(ctx)) {
						return
					}
				}
				l.calls.Add(1)
			}
		})
	}
	await(t, "the first call", func() bool { return l.calls.Load() > 0 || l.failed() })
	return l
}

// replaced waits until calls carry what the token's file says now: the client has looked at it by a
// second later.
func (l *load) replaced() {
	l.t.Helper()
	late := time.Now().Add(time.Second)
	await(l.t, "the client to look at the token's file", func() bool { return time.Now().After(late) || l.failed() })
	before := l.calls.Load()
	await(l.t, "calls to go on", func() bool { return l.calls.Load() > before+20 || l.failed() })
}

func (l *load) failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err != nil
}

func (l *load) end() {
	l.t.Helper()
	l.cancel()
	l.work.Wait()
	if l.err != nil {
		l.t.Errorf("after %d rounds: %v", l.calls.Load(), l.err)
	}
}
