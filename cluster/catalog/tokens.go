package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
)

// tokensMax bounds the tokens of a cluster.
const tokensMax = 10_000

// The reasons for which a change of tokens is refused. Nothing was changed.
var (
	ErrTokens       = fmt.Errorf("the cluster has %d tokens, which is the limit; delete some", tokensMax)
	ErrTokenExists  = errors.New("there is a token with this id")
	ErrTokenUnknown = errors.New("there is no token with this id")
)

// tokenEnd ends a token at NotAfter, in nanoseconds since 1970. If NotAfter is 0, it ends the token
// at once and removes its record. It never extends a token.
type tokenEnd struct {
	ID       string `json:"id"`
	NotAfter int64  `json:"notAfterNanos,omitempty"`
}

// findToken returns the position at which a token's record is or would be.
func (m *machine) findToken(id string) (int, bool) {
	return slices.BinarySearchFunc(m.state.Tokens, id, func(t *tokens.Record, id string) int {
		return strings.Compare(t.ID, id)
	})
}

// addToken records a token. If there are too many, it first removes those that had expired when the
// new token was made.
func (m *machine) addToken(t *tokens.Record) outcome {
	if _, found := m.findToken(t.ID); found {
		return outcome{verdict: exists}
	}
	if len(m.state.Tokens) >= tokensMax {
		made := time.Unix(0, t.Created)
		m.state.Tokens = slices.DeleteFunc(m.state.Tokens, func(old *tokens.Record) bool { return old.Expired(made) })
	}
	if len(m.state.Tokens) >= tokensMax {
		return outcome{verdict: needed}
	}
	i, _ := m.findToken(t.ID)
	m.state.Tokens = slices.Insert(m.state.Tokens, i, t)
	m.showAccess()
	return outcome{}
}

func (m *machine) endToken(e *tokenEnd) outcome {
	i, found := m.findToken(e.ID)
	if !found {
		return outcome{verdict: overtaken}
	}
	old := m.state.Tokens[i]
	switch {
	case e.NotAfter == 0:
		m.state.Tokens = slices.Delete(m.state.Tokens, i, i+1)
	case old.NotAfter == 0 || e.NotAfter < old.NotAfter:
		ended := *old // readers have the old one
		ended.NotAfter = e.NotAfter
		m.state.Tokens[i] = &ended
	}
	m.showAccess()
	return outcome{}
}

// access is the part of the state that authenticates callers, readable without a lock.
type access struct {
	tokens map[string]*tokens.Record // by id
	// tokensRequiredBy is the name of a node that requires tokens of its callers, "" if there is none.
	tokensRequiredBy string
}

// shownAccess holds the current access.
type shownAccess struct {
	atomic.Pointer[access]
	requiredChanged *broadcast // sent when tokensRequiredBy changes
}

func newAccess() *shownAccess {
	s := &shownAccess{requiredChanged: newBroadcast()}
	s.Store(&access{})
	return s
}

// showAccess publishes the present state to shownAccess.
func (m *machine) showAccess() {
	a := access{tokens: make(map[string]*tokens.Record, len(m.state.Tokens))}
	for _, t := range m.state.Tokens {
		a.tokens[t.ID] = t
	}
	if i := slices.IndexFunc(m.state.Nodes, func(n Node) bool { return n.RequiresTokens }); i >= 0 {
		a.tokensRequiredBy = m.state.Nodes[i].Name
	}
	before := m.access.Load()
	m.access.Store(&a)
	if before.tokensRequiredBy != a.tokensRequiredBy {
		m.access.requiredChanged.send()
	}
}

// checkTokens returns the fault of the tokens of a snapshot.
func checkTokens(all []*tokens.Record) error {
	for i, t := range all {
		if t == nil || i > 0 && all[i-1].ID >= t.ID {
			return errors.New("it holds a token twice, out of order, or an empty one")
		}
		if err := t.Check(); err != nil {
			return fmt.Errorf("token %d: %w", i, err)
		}
	}
	return nil
}

// AddToken records a token. It fails with ErrTokens if there are too many. After an unknown outcome
// there may be a token without an owner, which EndToken can end.
func (c *Catalog) AddToken(ctx context.Context, t tokens.Record) error {
	out, err := c.propose(ctx, command{AddToken: &t})
	switch {
	case err != nil:
		return fmt.Errorf("recording a token: %w", err)
	case out.verdict == exists:
		return ErrTokenExists
	case out.verdict == needed:
		return ErrTokens
	}
	return nil
}

// EndToken removes a token. If at is not zero, it makes the token expire at that time instead,
// unless the token expires earlier. When EndToken returns, this node has applied the change. Every
// other node enforces it as soon as it has applied it too. EndToken may be repeated.
// ErrTokenUnknown says that there is no such token.
func (c *Catalog) EndToken(ctx context.Context, id string, at time.Time) error {
	end := tokenEnd{ID: id}
	if !at.IsZero() {
		end.NotAfter = at.UnixNano()
	}
	out, err := c.propose(ctx, command{EndToken: &end})
	switch {
	case err != nil:
		return fmt.Errorf("ending a token: %w", err)
	case out.verdict == overtaken:
		return ErrTokenUnknown
	}
	return nil
}

// Tokens returns all tokens by id, from memory.
func (c *Catalog) Tokens() []*tokens.Record {
	return slices.SortedFunc(maps.Values(c.access.Load().tokens), func(a, b *tokens.Record) int {
		return strings.Compare(a.ID, b.ID)
	})
}

// Token returns a token, from memory and without a lock.
func (c *Catalog) Token(id string) (*tokens.Record, bool) {
	t, ok := c.access.Load().tokens[id]
	return t, ok
}

// TokensRequiredBy returns the name of a node of the cluster that requires tokens of its callers,
// "" if there is none. It reads this replica, from memory and without a lock.
func (c *Catalog) TokensRequiredBy() string { return c.access.Load().tokensRequiredBy }

// TokensRequiredAltered returns a channel that is closed when the result of TokensRequiredBy
// changes after this call.
func (c *Catalog) TokensRequiredAltered() <-chan struct{} { return c.access.requiredChanged.wait() }
