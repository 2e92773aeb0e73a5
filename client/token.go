package client

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
)

// WithToken sends a bearer token with each call, as 'belfry token create' makes it. [New] then
// refuses http:// addresses, unless they are on this machine: on the way to others an eavesdropper
// could take the token.
func WithToken(token string) Option {
	return optionFunc(func(c *config) { c.token = newHeldToken("", strings.TrimSpace(token)) })
}

// WithTokenFile is [WithToken] for a token in a file. The client reads the file again within a
// second of a change, so a token can be replaced without a restart: write its successor, and then
// revoke the old one. [New] fails if the file has no token. Later the last token read stays in use,
// whatever else the file holds.
func WithTokenFile(name string) Option {
	return optionFunc(func(c *config) { c.token = newHeldToken(name, "") })
}

const (
	// tokenLook is the shortest time between two checks of a token's file.
	tokenLook = time.Second
	// tokenBytesMax is the size from which a file cannot be that of a token.
	tokenBytesMax = 4 << 10
)

// A heldToken is a token, or the file that holds it. Nil means no token.
type heldToken struct {
	file string
	text atomic.Pointer[string]
	made time.Time
	next atomic.Int64 // time of the next check of the file, nanoseconds after made: a wall clock may be set back

	mu   sync.Mutex // held by the caller that checks the file
	size int64      // of the file when last read
	time time.Time
}

func newHeldToken(file, text string) *heldToken {
	h := &heldToken{file: file, made: time.Now()}
	h.text.Store(&text)
	return h
}

// check returns an error if there is no token.
func (h *heldToken) check() error {
	switch {
	case h == nil:
		return nil
	case h.file != "":
		if err := h.read(); err != nil {
			return fmt.Errorf("WithTokenFile: %s: %w", h.file, err)
		}
		return nil
	default:
		if err := checkToken(*h.text.Load()); err != nil {
			return invalidError("WithToken: %s", err)
		}
		return nil
	}
}

// checkToken returns what is wrong with the form of a token. Its error is safe to log.
func checkToken(text string) error {
	if text == "" {
		return errors.New("there is no token")
	}
	if _, _, err := tokens.Parse(text); err != nil {
		return fmt.Errorf("%w and is printed by 'belfry token create'", err)
	}
	return nil
}

// get returns the token; empty if there is none. One caller a second checks the file, and the
// others do not wait for it.
func (h *heldToken) get() string {
	if h == nil {
		return ""
	}
	if now := int64(time.Since(h.made)); h.file != "" && now >= h.next.Load() && h.mu.TryLock() {
		_ = h.readLocked() // what was read last holds
		h.mu.Unlock()
	}
	return *h.text.Load()
}

func (h *heldToken) read() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.readLocked()
}

// readLocked reads the file if it has changed. Called with h.mu held.
func (h *heldToken) readLocked() error {
	h.next.Store(int64(time.Since(h.made) + tokenLook))
	info, err := os.Stat(h.file)
	if err != nil || info.Size() == h.size && info.ModTime().Equal(h.time) {
		return err
	}
	if info.Size() > tokenBytesMax {
		return errors.New("the file is too large for a token")
	}
	data, err := os.ReadFile(h.file)
	if err != nil {
		return err
	}
	text := strings.TrimSpace(string(data))
	if err := checkToken(text); err != nil {
		return err // another program may be writing it
	}
	h.text.Store(&text)
	h.size, h.time = info.Size(), info.ModTime()
	return nil
}

// exposes reports whether calls to a base URL would send the token in the clear.
func (h *heldToken) exposes(base string) bool {
	u, err := url.Parse(base)
	if h == nil || err != nil || u.Scheme != "http" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}
