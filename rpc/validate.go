package rpc

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/auth"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// checker checks the fields of one request against the limits, and converts them. It keeps the
// first violation in err; values that it returns after that have no meaning.
type checker struct {
	limits *Limits
	// now is the time of the serving node. It only bounds how far in the future a due time may be.
	now time.Time
	// permissions says what the caller may do to queues; nil for everything.
	permissions *auth.Permissions
	err         *fault.Error
}

// another returns a checker like c without a violation.
func (c *checker) another() *checker {
	return &checker{limits: c.limits, now: c.now, permissions: c.permissions}
}

// allow checks that the caller has the permission of this call for a queue.
func (c *checker) allow(queue string) {
	if c.err == nil && !c.permissions.Allows(queue) {
		c.err = c.permissions.Forbidden(queue)
	}
}

// fail keeps the first violation.
func (c *checker) fail(f *fault.Error) {
	if c.err == nil {
		c.err = f
	}
}

// queue checks a queue's name.
func (c *checker) queue(field, name string) string {
	if why := queueNameFlaw(name, c.limits.QueueBytesMax); why != nil {
		c.fail(why.of(field))
	}
	c.allow(name)
	return name
}

// flaw is what is wrong with a value, independent of its field.
type flaw struct {
	text      string
	is, limit int
}

// of returns the flaw as a fault about a field.
func (f *flaw) of(field string) *fault.Error {
	if f.limit > 0 {
		return fault.TooLarge(field, f.is, f.limit)
	}
	return fault.Invalid(field, "%s", f.text)
}

// queueNameFlaw returns what is wrong with a queue's name; nil if it is valid.
func queueNameFlaw(name string, bytesMax int) *flaw {
	switch {
	case name == "":
		return &flaw{text: "a queue's name is required"}
	case len(name) > bytesMax:
		return &flaw{is: len(name), limit: bytesMax}
	}
	if strings.Count(name, "/") > 1 {
		return &flaw{text: "want `name` or `namespace/name`; there is more than one slash"}
	}
	for s := range strings.SplitSeq(name, "/") {
		if s == "" || s == "." || s == ".." {
			return &flaw{text: `want "name" or "namespace/name"; a part is empty, "." or ".."`}
		}
		for i := range len(s) {
			if !queueNameByte(s[i]) {
				return &flaw{text: "only letters, digits and the characters . _ : - are allowed in a queue's name"}
			}
		}
	}
	return nil
}

// queueNameByte reports whether a byte may be in a segment of a queue's name.
func queueNameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == ':' || b == '-'
}

// jobID checks the id of a job that may exist.
func (c *checker) jobID(field, id string) string {
	switch {
	case id == "":
		c.fail(fault.Invalid(field, "a job's id is required"))
	case len(id) > c.limits.IDBytesMax:
		c.fail(fault.TooLarge(field, len(id), c.limits.IDBytesMax))
	case !utf8.ValidString(id):
		c.fail(fault.Invalid(field, "not valid UTF-8"))
	}
	return id
}

// newID checks an id that a producer chose. If it is empty, the server generates one.
func (c *checker) newID(field, id string) string {
	if id == "" {
		return ""
	}
	if isGeneratedForm(id) {
		c.fail(fault.Invalid(field, "ids of the form DIGITS-DIGITS are the server's own: it makes them for jobs that are put without one; put a word before it, such as %q", "job-"+fault.Cut(id, fault.QuotedBytesMax)))
	}
	return c.jobID(field, id)
}

// isGeneratedForm reports whether an id looks like one of the server's: <digits>-<digits>.
func isGeneratedForm(id string) bool {
	partition, serial, ok := strings.Cut(id, "-")
	return ok && allDigits(partition) && allDigits(serial)
}

// allDigits reports whether s is one or more decimal digits.
func allDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// requestID checks a requestId; empty means none.
func (c *checker) requestID(id string) string {
	if len(id) > c.limits.RequestIDBytesMax {
		c.fail(fault.TooLarge("requestId", len(id), c.limits.RequestIDBytesMax))
	}
	return id
}

// span checks an optional duration. For nil it returns 0 and false.
func (c *checker) span(field string, d *durationpb.Duration, least, most time.Duration) (time.Duration, bool) {
	if d == nil {
		return 0, false
	}
	if d.CheckValid() != nil {
		c.fail(fault.Invalid(field, "not a valid duration; the range is %s to %s", wire.FormatDuration(least), wire.FormatDuration(most)))
		return 0, true
	}
	v := d.AsDuration()
	if v < least || v > most {
		c.fail(fault.Invalid(field, "%s is out of range: %s to %s", wire.FormatDuration(v), wire.FormatDuration(least), wire.FormatDuration(most)))
	}
	return v, true
}

// delay checks an optional delay.
func (c *checker) delay(field string, d *durationpb.Duration) (time.Duration, bool) {
	return c.span(field, d, 0, c.limits.DelayMax)
}

// ttr checks an optional duration of a lease; 0 means not given.
func (c *checker) ttr(field string, d *durationpb.Duration) time.Duration {
	v, _ := c.span(field, d, c.limits.TTRMin, c.limits.TTRMax)
	return v
}

// dueAt checks a due time. A time before 1970 becomes the first nanosecond of 1970: the machine
// reads 0 as no time, and both are long past.
func (c *checker) dueAt(field string, t *timestamppb.Timestamp) fsm.Time {
	if t.CheckValid() != nil {
		c.fail(fault.Invalid(field, "not a valid time; the limit is %s from now", wire.FormatDuration(c.limits.DelayMax)))
		return 0
	}
	if at := t.AsTime(); at.After(c.now.Add(c.limits.DelayMax)) {
		c.fail(fault.Invalid(field, "%s is out of range: at most %s from now", at.Format(time.RFC3339), wire.FormatDuration(c.limits.DelayMax)))
		return 0
	}
	return pastTime(t)
}

// pastTime converts a valid time that is not far in the future; see dueAt for times before 1970.
func pastTime(t *timestamppb.Timestamp) fsm.Time {
	if t.GetSeconds() < 0 {
		return 1
	}
	return max(1, fsm.Time(t.GetSeconds())*fsm.Time(time.Second)+fsm.Time(t.GetNanos()))
}

// retryDelays checks a retry schedule.
func (c *checker) retryDelays(field string, delays []*durationpb.Duration) []time.Duration {
	if len(delays) > c.limits.RetryDelaysMax {
		c.fail(fault.Invalid(field, "%d entries; the limit is %d", len(delays), c.limits.RetryDelaysMax))
		return nil
	}
	out := make([]time.Duration, len(delays))
	for i, d := range delays {
		out[i], _ = c.delay(fault.Indexed(field, i), d)
	}
	return out
}

// attempts checks a maximum number of attempts.
func (c *checker) attempts(field string, n uint32) uint32 {
	if n > c.limits.AttemptsMax {
		c.fail(fault.Invalid(field, "%d is out of range: 0 to %d", n, c.limits.AttemptsMax))
	}
	return n
}

// priority checks a priority.
func (c *checker) priority(field string, p int32) int8 {
	if p < -128 || p > 127 {
		c.fail(fault.Invalid(field, "%d is out of range: -128 to 127", p))
	}
	return int8(p)
}

// headers checks and sorts a job's headers.
func (c *checker) headers(field string, headers map[string]string) []fsm.Header {
	if len(headers) == 0 {
		return nil
	}
	sum := 0
	out := make([]fsm.Header, 0, len(headers))
	for name, value := range headers {
		if name == "" {
			c.fail(fault.Invalid(field, "a header without a name"))
		}
		sum += len(name) + len(value)
		out = append(out, fsm.Header{Name: name, Value: value})
	}
	if sum > c.limits.HeaderBytesMax {
		c.fail(fault.TooLarge(field, sum, c.limits.HeaderBytesMax))
	}
	slices.SortFunc(out, func(a, b fsm.Header) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// body checks a job's body.
func (c *checker) body(field string, body []byte) []byte {
	if len(body) > c.limits.BodyBytesMax {
		c.fail(fault.TooLarge(field, len(body), c.limits.BodyBytesMax))
	}
	return body
}

// lease checks a lease token.
func (c *checker) lease(field, token string) fsm.Ref {
	if token == "" {
		c.fail(fault.Invalid(field, "a lease is required"))
		return fsm.Ref{}
	}
	ref, err := wire.ParseLease(token)
	if err != nil {
		c.fail(fault.Invalid(field, "%v", err))
	}
	c.allow(ref.Queue)
	return ref
}

// count checks a number of jobs; 0 becomes the default.
func (c *checker) count(field string, n, byDefault, most uint32) uint32 {
	if n == 0 {
		return byDefault
	}
	if n > most {
		c.fail(fault.Invalid(field, "%d is out of range: 1 to %d", n, most))
	}
	return n
}

// page checks a page size.
func (c *checker) page(field string, n int32) int {
	switch {
	case n < 0:
		c.fail(fault.Invalid(field, "%d is out of range: 1 to %d", n, c.limits.PageMax))
		return 1
	case n == 0:
		return min(100, c.limits.PageMax)
	default:
		return min(int(n), c.limits.PageMax)
	}
}

// entries checks the length of a list that must not be empty.
func (c *checker) entries(field string, n, most int) {
	switch {
	case n == 0:
		c.fail(fault.Invalid(field, "at least one is required; the limit is %d", most))
	case n > most:
		c.fail(fault.TooMany(field, n, most))
	}
}

// queues checks the list of queues of a Reserve. A repeated queue is refused: it can only be a
// mistake.
func (c *checker) queues(field string, names []string) []string {
	c.entries(field, len(names), c.limits.QueuesMax)
	if c.err != nil {
		return nil
	}
	for i, name := range names {
		c.queue(fault.Indexed(field, i), name)
		if slices.Contains(names[:i], name) {
			c.fail(fault.Invalid(fault.Indexed(field, i), "the queue is named twice"))
		}
	}
	return names
}
