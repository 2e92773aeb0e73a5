package mirrortrial

import (
	"slices"
	"strings"

	"github.com/belfrydb/belfry/cmd/belfry/processtest"
)

// holdLost is what a command says that was overtaken.
const holdLost = "the right to mirror this queue was lost"

// givenWay is what a command says that has let an export have the queue, or has found that one took
// the jobs back.
const givenWay = "belfry: waiting: "

// away are ends of commands that find Redis gone at once, or do not ask again.
var away = []string{"no Redis answers", "EOF", "connection reset", "broken pipe", "i/o timeout", "LOADING"}

// nothingThere is what a command says about a queue that was not brought over yet, wished what one
// says that a rollback came before.
const (
	nothingThere = "this database of Redis has no delayed queue"
	wished       = "a rollback, an export or a settle asks for this queue"
)

// mayEnd are the errors with which a command may end that had the hold, besides.
var mayEnd = map[string][]string{
	"import":   {nothingThere, wished},
	"cutover":  {nothingThere, wished},
	"inspect":  {nothingThere},
	"rollback": {nothingThere},
	"finalize": append([]string{nothingThere, "cannot be ended yet", "has something again"}, away...),
}

// ending is how a command says that it ended, and whether it may: one that had the hold goes on
// when Redis comes back.
func ending(verb string, p *process, hadHold bool) (text string, known bool) {
	last := strings.TrimSpace(processtest.Tail(strings.TrimSpace(p.said.String()), 1))
	may := append([]string{holdLost}, mayEnd[verb]...)
	if !hadHold {
		may = append(may, away...)
	}
	n := slices.IndexFunc(may, func(text string) bool { return strings.Contains(last, text) })
	if n < 0 {
		return last, false
	}
	return may[n], true
}
