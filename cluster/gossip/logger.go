package gossip

import (
	"log"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	// repeatAfter is how long a repeated complaint of the library is logged at debug level only.
	repeatAfter = time.Minute
	// complaintsMax bounds the complaints that are remembered.
	complaintsMax = 64
)

// libraryLog turns the lines that the library logs into messages of slog. In a partition it
// complains of each packet at its highest level: a complaint is a warning once a minute, and all
// else is debug. What operators need is logged by this package.
type libraryLog struct {
	to *slog.Logger

	mu       sync.Mutex
	warnings bool
	said     map[string]time.Time
}

func newLibraryLog(to *slog.Logger) *libraryLog {
	return &libraryLog{to: to, said: make(map[string]time.Time)}
}

// logger returns what the library writes to.
func (l *libraryLog) logger() *log.Logger { return log.New(l, "", 0) }

// enableWarnings logs complaints as warnings from now on. While the library is created it
// complains about encryption and interfaces, which the transport handles without its knowledge.
func (l *libraryLog) enableWarnings() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warnings = true
}

// Write takes one line, "[LEVEL] memberlist: text".
func (l *libraryLog) Write(line []byte) (int, error) {
	level, text, found := strings.Cut(strings.TrimSpace(string(line)), " ")
	if !found {
		level, text = "", level
	}
	text = strings.TrimPrefix(text, "memberlist: ")
	// Others say of a node that starts again that it is dead, since its earlier life took its leave;
	// they look for that life where another one is now. What is sent after Close is not missed.
	ordinary := level == "[DEBUG]" || level == "[INFO]" || strings.HasPrefix(text, "Refuting a dead message") ||
		strings.HasPrefix(text, "Got ping for unexpected node") || strings.HasSuffix(text, net.ErrClosed.Error())
	if !ordinary && l.fresh(text) {
		l.to.Warn("gossip library", "text", text)
	} else {
		l.to.Debug("gossip library", "gossip_level", strings.Trim(level, "[]"), "text", text)
	}
	return len(line), nil
}

// fresh reports whether no such complaint was made lately. Complaints are alike that begin alike,
// up to the first name or number.
func (l *libraryLog) fresh(text string) bool {
	if i := strings.IndexAny(text, "0123456789'\":("); i > 0 {
		text = text[:i]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if last, ok := l.said[text]; !l.warnings || ok && now.Sub(last) < repeatAfter {
		return false
	}
	if len(l.said) >= complaintsMax {
		clear(l.said)
	}
	l.said[text] = now
	return true
}
