package check

import (
	"errors"
	"fmt"
	"time"

	"github.com/belfrydb/belfry/rpc/wire"
)

// Limits bounds requests. The server checks all limits before it logs anything.
type Limits struct {
	// BodyBytesMax bounds a job's body. Default 1 MiB.
	BodyBytesMax int
	// HeaderBytesMax bounds the names and values of a job's headers together. Default 16 KiB.
	HeaderBytesMax int
	// IDBytesMax bounds a job's id. Default 256 bytes.
	IDBytesMax int
	// KeyBytesMax bounds a job's key. Default 128 bytes.
	KeyBytesMax int
	// QueueBytesMax bounds a queue's name. Default 256 bytes, which is also the maximum in a lease
	// token.
	QueueBytesMax int
	// RequestIDBytesMax bounds a requestId. Default 64 bytes.
	RequestIDBytesMax int
	// ErrorBytesMax bounds the stored part of a nack's error text. Default 1 KiB.
	ErrorBytesMax int
	// BatchJobsMax bounds the entries of a batch, the jobs of a Reserve, the ids of a Redrive. Default
	// 1,000.
	BatchJobsMax int
	// BatchBytesMax bounds the bodies, ids and headers of a PutBatch together. Default 4 MiB.
	BatchBytesMax int
	// ReserveBytesMax bounds the bytes of the jobs that one shard grants in one answer to Reserve, or
	// in one message of Work. The first job is granted regardless of its size. Default 4 MiB.
	ReserveBytesMax int
	// QueuesMax bounds the queues of one Reserve. Default 64.
	QueuesMax int
	// MessageBytesMax bounds a whole request, on the wire and after decompression. Default 8 MiB: a
	// batch in base64 fits.
	MessageBytesMax int
	// StreamMessageBytesMax bounds one message of a Work stream, on the wire and after decompression.
	// Default 1 MiB: a thousand acks fit.
	StreamMessageBytesMax int
	// StreamsMax bounds the Work streams that are open at one time. Default 4,096.
	StreamsMax int
	// DelayMax bounds a delay, a retry delay, a TTL, and the time until a job is due. Default 100
	// years.
	DelayMax time.Duration
	// WaitMax bounds how long a Reserve waits. Default 60 s.
	WaitMax time.Duration
	// TTRMin and TTRMax bound the length of a lease. The default of TTRMin is 1 ms, the precision of
	// the wire. The default of TTRMax is 24 h: a holder that needs longer extends its lease, and the
	// lease of a crashed one expires within a day.
	TTRMin, TTRMax time.Duration
	// AttemptsMax bounds maxAttempts. Default 1,000,000.
	AttemptsMax uint32
	// RetryDelaysMax bounds the entries of retryDelays. Default 64.
	RetryDelaysMax int
	// PageMax bounds the jobs or queues of a page; a larger page size is lowered to it. Default 1,000.
	PageMax int
	// CreditsMax bounds the open credits of a Work stream. Default 10,000.
	CreditsMax uint32
	// BodyWait bounds the time in which the bytes of a unary request, or of one message of a stream,
	// arrive. Default 30 s.
	BodyWait time.Duration
	// ResponseWait bounds the time in which a client reads an answer, or one message of a stream.
	// Default 60 s. A caller that has shown no valid token has at most 5 s, if calls need tokens.
	ResponseWait time.Duration
}

// DefaultLimits returns the documented limits.
func DefaultLimits() Limits {
	return Limits{
		BodyBytesMax:          1 << 20,
		HeaderBytesMax:        16 << 10,
		IDBytesMax:            256,
		KeyBytesMax:           128,
		QueueBytesMax:         256,
		RequestIDBytesMax:     64,
		ErrorBytesMax:         1 << 10,
		BatchJobsMax:          1000,
		BatchBytesMax:         4 << 20,
		ReserveBytesMax:       4 << 20,
		QueuesMax:             64,
		MessageBytesMax:       8 << 20,
		StreamMessageBytesMax: 1 << 20,
		StreamsMax:            4096,
		DelayMax:              100 * wire.Year,
		WaitMax:               time.Minute,
		TTRMin:                time.Millisecond,
		TTRMax:                24 * time.Hour,
		AttemptsMax:           1_000_000,
		RetryDelaysMax:        64,
		PageMax:               1000,
		CreditsMax:            10_000,
		BodyWait:              30 * time.Second,
		ResponseWait:          time.Minute,
	}
}

// Validate returns an error for every invalid limit.
func (l Limits) Validate() error {
	var errs []error
	positive := func(name string, value int64) {
		if value <= 0 {
			errs = append(errs, fmt.Errorf("limit %s is %d; it must be above 0", name, value))
		}
	}
	positive("BodyBytesMax", int64(l.BodyBytesMax))
	positive("HeaderBytesMax", int64(l.HeaderBytesMax))
	positive("IDBytesMax", int64(l.IDBytesMax))
	positive("KeyBytesMax", int64(l.KeyBytesMax))
	positive("QueueBytesMax", int64(l.QueueBytesMax))
	positive("RequestIDBytesMax", int64(l.RequestIDBytesMax))
	positive("ErrorBytesMax", int64(l.ErrorBytesMax))
	positive("BatchJobsMax", int64(l.BatchJobsMax))
	positive("BatchBytesMax", int64(l.BatchBytesMax))
	positive("ReserveBytesMax", int64(l.ReserveBytesMax))
	positive("QueuesMax", int64(l.QueuesMax))
	positive("MessageBytesMax", int64(l.MessageBytesMax))
	positive("StreamMessageBytesMax", int64(l.StreamMessageBytesMax))
	positive("StreamsMax", int64(l.StreamsMax))
	positive("DelayMax", int64(l.DelayMax))
	positive("WaitMax", int64(l.WaitMax))
	positive("TTRMin", int64(l.TTRMin))
	positive("AttemptsMax", int64(l.AttemptsMax))
	positive("RetryDelaysMax", int64(l.RetryDelaysMax))
	positive("PageMax", int64(l.PageMax))
	positive("CreditsMax", int64(l.CreditsMax))
	positive("BodyWait", int64(l.BodyWait))
	positive("ResponseWait", int64(l.ResponseWait))
	if l.TTRMax < l.TTRMin {
		errs = append(errs, fmt.Errorf("limit TTRMax is %v; it must not be below TTRMin, %v", l.TTRMax, l.TTRMin))
	}
	if l.QueueBytesMax > 256 {
		errs = append(errs, fmt.Errorf("limit QueueBytesMax is %d; lease tokens carry at most 256", l.QueueBytesMax))
	}
	if l.MessageBytesMax < l.BodyBytesMax {
		errs = append(errs, fmt.Errorf("limit MessageBytesMax is %d; a body of %d must fit", l.MessageBytesMax,
			l.BodyBytesMax))
	}
	return errors.Join(errs...)
}
