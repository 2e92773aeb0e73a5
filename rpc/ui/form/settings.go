package form

import (
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/wire"
)

// Setting is a setting of a queue as an input.
type Setting struct {
	// Name is the path of the field in QueueSettings, as the API's errors name it.
	Name string
	// Label is for people, and Help says what values there are.
	Label, Help string
	// Choices are all values, if the input is a list to choose from.
	Choices []string
	// Limit says that the value is a number of which 0 means no limit.
	Limit bool
	// Text returns the value as an input has it.
	Text func(*belfryv1.QueueSettings) string
	// read sets the value; the text is not empty.
	read func(field, text string, s *belfryv1.QueueSettings) error
}

// OfKeys reports whether the setting is about the keys of jobs.
func (s *Setting) OfKeys() bool {
	return strings.HasPrefix(s.Name, "key") || s.Name == "holdOnDead" || s.Name == "noKeys"
}

// The values of an input that is a choice between two.
const (
	yes = "yes"
	no  = "no"
)

// DefaultDelays is the text that stands for the default retry delays. It goes back to the default retry delays.
const DefaultDelays = "default"

// Settings returns all settings of a queue but whether it is paused, in the order of the page.
func Settings() []Setting {
	return []Setting{
		{
			Name: "ttr", Label: "Lease (TTR)", Help: "1ms to 24h",
			Text: func(s *belfryv1.QueueSettings) string { return durationText(s.GetTtr()) },
			read: func(field, text string, s *belfryv1.QueueSettings) (err error) {
				s.Ttr, err = Duration(field, text)
				return err
			},
		},
		limit("maxAttempts", "Attempts", "failed attempts until a job is dead; 0 for no limit, at most 1000000",
			(*belfryv1.QueueSettings).GetMaxAttempts, func(s *belfryv1.QueueSettings, n *uint32) { s.MaxAttempts = n }),
		{
			Name: "retryDelays", Label: "Retry delays",
			Help: "after the n-th failed attempt, such as 1s, 10s, 2m; the last repeats; 0s is at once; at most 64; " +
				"“default” goes back to the default",
			Text: retryDelaysText, read: readRetryDelays,
		},
		{
			Name: "dedupWindow", Label: "Ids remembered for", Help: "after the job has ended; 0s to 876600h",
			Text: func(s *belfryv1.QueueSettings) string { return durationText(s.GetDedupWindow()) },
			read: func(field, text string, s *belfryv1.QueueSettings) (err error) {
				s.DedupWindow, err = Duration(field, text)
				return err
			},
		},
		choice("dedupForever", "Ids remembered for ever", "whatever the time above says",
			(*belfryv1.QueueSettings).GetDedupForever, func(s *belfryv1.QueueSettings, v *bool) { s.DedupForever = v }),
		limit("maxInFlight", "Reserved at one time", "0 for no limit", (*belfryv1.QueueSettings).GetMaxInFlight,
			func(s *belfryv1.QueueSettings, n *uint32) { s.MaxInFlight = n }),
		limit("maxJobs", "Jobs", "in all states; 0 for no limit", (*belfryv1.QueueSettings).GetMaxJobs,
			func(s *belfryv1.QueueSettings, n *uint32) { s.MaxJobs = n }),
		{
			Name: "maxBytes", Label: "Bytes", Limit: true,
			Help: "of bodies, headers, chosen ids and keys, and of schedules; 0 for no limit",
			Text: func(s *belfryv1.QueueSettings) string { return strconv.FormatUint(s.GetMaxBytes(), 10) },
			read: func(field, text string, s *belfryv1.QueueSettings) error {
				n, err := Count(field, text, math.MaxUint64)
				s.MaxBytes = &n
				return err
			},
		},
		limit("putsPerSecond", "Puts per second", "0 for no limit", (*belfryv1.QueueSettings).GetPutsPerSecond,
			func(s *belfryv1.QueueSettings, n *uint32) { s.PutsPerSecond = n }),
		overdueMode(), overduePeriod(), overdueAfter(),
		expireTo(),
		limit("keyConcurrency", "Reserved of one key", "at one time; 0 for no limit, at most 1000000",
			(*belfryv1.QueueSettings).GetKeyConcurrency, func(s *belfryv1.QueueSettings, n *uint32) { s.KeyConcurrency = n }),
		keyRate(), keyBurst(),
		choice("keyOrdered", "Order of a key", "jobs of one key go out in put order, one at a time; changes only while the "+
			"queue is empty", (*belfryv1.QueueSettings).GetKeyOrdered,
			func(s *belfryv1.QueueSettings, v *bool) { s.KeyOrdered = v }),
		choice("keyFair", "Keys take turns", "priority then orders the jobs of one key only",
			(*belfryv1.QueueSettings).GetKeyFair, func(s *belfryv1.QueueSettings, v *bool) { s.KeyFair = v }),
		choice("holdOnDead", "A dead job holds its key", "until it is redriven or cancelled",
			(*belfryv1.QueueSettings).GetHoldOnDead, func(s *belfryv1.QueueSettings, v *bool) { s.HoldOnDead = v }),
		choice("noKeys", "Keys refused", "puts that have a key fail", (*belfryv1.QueueSettings).GetNoKeys,
			func(s *belfryv1.QueueSettings, v *bool) { s.NoKeys = v }),
	}
}

// choice returns a setting that is yes or no.
func choice(name, label, help string, get func(*belfryv1.QueueSettings) bool,
	set func(*belfryv1.QueueSettings, *bool)) Setting {
	return Setting{
		Name: name, Label: label, Help: help, Choices: []string{no, yes},
		Text: func(s *belfryv1.QueueSettings) string {
			if get(s) {
				return yes
			}
			return no
		},
		read: func(_, text string, s *belfryv1.QueueSettings) error {
			set(s, proto.Bool(text == yes))
			return nil
		},
	}
}

func expireTo() Setting {
	return Setting{
		Name: "expireTo", Label: "Expired jobs", Help: "what becomes of a job whose TTL ends",
		Choices: []string{"gone", "dead"},
		Text:    func(s *belfryv1.QueueSettings) string { return enumText(s.GetExpireTo().String(), "EXPIRE_TO_") },
		read: func(_, text string, s *belfryv1.QueueSettings) error {
			s.ExpireTo = belfryv1.ExpireTo(belfryv1.ExpireTo_value["EXPIRE_TO_"+strings.ToUpper(text)]).Enum()
			return nil
		},
	}
}

// keyRate is the rate of a key without its burst.
func keyRate() Setting {
	return Setting{
		Name: "keyRate.count", Label: "Rate of one key", Help: "count/period, such as 10/1m; 0 for no limit",
		Limit: true,
		Text:  func(s *belfryv1.QueueSettings) string { return wire.FormatKeyRate(s.GetKeyRate()) },
		read: func(field, text string, s *belfryv1.QueueSettings) error {
			r, err := wire.ParseKeyRate(text)
			if err != nil {
				return Errorf(field, "%q: %s", text, err)
			}
			s.KeyRate.Count, s.KeyRate.Per = r.Count, r.Per
			return nil
		},
	}
}

func keyBurst() Setting {
	return Setting{
		Name: "keyRate.burst", Label: "Of one key at once", Help: "0 for as many as the count of the rate",
		Text: func(s *belfryv1.QueueSettings) string { return strconv.Itoa(int(s.GetKeyRate().GetBurst())) },
		read: func(field, text string, s *belfryv1.QueueSettings) error {
			n, err := Count(field, text, math.MaxUint32)
			s.KeyRate.Burst = uint32(n) //nolint:gosec // Count bounds it
			return err
		},
	}
}

// limit returns a setting that is a number of 32 bits.
func limit(name, label, help string, get func(*belfryv1.QueueSettings) uint32,
	set func(*belfryv1.QueueSettings, *uint32)) Setting {
	return Setting{
		Name: name, Label: label, Help: help, Limit: true,
		Text: func(s *belfryv1.QueueSettings) string { return strconv.FormatUint(uint64(get(s)), 10) },
		read: func(field, text string, s *belfryv1.QueueSettings) error {
			n, err := Count(field, text, math.MaxUint32)
			small := uint32(n) //nolint:gosec // Count bounds it
			set(s, &small)
			return err
		},
	}
}

func overdueMode() Setting {
	return Setting{
		Name: "overdue.mode", Label: "Jobs due in an outage", Help: "fire at once, spread evenly over a period, or drop",
		Choices: []string{"fire", "spread", "drop"},
		Text: func(s *belfryv1.QueueSettings) string {
			return enumText(s.GetOverdue().GetMode().String(), "OVERDUE_MODE_")
		},
		read: func(_, text string, s *belfryv1.QueueSettings) error {
			s.Overdue.Mode = belfryv1.OverdueMode(belfryv1.OverdueMode_value["OVERDUE_MODE_"+strings.ToUpper(text)])
			return nil
		},
	}
}

func overduePeriod() Setting {
	return Setting{
		Name: "overdue.period", Label: "Spread over", Help: "with spread only: 1s to 30d",
		Text: func(s *belfryv1.QueueSettings) string { return durationText(s.GetOverdue().GetPeriod()) },
		read: func(field, text string, s *belfryv1.QueueSettings) (err error) {
			s.Overdue.Period, err = Duration(field, text)
			return err
		},
	}
}

func overdueAfter() Setting {
	return Setting{
		Name: "overdue.overdueAfter", Label: "An outage lasts at least", Help: "1s to 876600h",
		Text: func(s *belfryv1.QueueSettings) string { return durationText(s.GetOverdue().GetOverdueAfter()) },
		read: func(field, text string, s *belfryv1.QueueSettings) (err error) {
			s.Overdue.OverdueAfter, err = Duration(field, text)
			return err
		},
	}
}

// ReadSettings returns the settings that a person changed; nil if none was. The policy for overdue
// jobs and the rate of keys are sent as a whole, because the API takes them so.
func ReadSettings(in Values) (*belfryv1.QueueSettings, error) {
	out, given := &belfryv1.QueueSettings{}, false
	policy := in.changed("overdue.mode") || in.changed("overdue.period") || in.changed("overdue.overdueAfter")
	if policy {
		out.Overdue = &belfryv1.OverduePolicy{}
	}
	rate := in.changed("keyRate.count") || in.changed("keyRate.burst")
	if rate {
		out.KeyRate = &belfryv1.KeyRate{}
	}
	for _, s := range Settings() {
		text := in.text(s.Name)
		ofPolicy, ofRate := strings.HasPrefix(s.Name, "overdue."), strings.HasPrefix(s.Name, "keyRate.")
		sent := ofPolicy && policy || ofRate && rate || in.changed(s.Name)
		switch {
		case !sent:
			continue
		case s.Name == "overdue.period" && !in.changed(s.Name) && in.text("overdue.mode") != "spread",
			s.Name == "keyRate.burst" && !in.changed(s.Name) && in.text("keyRate.count") == "0":
			continue // it goes with the mode or the rate that it belonged to
		case text == "" && !ofPolicy && !ofRate:
			return nil, Errorf(s.Name, "a value is required: %s", s.Help)
		}
		given = true
		if text == "" {
			continue
		}
		if err := s.read(s.Name, text, out); err != nil {
			return nil, err
		}
	}
	if !given {
		return nil, nil //nolint:nilnil // no change is no settings
	}
	return out, nil
}

// retryDelaysText writes retry delays as readRetryDelays reads them.
func retryDelaysText(s *belfryv1.QueueSettings) string {
	if s.GetRetryDelaysDefault() {
		return DefaultDelays
	}
	return DelaysText(s.GetRetryDelays())
}

// DelaysText writes delays with commas between them; "0s" if there are none, which means at once.
func DelaysText(delays []*durationpb.Duration) string {
	texts := make([]string, 0, len(delays))
	for _, d := range delays {
		texts = append(texts, durationText(d))
	}
	if len(texts) == 0 {
		return "0s"
	}
	return strings.Join(texts, ", ")
}

func readRetryDelays(field, text string, s *belfryv1.QueueSettings) (err error) {
	if text == DefaultDelays {
		s.RetryDelaysDefault = proto.Bool(true)
		return nil
	}
	s.RetryDelays, err = durations(field, text)
	return err
}

// durationText writes a duration exactly, in a form that Duration reads; nothing if it is not set.
func durationText(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	text := wire.FormatDuration(d.AsDuration())
	if _, hours, ok := strings.Cut(text, "("); ok { // years, which nobody can type
		return strings.TrimSuffix(hours, ")")
	}
	return text
}

// enumText writes a value of an enum as an input has it.
func enumText(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }
