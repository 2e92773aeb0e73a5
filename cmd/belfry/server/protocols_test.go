package server_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/cmd/belfry/server"
)

// TestLmstfyListenAddresses: the listener for lmstfy's clients has the rules of that for Belfry's.
func TestLmstfyListenAddresses(t *testing.T) {
	t.Parallel()
	for address, refused := range map[string]string{
		"127.0.0.1":   `--lmstfy-listen: have "127.0.0.1", want HOST:PORT`,
		"0.0.0.0:0":   "--lmstfy-listen: 0.0.0.0:0 is reachable beyond this machine",
		"127.0.0.1:x": `--lmstfy-listen: have "127.0.0.1:x"`,
	} {
		cfg := config(t, t.TempDir())
		cfg.LmstfyListen = address
		bad, ok := errors.AsType[*server.ConfigError](cfg.Check())
		if !ok || !strings.Contains(bad.Error(), refused) {
			t.Errorf("%s: got %v, want a ConfigError with %q", address, bad, refused)
		}
	}
	cfg := config(t, t.TempDir())
	cfg.LmstfyListen, cfg.Insecure = "0.0.0.0:0", true
	if err := cfg.Check(); err != nil {
		t.Errorf("with --insecure: %v", err)
	}
}

// TestLmstfyAddressInUse: the server does not start without a listener that it was told to have.
func TestLmstfyAddressInUse(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	cfg := config(t, t.TempDir())
	cfg.LmstfyListen = listener.Addr().String()
	if s, err := server.Start(t.Context(), cfg); err == nil {
		stop(t, s)
		t.Error("two servers listen at one address")
	} else if !strings.Contains(err.Error(), "--lmstfy-listen: listen tcp") {
		t.Errorf("got %v, want that the address of --lmstfy-listen is in use", err)
	}
}

// request makes a request of lmstfy's protocol and returns its status; 0 if there is no answer.
func request(t *testing.T, method, url string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Error(err)
		return 0
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Error(err)
	}
	return response.StatusCode
}

// TestLmstfyListener: it serves until the server stops. A wait that is under way ends without a job.
func TestLmstfyListener(t *testing.T) {
	t.Parallel()
	cfg := config(t, t.TempDir())
	if s := start(t, cfg); s.LmstfyAddress() != "" {
		t.Errorf("it listens at %s unasked", s.LmstfyAddress())
	}
	cfg = config(t, t.TempDir())
	cfg.LmstfyListen = "127.0.0.1:0"
	s := start(t, cfg)
	api := "http://" + s.LmstfyAddress() + "/api/ns/q"
	if status := request(t, http.MethodPut, api); status != http.StatusCreated {
		t.Errorf("publish: %d", status)
	}
	if status := request(t, http.MethodGet, api+"?timeout=5"); status != http.StatusOK {
		t.Errorf("consume: %d", status)
	}
	waited := make(chan int)
	go func() { waited <- request(t, http.MethodGet, api+"?timeout=600") }()
	await(t, "the wait", func() bool { return s.Waiting() > 0 })
	stop(t, s)
	if status := <-waited; status != http.StatusNotFound {
		t.Errorf("the wait ended with %d", status)
	}
	if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.LmstfyAddress()); err == nil {
		conn.Close()
		t.Error("it listens after the stop")
	}
}

// TestLmstfyWithTLS: the listener uses the node's certificate. Both protocols are called at once.
func TestLmstfyWithTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := certs.Files{
		Cert: filepath.Join(dir, "n1.pem"), Key: filepath.Join(dir, "n1-key.pem"), CA: filepath.Join(dir, "ca.pem"),
	}
	authority, pair, err := certs.NewAuthority("", time.Now())
	if err == nil {
		err = pair.Save(files.CA, filepath.Join(dir, "ca-key.pem"))
	}
	if err != nil {
		t.Fatal(err)
	}
	pair, err = authority.Issue("n1", []string{"127.0.0.1"}, time.Now(), time.Now().Add(24*365*time.Hour))
	if err == nil {
		err = pair.Save(files.Cert, files.Key)
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t, t.TempDir())
	cfg.NodeID, cfg.TLS, cfg.LmstfyListen = "n1", files, "127.0.0.1:0"
	s := start(t, cfg)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.ClientTLS()}}
	defer client.CloseIdleConnections()
	var calls sync.WaitGroup
	for url, want := range map[string]int{
		s.URL() + "/livez": http.StatusOK, "https://" + s.LmstfyAddress() + "/api/ns/q": http.StatusNotFound,
		"https://" + s.LmstfyAddress() + "/api/ns/q/size": http.StatusOK,
	} {
		calls.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			response, err := client.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			if response.Body.Close(); response.StatusCode != want {
				t.Errorf("%s: %d, want %d", url, response.StatusCode, want)
			}
		})
	}
	calls.Wait()
	if status := request(t, http.MethodGet, "http://"+s.LmstfyAddress()+"/api/ns/q"); status != http.StatusBadRequest {
		t.Errorf("a request without TLS: %d", status)
	}
}
