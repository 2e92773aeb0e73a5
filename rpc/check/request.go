package check

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/auth"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// Request checks the fields of one request against the limits, and converts them. It keeps the
// first violation in Err; values that it returns after that have no meaning.
type Request struct {
	Limits *Limits
	// Now is the time of the serving node. It only bounds how far in the future a due time may be.
	Now time.Time
	// Permissions says what the caller may do to queues; nil for everything.
	Permissions *auth.Permissions
	Err         *fault.Error
}

// Rules is what a server checks requests against.
type Rules struct {
	Limits     Limits
	Now        func() time.Time
	Authorizer *auth.Authorizer
}

// Request returns the checks of one request that does an action to the queues that it names.
func (r *Rules) Request(ctx context.Context, action tokens.Action) *Request {
	allowed, f := r.Authorizer.Permissions(ctx, action)
	return &Request{Limits: &r.Limits, Now: r.Now(), Permissions: allowed, Err: f}
}

// Another returns a request like c without a violation.
func (c *Request) Another() *Request {
	return &Request{Limits: c.Limits, Now: c.Now, Permissions: c.Permissions}
}

// Allow checks that the caller has the permission of this call for a queue.
func (c *Request) Allow(queue string) {
	if c.Err == nil && !c.Permissions.Allows(queue) {
		c.Err = c.Permissions.Forbidden(queue)
	}
}

// Fail keeps the first violation.
func (c *Request) Fail(f *fault.Error) {
	if c.Err == nil {
		c.Err = f
	}
}

// Queue checks a queue's name.
func (c *Request) Queue(field, name string) string {
	if why := queueNameFlaw(name, c.Limits.QueueBytesMax); why != nil {
		c.Fail(why.of(field))
	}
	c.Allow(name)
	return name
}

// AcceptsQueue reports whether queue would find no violation in a name.
func (c *Request) AcceptsQueue(name string) bool {
	return queueNameFlaw(name, c.Limits.QueueBytesMax) == nil && c.Permissions.Allows(name)
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
			if !NameByte(s[i]) {
				return &flaw{text: "only letters, digits and the characters . _ : - are allowed in a queue's name"}
			}
		}
	}
	return nil
}

// NameByte reports whether a byte may be in a segment of a name: of a queue, or of a schedule.
func NameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == ':' ||
		b == '-'
}

// JobID checks the id of a job that may exist.
func (c *Request) JobID(field, id string) string {
	switch {
	case id == "":
		c.Fail(fault.Invalid(field, "a job's id is required"))
	case len(id) > c.Limits.IDBytesMax:
		c.Fail(fault.TooLarge(field, len(id), c.Limits.IDBytesMax))
	case !utf8.ValidString(id):
		c.Fail(fault.Invalid(field, "not valid UTF-8"))
	}
	return id
}

// Key checks a key; empty means none.
func (c *Request) Key(field, key string) string {
	switch {
	case len(key) > c.Limits.KeyBytesMax:
		c.Fail(fault.TooLarge(field, len(key), c.Limits.KeyBytesMax))
	case !utf8.ValidString(key):
		c.Fail(fault.Invalid(field, "not valid UTF-8"))
	}
	return key
}

// newID checks an id that a producer chose. If it is empty, the server generates one.
func (c *Request) newID(field, id string) string {
	if id == "" {
		return ""
	}
	if IsGeneratedID(id) {
		c.Fail(fault.Invalid(field,
			"ids of the form DIGITS-DIGITS are the server's own: it makes them for jobs that are put without one; put a word "+
				"before it, such as %q", "job-"+fault.Cut(id, fault.QuotedBytesMax)))
	}
	if strings.HasPrefix(id, fsm.SchedulePrefix) {
		c.Fail(fault.Invalid(field, "ids that begin with %s are those of the jobs of schedules", fsm.SchedulePrefix))
	}
	return c.JobID(field, id)
}

// IsReservedID reports whether an id is one that producers cannot choose.
func IsReservedID(id string) bool {
	return IsGeneratedID(id) || strings.HasPrefix(id, fsm.SchedulePrefix)
}

// IsGeneratedID reports whether an id looks like one of the server's: <digits>-<digits>.
func IsGeneratedID(id string) bool {
	partition, serial, ok := strings.Cut(id, "-")
	return ok && allDigits(partition) && allDigits(serial)
}

// allDigits reports whether s is one or more decimal digits.
func allDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// RequestID checks a requestId; empty means none.
func (c *Request) RequestID(id string) string {
	if len(id) > c.Limits.RequestIDBytesMax {
		c.Fail(fault.TooLarge("requestId", len(id), c.Limits.RequestIDBytesMax))
	}
	return id
}

// Span checks an optional duration. For nil it returns 0 and false.
func (c *Request) Span(field string, d *durationpb.Duration, least, most time.Duration) (time.Duration, bool) {
	if d == nil {
		return 0, false
	}
	if d.CheckValid() != nil {
		c.Fail(fault.Invalid(field, "not a valid duration; the range is %s to %s", wire.FormatDuration(least),
			wire.FormatDuration(most)))
		return 0, true
	}
	v := d.AsDuration()
	if v < least || v > most {
		c.Fail(fault.Invalid(field, "%s is out of range: %s to %s", spanText(d), wire.FormatDuration(least),
			wire.FormatDuration(most)))
	}
	return v, true
}

// Holds reports whether a time.Duration can be as long as d, which is 292 years.
func Holds(d *durationpb.Duration) bool { return int64(d.AsDuration()/time.Second) == d.GetSeconds() }

// spanText writes a valid duration, also one that is too long for a time.Duration.
func spanText(d *durationpb.Duration) string {
	if !Holds(d) {
		return strconv.FormatInt(d.GetSeconds(), 10) + "s"
	}
	return wire.FormatDuration(d.AsDuration())
}

// delay checks an optional delay.
func (c *Request) delay(field string, d *durationpb.Duration) (time.Duration, bool) {
	return c.Span(field, d, 0, c.Limits.DelayMax)
}

// TTR checks an optional duration of a lease; 0 means not given.
func (c *Request) TTR(field string, d *durationpb.Duration) time.Duration {
	v, _ := c.Span(field, d, c.Limits.TTRMin, c.Limits.TTRMax)
	return v
}

// dueAt checks a due time. A time before 1970 becomes the first nanosecond of 1970: the machine
// reads 0 as no time, and both are long past.
func (c *Request) dueAt(field string, t *timestamppb.Timestamp) fsm.Time {
	if t.CheckValid() != nil {
		c.Fail(fault.Invalid(field, "not a valid time; the limit is %s from now", wire.FormatDuration(c.Limits.DelayMax)))
		return 0
	}
	if at := t.AsTime(); at.After(c.Now.Add(c.Limits.DelayMax)) {
		c.Fail(fault.Invalid(field, "%s is out of range: at most %s from now", at.Format(time.RFC3339),
			wire.FormatDuration(c.Limits.DelayMax)))
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
func (c *Request) retryDelays(field string, delays []*durationpb.Duration) []time.Duration {
	if len(delays) > c.Limits.RetryDelaysMax {
		c.Fail(fault.Invalid(field, "%d entries; the limit is %d", len(delays), c.Limits.RetryDelaysMax))
		return nil
	}
	out := make([]time.Duration, len(delays))
	for i, d := range delays {
		out[i], _ = c.delay(fault.Indexed(field, i), d)
	}
	return out
}

// attempts checks a maximum number of attempts.
func (c *Request) attempts(field string, n uint32) uint32 {
	if n > c.Limits.AttemptsMax {
		c.Fail(fault.Invalid(field, "%d is out of range: 0 to %d", n, c.Limits.AttemptsMax))
	}
	return n
}

// PriorityMin and PriorityMax bound the priorities of jobs.
const (
	PriorityMin = fsm.PriorityMin
	PriorityMax = fsm.PriorityMax
)

// priority checks a priority.
func (c *Request) priority(field string, p int64) int64 {
	if p < PriorityMin || p > PriorityMax {
		c.Fail(fault.Invalid(field, "%d is out of range: %d to %d", p, PriorityMin, uint32(PriorityMax)))
	}
	return p
}

// headers checks and sorts a job's headers.
func (c *Request) headers(field string, headers map[string]string) []fsm.Header {
	if len(headers) == 0 {
		return nil
	}
	sum := 0
	out := make([]fsm.Header, 0, len(headers))
	for name, value := range headers {
		if name == "" {
			c.Fail(fault.Invalid(field, "a header without a name"))
		}
		sum += len(name) + len(value)
		out = append(out, fsm.Header{Name: name, Value: value})
	}
	if sum > c.Limits.HeaderBytesMax {
		c.Fail(fault.TooLarge(field, sum, c.Limits.HeaderBytesMax))
	}
	slices.SortFunc(out, func(a, b fsm.Header) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// body checks a job's body.
func (c *Request) body(field string, body []byte) []byte {
	if len(body) > c.Limits.BodyBytesMax {
		c.Fail(fault.TooLarge(field, len(body), c.Limits.BodyBytesMax))
	}
	return body
}

// Lease checks a lease token.
func (c *Request) Lease(field, token string) fsm.Ref {
	if token == "" {
		c.Fail(fault.Invalid(field, "a lease is required"))
		return fsm.Ref{}
	}
	ref, err := wire.ParseLease(token)
	if err != nil {
		c.Fail(fault.Invalid(field, "%v", err))
	}
	c.Allow(ref.Queue)
	return ref
}

// Count checks a number of jobs; 0 becomes the default.
func (c *Request) Count(field string, n, byDefault, most uint32) uint32 {
	if n == 0 {
		return byDefault
	}
	if n > most {
		c.Fail(fault.Invalid(field, "%d is out of range: 1 to %d", n, most))
	}
	return n
}

// Page checks a page size.
func (c *Request) Page(field string, n int32) int {
	switch {
	case n < 0:
		c.Fail(fault.Invalid(field, "%d is out of range: 1 to %d", n, c.Limits.PageMax))
		return 1
	case n == 0:
		return min(100, c.Limits.PageMax)
	default:
		return min(int(n), c.Limits.PageMax)
	}
}

// Entries checks the length of a list that must not be empty.
func (c *Request) Entries(field string, n, most int) {
	switch {
	case n == 0:
		c.Fail(fault.Invalid(field, "at least one is required; the limit is %d", most))
	case n > most:
		c.Fail(fault.TooMany(field, n, most))
	}
}

// Queues checks the list of queues of a Reserve. A repeated queue is refused: it can only be a
// mistake.
func (c *Request) Queues(field string, names []string) []string {
	c.Entries(field, len(names), c.Limits.QueuesMax)
	if c.Err != nil {
		return nil
	}
	for i, name := range names {
		c.Queue(fault.Indexed(field, i), name)
		if slices.Contains(names[:i], name) {
			c.Fail(fault.Invalid(fault.Indexed(field, i), "the queue is named twice"))
		}
	}
	return names
}
