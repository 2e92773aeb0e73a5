package client

import (
	"errors"
	"fmt"
	"time"
)

// A verdict is what a handler's result says about its job.
type verdict struct {
	kind  verdictKind
	delay time.Duration
	cause error
}

type verdictKind int

const (
	verdictDone       verdictKind = iota // ack
	verdictRetry                         // nack; the retry delays decide
	verdictRetryAfter                    // nack with a delay
	verdictDead                          // nack, dead at once
	verdictSnooze                        // release with a delay
)

// Error is the text that the job keeps.
func (v *verdict) Error() string {
	if v.cause != nil {
		return v.cause.Error()
	}
	return fmt.Sprintf("back after %v", v.delay)
}

// Unwrap gives the cause.
func (v *verdict) Unwrap() error { return v.cause }

// RetryAfter makes a handler's error that has the job tried again after d (0 to 100 years) instead of its retry delay. The
// attempt counts. Code between the handler's result and the worker may wrap it.
func RetryAfter(d time.Duration, err error) error {
	return &verdict{kind: verdictRetryAfter, delay: d, cause: causeOr(err, "to be tried again")}
}

// Dead makes a handler's error that makes the job dead at once: no further attempt can succeed.
func Dead(err error) error {
	return &verdict{kind: verdictDead, cause: causeOr(err, "dead")}
}

// Snooze makes a handler's result that gives the job back, due after d (0 to 100 years), without counting the attempt: it
// was not the time for it yet.
func Snooze(d time.Duration) error {
	return &verdict{kind: verdictSnooze, delay: d}
}

// causeOr keeps a nil error from ending as an empty text.
func causeOr(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}

// verdictOf reads a handler's result.
func verdictOf(err error) verdict {
	if err == nil {
		return verdict{kind: verdictDone}
	}
	var v *verdict
	if errors.As(err, &v) {
		return verdict{kind: v.kind, delay: v.delay, cause: err}
	}
	return verdict{kind: verdictRetry, cause: err}
}

// failureOf gives a handler's result if it says that the attempt failed, else nil.
func failureOf(result error) error {
	if verdictOf(result).kind == verdictSnooze {
		return nil
	}
	return result
}
