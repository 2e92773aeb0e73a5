// Package bearer holds the bearer token of a client, or the file that has it.
package bearer

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
)

const (
	// lookEvery is the shortest time between two checks of a token's file.
	lookEvery = time.Second
	// bytesMax is the size from which a file cannot be that of a token.
	bytesMax = 4 << 10
)

// A Token is a token, or the file that holds it. Nil means no token.
type Token struct {
	file string
	text atomic.Pointer[string]
	made time.Time
	next atomic.Int64 // time of the next check of the file, nanoseconds after made: a wall clock may be set back

	mu   sync.Mutex // held by the caller that checks the file
	size int64      // of the file when last read
	time time.Time
}

// New returns the token text, or if file is not empty, the token in that file.
func New(file, text string) *Token {
	h := &Token{file: file, made: time.Now()}
	h.text.Store(&text)
	return h
}

// Check returns an error if there is no token, or if its form is wrong.
func (h *Token) Check() error {
	switch {
	case h == nil:
		return nil
	case h.file != "":
		return h.read()
	default:
		return checkForm(*h.text.Load())
	}
}

// FileName returns the name of the file, empty for a token without one.
func (h *Token) FileName() string { return h.file }

// checkForm returns what is wrong with the form of a token. Its error is safe to log.
func checkForm(text string) error {
	if text == "" {
		return errors.New("there is no token")
	}
	if _, _, err := tokens.Parse(text); err != nil {
		return fmt.Errorf("%w and is printed by 'belfry token create'", err)
	}
	return nil
}

// Get returns the token; empty if there is none. One caller a second checks the file, and the
// others do not wait for it.
func (h *Token) Get() string {
	if h == nil {
		return ""
	}
	if now := int64(time.Since(h.made)); h.file != "" && now >= h.next.Load() && h.mu.TryLock() {
		_ = h.readLocked() // what was read last holds
		h.mu.Unlock()
	}
	return *h.text.Load()
}

func (h *Token) read() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.readLocked()
}

// readLocked reads the file if it has changed. Called with h.mu held.
func (h *Token) readLocked() error {
	h.next.Store(int64(time.Since(h.made) + lookEvery))
	info, err := os.Stat(h.file)
	if err != nil || info.Size() == h.size && info.ModTime().Equal(h.time) {
		return err
	}
	if info.Size() > bytesMax {
		return errors.New("the file is too large for a token")
	}
	data, err := os.ReadFile(h.file)
	if err != nil {
		return err
	}
	text := strings.TrimSpace(string(data))
	if err := checkForm(text); err != nil {
		return err // another program may be writing it
	}
	h.text.Store(&text)
	h.size, h.time = info.Size(), info.ModTime()
	return nil
}

// Exposes reports whether calls to a base URL would send the token in the clear.
func (h *Token) Exposes(base string) bool {
	u, err := url.Parse(base)
	if h == nil || err != nil || u.Scheme != "http" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}

// Authorize adds a token, if there is one, to a request.
func Authorize(header http.Header, token string) {
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
}
