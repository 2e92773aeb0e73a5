package migration

import (
	"fmt"
	"io"
	"time"

	"github.com/belfrydb/belfry/mirror/oneway"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
)

// renderFound shows the queues that a Redis has.
func renderFound(w io.Writer, found *foundQueues, now time.Time) {
	if len(found.Redisson)+len(found.Lmstfy)+len(found.Youzan) == 0 {
		fmt.Fprintln(w, "no delayed queue")
		return
	}
	if len(found.Redisson) > 0 {
		renderFindings(w, found.Redisson, now)
	}
	moment := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return render.Moment(timestamppb.New(t), now)
	}
	owned := func(owner string, claimed, aside int64) string {
		if owner == "" {
			return ""
		}
		return fmt.Sprintf("to cluster %s: %s claimed, %s set aside", owner, number(claimed), number(aside))
	}
	blank := len(found.Redisson) > 0
	show := func(warnings []string, pairs ...string) {
		if blank {
			fmt.Fprintln(w)
		}
		blank = true
		render.Fields(w, pairs...)
		for _, warning := range warnings {
			fmt.Fprintln(w, "! "+warning)
		}
	}
	for _, f := range found.Lmstfy {
		show(f.Warnings, "lmstfy queue", f.Queue,
			"jobs", fmt.Sprintf("%s delayed, %s reserved, %s ready, %s dead", number(f.Delayed), number(f.Reserved),
				number(f.Ready), number(f.Dead)),
			"ended or expired", unlessZero(f.Ended), "named by nothing", unlessZero(f.Unnamed), "cannot be brought over",
			unlessZero(f.Bad),
			"first due", moment(f.Earliest), "last due", moment(f.Latest), "brought over", owned(f.Owner, f.HandedOver, f.Aside))
	}
	for _, f := range found.Youzan {
		show(f.Warnings, "youzan topic", f.Topic,
			"jobs", fmt.Sprintf("%s delayed, %s reserved, %s ready", number(f.Delayed), number(f.Reserved), number(f.Ready)),
			"ended", unlessZero(f.Ended), "named by nothing", unlessZero(f.Unnamed), "cannot be brought over", unlessZero(f.Bad),
			"first due", moment(f.Earliest), "last due", moment(f.Latest), "brought over", owned(f.Owner, f.HandedOver, f.Aside))
	}
}

// renderSource says what an import from lmstfy or ouqiang/delay-queue did.
func renderSource(w io.Writer, n oneway.Counts) {
	render.Fields(w,
		"claimed", number(n.Claimed),
		"put", fmt.Sprintf("%s, of which Belfry had %s already", number(n.Committed), number(n.Repeated)),
		"gone from Redis", number(n.Acked),
		"ended at the source meanwhile", unlessZero(n.Gone),
		"set aside", unlessZero(n.SetAside),
		"left: held by consumers", unlessZero(n.Reserved),
		"left: dead letters", unlessZero(n.Dead),
		"left: named by nothing", unlessZero(n.Unnamed),
		"left: cannot be read", unlessZero(n.Unread),
		"longest script", n.Slowest.Round(time.Millisecond/10).String(),
	)
}
