package raftgroup

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger passes the log messages of the Raft library to slog. The library logs every election
// step and each failed dial at levels of its own, though most are routine; here they are all debug
// messages. This package logs what operators need.
type raftLogger struct {
	to   *slog.Logger
	name string
	args []any
}

// NewLogger returns an hclog.Logger that writes to logger at debug level.
func NewLogger(logger *slog.Logger) hclog.Logger { return raftLogger{to: logger} }

// Log writes msg; level becomes an attribute.
func (l raftLogger) Log(level hclog.Level, msg string, args ...any) {
	if !l.to.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	attrs := make([]any, 0, len(args)+2)
	attrs = append(attrs, "raft_level", level.String())
	for i, arg := range args {
		if format, ok := arg.(hclog.Format); ok { // a format and its arguments, printed late
			arg = fmt.Sprintf(fmt.Sprint(format[0]), format[1:]...)
		}
		if i%2 == 0 && taken(arg) {
			arg = fmt.Sprint("raft_", arg)
		}
		attrs = append(attrs, arg)
	}
	l.to.Debug("raft: "+msg, attrs...) //nolint:sloglint // both the message and the keys are the library's
}

// taken reports whether every line has this key already.
func taken(key any) bool {
	return key == slog.TimeKey || key == slog.LevelKey || key == slog.MessageKey
}

// Trace logs at debug level, as do all the methods that follow.
func (l raftLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }

// Debug is Log.
func (l raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }

// Info is Log.
func (l raftLogger) Info(msg string, args ...any) { l.Log(hclog.Info, msg, args...) }

// Warn is Log.
func (l raftLogger) Warn(msg string, args ...any) { l.Log(hclog.Warn, msg, args...) }

// Error is Log.
func (l raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l raftLogger) enabled() bool { return l.to.Enabled(context.Background(), slog.LevelDebug) }

// IsTrace reports whether debug messages are written, as do the methods that follow.
func (l raftLogger) IsTrace() bool { return l.enabled() }

// IsDebug is IsTrace.
func (l raftLogger) IsDebug() bool { return l.enabled() }

// IsInfo is IsTrace.
func (l raftLogger) IsInfo() bool { return l.enabled() }

// IsWarn is IsTrace.
func (l raftLogger) IsWarn() bool { return l.enabled() }

// IsError is IsTrace.
func (l raftLogger) IsError() bool { return l.enabled() }

// ImpliedArgs returns the arguments of With.
func (l raftLogger) ImpliedArgs() []any { return l.args }

// With returns a logger that adds args to each message.
func (l raftLogger) With(args ...any) hclog.Logger {
	all := append(append([]any(nil), l.args...), args...)
	return raftLogger{to: l.to.With(args...), name: l.name, args: all}
}

// Name returns the name that Named gave.
func (l raftLogger) Name() string { return l.name }

// Named returns a logger with a name.
func (l raftLogger) Named(name string) hclog.Logger {
	return raftLogger{to: l.to, name: name, args: l.args}
}

// ResetNamed is Named.
func (l raftLogger) ResetNamed(name string) hclog.Logger { return l.Named(name) }

// SetLevel does nothing: the handler of slog decides.
func (l raftLogger) SetLevel(hclog.Level) {}

// GetLevel returns the level from which on messages are written.
func (l raftLogger) GetLevel() hclog.Level {
	if l.enabled() {
		return hclog.Trace
	}
	return hclog.Off
}

// StandardLogger returns a logger of package log whose lines become debug messages.
func (l raftLogger) StandardLogger(opts *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(opts), "", 0)
}

// StandardWriter returns a writer whose lines become debug messages.
func (l raftLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer {
	return slog.NewLogLogger(l.to.Handler(), slog.LevelDebug).Writer()
}
