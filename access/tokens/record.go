package tokens

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

const (
	// AboutMax bounds what a token says about itself, in bytes.
	AboutMax = 256
	// ScopesMax bounds the scopes of a token.
	ScopesMax = 32
	// ScopesBytesMax bounds the scopes of a token as texts.
	ScopesBytesMax = 1 << 10
)

// Record is what is kept of a token. What it was is not kept. Records are not changed once they are
// known.
type Record struct {
	ID     string `json:"id"`
	Hash   Hash   `json:"hash"`
	About  string `json:"about,omitempty"` // for people
	Scopes Scopes `json:"scopes"`
	// Created and NotAfter are wall clocks in nanoseconds since 1970; NotAfter 0 is never. CreatedBy
	// is the id of the token that it was made with.
	Created   int64  `json:"createdNanos"`
	NotAfter  int64  `json:"notAfterNanos,omitempty"`
	CreatedBy string `json:"createdBy,omitempty"`
	// TTL is how many nanoseconds it was made for, 0 for ever. NotAfter may have come nearer since.
	TTL int64 `json:"ttlNanos,omitempty"`
}

// Expired reports whether the token has ended by then.
func (r *Record) Expired(now time.Time) bool { return r.NotAfter != 0 && now.UnixNano() >= r.NotAfter }

// Check returns what is wrong with a record, for people.
func (r *Record) Check() error {
	switch {
	case !ValidID(r.ID):
		return fmt.Errorf("%q is no id of a token", r.ID)
	case !r.Hash.Valid():
		return errors.New("what is kept of a token is a SHA-256 in hexadecimal")
	case len(r.About) > AboutMax || !utf8.ValidString(r.About):
		return fmt.Errorf("what a token is about is UTF-8 of up to %d bytes; this has %d", AboutMax, len(r.About))
	case len(r.Scopes) == 0 || len(r.Scopes) > ScopesMax:
		return fmt.Errorf("a token has %d scopes; it must have 1 to %d", len(r.Scopes), ScopesMax)
	}
	size := 0
	for i := range r.Scopes {
		if err := r.Scopes[i].Check(); err != nil {
			return err
		}
		size += len(r.Scopes[i].String())
	}
	if size > ScopesBytesMax {
		return fmt.Errorf("the scopes of a token have %d bytes; the limit is %d", size, ScopesBytesMax)
	}
	return nil
}
