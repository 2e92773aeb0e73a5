package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/belfrydb/belfry/access/tokens"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

func TestRequestID(t *testing.T) {
	newID := NewSystem().RequestID
	before := time.Now().UnixMilli()
	first, second := uuid.MustParse(newID()), uuid.MustParse(newID())
	seconds, nanos := first.Time().UnixTime()
	if at := seconds*1000 + nanos/1e6; first.Version() != 7 || at < before || at > time.Now().UnixMilli() {
		t.Errorf("%s is no UUID of version 7 of this moment", first)
	}
	if first == second {
		t.Error("two ids are equal")
	}
}

func TestColor(t *testing.T) {
	for _, test := range []struct {
		name     string
		terminal bool
		env      map[string]string
		want     bool
	}{
		{"terminal", true, nil, true},
		{"no terminal", false, nil, false},
		{"NO_COLOR", true, map[string]string{"NO_COLOR": "1"}, false},
		{"an empty NO_COLOR does not count", true, map[string]string{"NO_COLOR": ""}, true},
		{"a dumb terminal", true, map[string]string{"TERM": "dumb"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &System{OutTerminal: test.terminal, LookupEnv: func(name string) (string, bool) {
				value, ok := test.env[name]
				return value, ok
			}}
			if got := s.Color(); got != test.want {
				t.Errorf("colour: %v, want %v", got, test.want)
			}
		})
	}
}

func TestServerURLs(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:7400": "http://127.0.0.1:7400", "http://x:1/": "http://x:1", "https://x": "https://x", "ftp://x": "",
		"http://": "", "http://[": "", "x": "http://x:7400", "[::1]": "http://[::1]:7400", "http://x": "http://x",
		"a:1, b ,http://c": "http://a:1 http://b:7400 http://c", "a,": "", ",a": "", "a,https://b": "", "http://a/x,b": "",
	} {
		if got, err := (&App{Server: text}).joinedURLs(); got != want || (err != nil) != (want == "") {
			t.Errorf("the URLs of %q are %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		defaultServer: "https://127.0.0.1:7400", "localhost:7400": "https://localhost:7400", "http://x:1": "http://x:1",
		"x,y:1": "https://x:7400 https://y:1",
	} {
		if got, err := (&App{Server: text, tlsCA: "ca.pem"}).joinedURLs(); got != want || err != nil {
			t.Errorf("%q with --tls-ca: %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestServerURLsWithAToken: a token goes to this machine, or over TLS.
func TestServerURLsWithAToken(t *testing.T) {
	for text, want := range map[string]string{
		defaultServer: "http://127.0.0.1:7400", "localhost:1": "http://localhost:1", "http://[::1]:1": "http://[::1]:1",
		"n1:7400": "https://n1:7400", "10.0.0.1:7400": "https://10.0.0.1:7400", "https://n1": "https://n1",
		"http://n1:7400": "", "http://10.0.0.1": "", "http://127.0.0.1:1,http://n1:1": "",
	} {
		if got, err := (&App{Server: text, tokenFile: "x"}).joinedURLs(); got != want || (err != nil) != (want == "") {
			t.Errorf("the URLs of %q are %q, %v; want %q", text, got, err, want)
		}
	}
}

// joinedURLs returns the URLs of --server with blanks between.
func (a *App) joinedURLs() (string, error) {
	urls, err := a.serverURLs()
	var texts []string
	for _, u := range urls {
		texts = append(texts, u.String())
	}
	return strings.Join(texts, " "), err
}

// TestTokensDoNotFollow: the token stays with the server that was named, wherever that would send a
// call.
func TestTokensDoNotFollow(t *testing.T) {
	carried := make(chan string, 9)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		carried <- r.Header.Get("Authorization")
	}))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	text, _, _ := tokens.New()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	conn, err := (&App{Server: server.URL, tokenFile: file, Timeout: time.Minute}).Connect()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Admin.ListTokens(t.Context(), &belfryv1.ListTokensRequest{}); err == nil || len(carried) > 0 {
		t.Errorf("%v; %d calls went elsewhere", err, len(carried))
	}
}

// TestSecondSignal: the same signal within the period is an echo of the first; after it, or another
// one, it is a second.
func TestSecondSignal(t *testing.T) {
	for _, test := range []struct {
		name  string
		after time.Duration
		sig   os.Signal
		want  os.Signal // of the last signal; nil if it is an echo
	}{
		{"an echo", echoPeriod - 1, syscall.SIGTERM, nil},
		{"pressed twice", echoPeriod, syscall.SIGTERM, syscall.SIGTERM},
		{"another one at once", 0, syscall.SIGINT, syscall.SIGINT},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals, got := make(chan os.Signal), make(chan os.Signal, 1)
				go func() { got <- second(signals, syscall.SIGTERM) }()
				<-time.After(test.after)
				signals <- test.sig
				synctest.Wait()
				select {
				case sig := <-got:
					if sig != test.want {
						t.Errorf("%v counts", sig)
					}
				default:
					if test.want != nil {
						t.Errorf("%v does not count", test.sig)
					}
					signals <- syscall.SIGINT
				}
			})
		})
	}
}
