package cli

import (
	"errors"

	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/spf13/cobra"
)

// unknownHint tells how to find out what became of a call.
func unknownHint(err error) string {
	var request *requestError
	if !errors.As(err, &request) || request.id == "" {
		return ""
	}
	return "; whether it was done is unknown: repeat it within 5 minutes with --request-id " + request.id
}

// requestError is the error of a call together with the request id that makes its repeat safe.
type requestError struct {
	id  string
	err error
}

func (e *requestError) Error() string { return e.err.Error() }

func (e *requestError) Unwrap() error { return e.err }

// WithRequest remembers under which id a call failed.
func WithRequest(id string, err error) error {
	if err == nil {
		return nil
	}
	return &requestError{id, err}
}

// RequestIDFlag adds the flag that makes a repeat of a call safe.
func RequestIDFlag(c *cobra.Command, id *string) {
	c.Flags().StringVar(id, flag.RequestID, "", "makes a repeat safe for 5 minutes; made if empty")
}

// Ensure makes a request id if none was given.
func (a *App) Ensure(id *string) {
	if *id == "" {
		*id = a.RequestID()
	}
}

// ErrRequestExpired says that the server no longer knows whether it carried out a request with this
// id.
var ErrRequestExpired = errors.New(
	"REQUEST_EXPIRED: the server takes the request for older than the 5 minutes that it remembers; " +
		"if it was not, the clock of this machine is behind the server's")
