package cluster

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// paceWait is how long what another node sends may keep its reader waiting, for each paceBytes of it: the pace that snapshots have, too.
	paceWait  = 10 * time.Second
	paceBytes = 256 << 10
	// roomAtFirst bounds the room for something whose length another node announced, before it has come.
	roomAtFirst = 64 << 10
)

// errSlow ends what comes too slowly.
var errSlow = errors.New("it comes too slowly")

// paced reads what another node sends, which must not take longer than the pace allows. It is used by one goroutine.
type paced struct {
	from io.Reader
	// limit sets until when reading may take; the zero time lifts the limit.
	limit func(until time.Time)
	began time.Time
	read  int64 // bytes
	paid  int64 // in units of paceBytes, how much of them has prolonged the time
}

// newPaced returns a reader whose time begins now.
func newPaced(from io.Reader, limit func(until time.Time)) *paced {
	p := &paced{from: from, limit: limit, began: time.Now()}
	p.limit(p.began.Add(paceWait))
	return p
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	p.read += int64(n)
	if units := p.read / paceBytes; units > p.paid {
		p.paid = units
		p.limit(p.began.Add(time.Duration(1+units) * paceWait))
	}
	return n, err
}

// free lifts the limit.
func (p *paced) free() { p.limit(time.Time{}) }

// inbound returns the body of a call of another node, with its limits of size and time. A connection without a call on it has neither.
func inbound(w http.ResponseWriter, r *http.Request) *paced {
	control := http.NewResponseController(w)
	return newPaced(http.MaxBytesReader(w, r.Body, peerBytesMax), func(until time.Time) {
		_ = control.SetReadDeadline(until) // HTTP/2, which is all that peers speak, has deadlines
	})
}

// readPaced reads at most so many bytes of an answer. It closes one that comes too slowly.
func readPaced(from io.ReadCloser, bytesMax int64) ([]byte, error) {
	late := time.AfterFunc(paceWait, func() { _ = from.Close() })
	answer, err := io.ReadAll(newPaced(io.LimitReader(from, bytesMax), func(until time.Time) { late.Reset(time.Until(until)) }))
	if !late.Stop() && err != nil {
		err = fmt.Errorf("%w: %w", errSlow, err)
	}
	return answer, err
}

// unstalled is a body that another node sends for as long as this one reads. It is closed when it does not go on for paceWait. It is used by one goroutine.
type unstalled struct {
	from io.ReadCloser
	late *time.Timer
}

func newUnstalled(from io.ReadCloser) *unstalled {
	return &unstalled{from, time.AfterFunc(paceWait, func() { _ = from.Close() })}
}

// Read implements io.Reader. Only the time that is spent waiting here counts.
func (u *unstalled) Read(b []byte) (int, error) {
	u.late.Reset(paceWait)
	n, err := u.from.Read(b)
	if !u.late.Stop() && err != nil {
		err = fmt.Errorf("%w: %w", errSlow, err)
	}
	return n, err
}
