package client

import (
	"time"

	"github.com/belfrydb/belfry/client/internal/consume"
)

// RetryAfter returns an error for a handler to return: the job is tried again after d (0 to 100
// years) instead of its retry delay. The attempt counts. The error may be wrapped.
func RetryAfter(d time.Duration, err error) error { return consume.RetryAfter(d, err) }

// Dead returns an error for a handler to return when no further attempt can succeed: the job is
// dead at once.
func Dead(err error) error { return consume.Dead(err) }

// Snooze returns an error for a handler to return when it is too early for the job: the job is
// released and due again after d (0 to 100 years). The attempt does not count.
func Snooze(d time.Duration) error { return consume.Snooze(d) }
