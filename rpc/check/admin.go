package check

import (
	"encoding/hex"
	"strings"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// These bound the time to live of a token.
const (
	TokenTTLMin = time.Second
	TokenTTLMax = 10 * wire.Year
)

// Scopes checks the scopes of a token.
func (c *Request) Scopes(field string, texts []string) (all tokens.Scopes) {
	c.Entries(field, len(texts), tokens.ScopesMax)
	if c.Err != nil {
		return nil
	}
	size := 0
	for i, text := range texts {
		scope, err := tokens.ParseScope(text)
		if err != nil {
			c.Fail(fault.Invalid(fault.Indexed(field, i), "%s", err))
		}
		all = append(all, scope)
		size += len(scope.String())
	}
	if size > tokens.ScopesBytesMax {
		c.Fail(fault.TooLarge(field, size, tokens.ScopesBytesMax))
	}
	return all
}

// Namespace checks the name of a namespace.
func (c *Request) Namespace(field, name string) string {
	switch flaw := queueNameFlaw(name, c.Limits.QueueBytesMax-1); {
	case name == "":
		c.Fail(fault.Invalid(field, "a namespace is required: the first part of names such as namespace/name"))
	case strings.Contains(name, "/"):
		c.Fail(fault.Invalid(field, "want the part of a queue's name that is before the slash"))
	case flaw != nil:
		c.Fail(flaw.of(field))
	}
	return name
}

// Incarnation checks the incarnation of a node, which may be missing.
func (c *Request) Incarnation(text string) {
	if text == "" {
		return
	}
	if raw, err := hex.DecodeString(text); err != nil || len(raw) != 8 {
		c.Fail(fault.Invalid("incarnation", "want 16 hexadecimal digits"))
	}
}
