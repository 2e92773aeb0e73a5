package daemon

import (
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// onHangup calls reload at each SIGHUP, which is what operators send to a server whose files have
// changed, until stop is called. What comes before ready is closed waits for it. A server that has
// nothing to reload must not call this: it ends with its terminal.
func onHangup(ready <-chan struct{}, reload func() error, logger *slog.Logger) (stop func()) {
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-ready:
		case <-ended:
			return
		}
		for {
			select {
			case <-signals:
				if err := reload(); err != nil {
					logger.Error("reloading failed: of what the error names nothing was changed", "error", err)
				}
			case <-ended:
				return
			}
		}
	})
	return func() {
		signal.Stop(signals)
		close(ended)
		waiting.Wait()
	}
}
