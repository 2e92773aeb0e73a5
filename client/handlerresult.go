package client

import (
	"errors"
	"fmt"
	"time"
)

// A handlerResult says what a worker does with a job after its handler returned.
type handlerResult struct {
	kind  resultKind
	delay time.Duration
	cause error
}

type resultKind int

const (
	resultDone       resultKind = iota // ack
	resultRetry                        // nack; the retry delays decide
	resultRetryAfter                   // nack with a delay
	resultDead                         // nack, dead at once
	resultSnooze                       // release with a delay
)

// Error returns the text that the job keeps.
func (r *handlerResult) Error() string {
	if r.cause != nil {
		return r.cause.Error()
	}
	return fmt.Sprintf("back after %v", r.delay)
}

// Unwrap returns the cause.
func (r *handlerResult) Unwrap() error { return r.cause }

// RetryAfter returns an error for a handler to return: the job is tried again after d (0 to 100
// years) instead of its retry delay. The attempt counts. The error may be wrapped.
func RetryAfter(d time.Duration, err error) error {
	return &handlerResult{kind: resultRetryAfter, delay: d, cause: causeOr(err, "to be tried again")}
}

// Dead returns an error for a handler to return when no further attempt can succeed: the job is
// dead at once.
func Dead(err error) error {
	return &handlerResult{kind: resultDead, cause: causeOr(err, "dead")}
}

// Snooze returns an error for a handler to return when it is too early for the job: the job is
// released and due again after d (0 to 100 years). The attempt does not count.
func Snooze(d time.Duration) error {
	return &handlerResult{kind: resultSnooze, delay: d}
}

// causeOr returns err, or an error with text if err is nil.
func causeOr(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}

// resultOf returns what the error of a handler asks for.
func resultOf(err error) handlerResult {
	if err == nil {
		return handlerResult{kind: resultDone}
	}
	var asked *handlerResult
	if errors.As(err, &asked) {
		return handlerResult{kind: asked.kind, delay: asked.delay, cause: err}
	}
	return handlerResult{kind: resultRetry, cause: err}
}

// failureOf returns the error of a handler, nil if it does not mean that the attempt failed.
func failureOf(result error) error {
	if resultOf(result).kind == resultSnooze {
		return nil
	}
	return result
}
