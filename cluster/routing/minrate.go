package routing

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// A peer must send stallBytes in each stallTimeout. Snapshots have the same minimum rate.
	stallTimeout = 10 * time.Second
	stallBytes   = 256 << 10
	// bufferInitialMax bounds the buffer for a body of announced length before its bytes have
	// arrived.
	bufferInitialMax = 64 << 10
)

// errStalled ends a body that arrives below the minimum rate.
var errStalled = errors.New("the body arrives too slowly")

// minRateReader reads a body that must arrive at the minimum rate. It is used by one goroutine.
type minRateReader struct {
	from io.Reader
	// setDeadline sets the time by which reading must end; the zero time removes the limit.
	setDeadline func(until time.Time)
	began       time.Time
	read        int64 // bytes
	extended    int64 // units of stallBytes for which the deadline was extended
}

// newMinRateReader returns a reader whose time starts now.
func newMinRateReader(from io.Reader, setDeadline func(until time.Time)) *minRateReader {
	p := &minRateReader{from: from, setDeadline: setDeadline, began: time.Now()}
	p.setDeadline(p.began.Add(stallTimeout))
	return p
}

// Read implements io.Reader.
func (p *minRateReader) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	p.read += int64(n)
	if units := p.read / stallBytes; units > p.extended {
		p.extended = units
		p.setDeadline(p.began.Add(time.Duration(1+units) * stallTimeout))
	}
	return n, err
}

// liftDeadline removes the limit.
func (p *minRateReader) liftDeadline() { p.setDeadline(time.Time{}) }

// requestBody returns the body of another node's request, limited in size and time. A connection
// without a request on it has neither limit.
func requestBody(w http.ResponseWriter, r *http.Request) *minRateReader {
	control := http.NewResponseController(w)
	return newMinRateReader(http.MaxBytesReader(w, r.Body, peerBytesMax), func(until time.Time) {
		_ = control.SetReadDeadline(until) // HTTP/2 has deadlines; admit refuses HTTP/1.1
	})
}

// readBody reads at most bytesMax bytes of a response. It closes a body that stalls.
func readBody(from io.ReadCloser, bytesMax int64) ([]byte, error) {
	late := time.AfterFunc(stallTimeout, func() { _ = from.Close() })
	body := newMinRateReader(io.LimitReader(from, bytesMax), func(until time.Time) { late.Reset(time.Until(until)) })
	answer, err := io.ReadAll(body)
	if !late.Stop() && err != nil {
		err = fmt.Errorf("%w: %w", errStalled, err)
	}
	return answer, err
}

// stallReader is a body that another node sends for as long as this node reads. It is closed when
// no byte arrives for stallTimeout. It is used by one goroutine.
type stallReader struct {
	from io.ReadCloser
	late *time.Timer
}

func newStallReader(from io.ReadCloser) *stallReader {
	return &stallReader{from, time.AfterFunc(stallTimeout, func() { _ = from.Close() })}
}

// Read implements io.Reader. Only the time spent waiting here counts.
func (u *stallReader) Read(b []byte) (int, error) {
	u.late.Reset(stallTimeout)
	n, err := u.from.Read(b)
	if !u.late.Stop() && err != nil {
		err = fmt.Errorf("%w: %w", errStalled, err)
	}
	return n, err
}
