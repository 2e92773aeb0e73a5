// Package requestid makes the ids of requests, on the servers' clock.
package requestid

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// A Clock makes request ids. They are UUIDs of version 7 (RFC 9562 §5.7). Their time tells a
// server that an id is older than what it remembers. If a client's clock is wrong by minutes, a
// server would refuse its fresh ids. So the clock follows the Date header of the servers' answers,
// where the two differ by more than the header's precision and the duration of the call explain. It
// also tells how old a lease is. The zero value is ready for use, by any number of goroutines.
type Clock struct {
	skew atomic.Int64 // nanoseconds that the servers are ahead of this machine
}

// datePrecision is the precision of a Date header, which is rounded down.
const datePrecision = time.Second

// Ahead returns how far the servers' clock is ahead of this machine's.
func (c *Clock) Ahead() time.Duration { return time.Duration(c.skew.Load()) }

// NewID returns an id for a request whose first attempt is sent now.
func (c *Clock) NewID() string {
	var id [16]byte
	_, _ = rand.Read(id[6:]) // never fails: it ends the program instead
	ms := uint64(time.Now().Add(c.Ahead()).UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}

// idWindow is how much later than another a request id must be to prove that the servers' clock was
// set in between, and has not just run on.
const idWindow = time.Minute

// SetForwardSince reports whether the servers' clock was set forward, by more than a minute, since
// an id of NewID was made; false for any other id. A request that was refused because its id is too
// old may be made again under a new id once: this machine's clock was wrong, and the refusal has
// set it. It may again only if this is true, as when the clock of a test is set.
func (c *Clock) SetForwardSince(id string) bool {
	at, ok := MadeAt(id)
	return ok && time.Now().Add(c.Ahead()).Sub(at) > idWindow
}

// MadeAt returns when an id of NewID was made, on the servers' clock; false if it is of another
// form.
func MadeAt(id string) (time.Time, bool) {
	if len(id) != 36 {
		return time.Time{}, false
	}
	ms, err := strconv.ParseInt(id[:8]+id[9:13], 16, 64)
	return time.UnixMilli(ms), err == nil
}

// Observe learns from the headers of an answer that arrives now to a request that was sent at sent.
func (c *Clock) Observe(sent time.Time, header http.Header) {
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		c.Learn(sent, date, datePrecision)
	}
}

// Set sets how far the servers' clock is ahead of this machine's, until an answer says otherwise.
// For tests.
func (c *Clock) Set(ahead time.Duration) { c.skew.Store(int64(ahead)) }

// Learn learns from a server's time in the answer to a request that was sent at sent. The server
// wrote the date, rounded down to precision, at some moment between then and now. The present value
// stays unless no such moment agrees with it. So an answer that was long on its way, or waited for
// a suspended process, does not look like a clock that is behind.
func (c *Clock) Learn(sent, date time.Time, precision time.Duration) {
	least, most := time.Until(date), date.Add(precision).Sub(sent)
	c.skew.Store(int64(min(max(c.Ahead(), least), most)))
}
