package cluster

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/cluster/routing/routingtest"
)

// loud collects what is logged from the level of a warning on.
type loud struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *loud) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// taken returns what was logged since it was taken last.
func (l *loud) taken() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// TestOrdinaryLifeIsQuiet: no start, restart or stop of a cluster in order is worth a warning.
func TestOrdinaryLifeIsQuiet(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network, log := routingtest.NewNetwork(), &loud{}
		var all []*member
		for i, name := range []string{"a", "b", "c"} {
			m := &member{
				t: t, name: name, dir: filepath.Join(dir, name), network: network,
				logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})).With("node", name),
			}
			var seed *member
			if i > 0 {
				seed = all[0]
			}
			m.start(seed)
			t.Cleanup(m.stop)
			all = append(all, m)
		}
		quiet := func(what string) {
			t.Helper()
			await(t, what, func() bool { return settled(all[0].cluster, 3, all...) })
			if text := log.taken(); text != "" {
				t.Errorf("until %s:\n%s", what, text)
			}
		}
		var ids []string
		for _, m := range all {
			ids = append(ids, m.id())
		}
		start := func(m *member) {
			m.start(nil)
			for i, other := range all { // as gossip says
				m.known.Hear(ids[i], other.addr)
			}
		}
		quiet("the cluster has formed")
		for _, m := range all {
			m.stop()
			start(m)
			quiet(m.name + " is back")
		}
		var stopping sync.WaitGroup
		for _, m := range all {
			stopping.Go(m.stop)
		}
		stopping.Wait()
		for _, m := range all {
			start(m)
		}
		quiet("all are back")
	})
}
