package consume

import (
	"errors"
	"fmt"
	"time"
)

// A Result is what the error of a handler asks for.
type Result struct {
	Kind  ResultKind
	Delay time.Duration // of RetryAfter and Snooze
}

// A ResultKind says how a job is finished.
type ResultKind int

// How a job is finished after its handler returned.
const (
	ResultDone       ResultKind = iota // ack
	ResultRetry                        // nack; the retry delays decide
	ResultRetryAfter                   // nack with a delay
	ResultDead                         // nack, dead at once
	ResultSnooze                       // release with a delay
)

// A resultError is an error with which a handler asks for more than a retry.
type resultError struct {
	Result
	cause error
}

// Error returns the text that the job keeps.
func (r *resultError) Error() string {
	if r.cause != nil {
		return r.cause.Error()
	}
	return fmt.Sprintf("back after %v", r.Delay)
}

// Unwrap returns the cause.
func (r *resultError) Unwrap() error { return r.cause }

// RetryAfter returns an error that asks for another attempt after d. A nil err stands for an error
// with a text of its own.
func RetryAfter(d time.Duration, err error) error {
	return &resultError{Result: Result{Kind: ResultRetryAfter, Delay: d}, cause: causeOr(err, "to be tried again")}
}

// Dead returns an error that asks for the end of the job. A nil err is as for RetryAfter.
func Dead(err error) error {
	return &resultError{Result: Result{Kind: ResultDead}, cause: causeOr(err, "dead")}
}

// Snooze returns an error that asks for a release with a delay.
func Snooze(d time.Duration) error {
	return &resultError{Result: Result{Kind: ResultSnooze, Delay: d}}
}

// causeOr returns err, or an error with text if err is nil.
func causeOr(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}

// ResultOf returns what the error of a handler asks for. The error may wrap one of RetryAfter, Dead
// or Snooze; any other asks for a retry, and nil for an ack.
func ResultOf(err error) Result {
	if err == nil {
		return Result{Kind: ResultDone}
	}
	if asked, ok := errors.AsType[*resultError](err); ok {
		return asked.Result
	}
	return Result{Kind: ResultRetry}
}

// FailureOf returns the error of a handler, nil if it does not mean that the attempt failed.
func FailureOf(err error) error {
	if ResultOf(err).Kind == ResultSnooze {
		return nil
	}
	return err
}
