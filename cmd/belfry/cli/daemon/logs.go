package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
)

// The formats of the log.
const (
	logAuto = "auto" // text for a person, JSON for what reads on
	logText = "text"
	logJSON = "json"
)

// logLevels are the levels that a log may have, the default first.
var logLevels = []string{"info", "debug", "warn", "error"} //nolint:gochecknoglobals // never changes

// parseLevel reads one of logLevels.
func parseLevel(word string) (level slog.Level, err error) {
	if !slices.Contains(logLevels, word) {
		return level, fmt.Errorf("have %.20q, want one of %s", word, strings.Join(logLevels, ", "))
	}
	return level, level.UnmarshalText([]byte(word))
}

// levelOf returns a level that may be changed while there is a log.
func levelOf(word string) *slog.LevelVar {
	level := &slog.LevelVar{}
	if at, err := parseLevel(word); err == nil { // the flag takes no other
		level.Set(at)
	}
	return level
}

// logsJSON reports whether logs of a format are JSON.
func (a verbs) logsJSON(format string) bool {
	return format == logJSON || format == logAuto && !a.ErrTerminal
}

// logger returns a logger to standard error.
func (a verbs) logger(format string, level slog.Leveler) *slog.Logger {
	if a.logsJSON(format) {
		return slog.New(slog.NewJSONHandler(a.Err, logOptions(level)))
	}
	return slog.New(slog.NewTextHandler(a.Err, logOptions(level)))
}

// lastWords says why a server ended, if it went wrong, which a signal is not, and its log is JSON:
// then nothing is left for people but the exit code.
func (a verbs) lastWords(ctx context.Context, format string, err error) error {
	code := cli.ExitCode(ctx, err)
	if err == nil || code >= cli.CodeSignal || !a.logsJSON(format) {
		return err
	}
	a.logger(format, slog.LevelError).Error("the server cannot go on", slog.String("error", cli.Explain(err)))
	return cli.ExitWith(code, "")
}

func logOptions(level slog.Leveler) *slog.HandlerOptions {
	return &slog.HandlerOptions{Level: level, ReplaceAttr: shortDurations}
}

// shortDurations writes durations as people do; as JSON they would be nanoseconds.
func shortDurations(_ []string, attr slog.Attr) slog.Attr {
	if attr.Value.Kind() == slog.KindDuration {
		return slog.String(attr.Key, attr.Value.Duration().Round(time.Microsecond).String())
	}
	return attr
}
