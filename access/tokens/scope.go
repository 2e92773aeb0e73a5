package tokens

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Action is what is done to a queue.
type Action string

// The actions.
const (
	// Put brings jobs and changes those that wait: put, cancel, reschedule.
	Put Action = "put"
	// Consume takes jobs and ends them, and looks at them: reserve, ack, nack, release, extend, get,
	// list.
	Consume Action = "consume"
	// View shows numbers and settings of the queue, and no job. Each other action brings it along. For
	// all queues it is also the state of the cluster and the metrics.
	View Action = "view"
	// Admin is everything: what the others are, and the queue's settings, pausing, redrive, purge and
	// deletion. For all queues it is also the cluster: nodes, settings, backups and tokens.
	Admin Action = "admin"
)

// Actions returns all actions.
func Actions() []Action { return []Action{Put, Consume, View, Admin} }

// All is the pattern of every queue.
const All = "*"

const (
	// nameMax bounds the name of a queue, patternMax a pattern: a name, and *.
	nameMax    = 256
	patternMax = nameMax + len(All)
)

// Scope allows actions on the queues of a pattern: the name of one, or the beginning of names
// followed by *. As a text, which JSON has too, it is ACTION[,ACTION…]:PATTERN.
type Scope struct {
	Actions []Action
	Queues  string
}

// MarshalText implements encoding.TextMarshaler.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, for what is kept: it takes scopes of no queue
// as well, which ParseScope once took.
func (s *Scope) UnmarshalText(text []byte) (err error) {
	*s, err = readScope(string(text))
	return err
}

// String returns the scope as ParseScope reads it.
func (s Scope) String() string {
	var actions []string
	for _, a := range s.Actions {
		actions = append(actions, string(a))
	}
	return strings.Join(actions, ",") + ":" + s.Queues
}

// ParseScope reads ACTION[,ACTION…]:PATTERN, such as put,consume:shop/*. A pattern that no queue's
// name can fit is refused: it was meant to fit some.
func ParseScope(text string) (Scope, error) {
	s, err := readScope(text)
	if err != nil {
		return Scope{}, err
	}
	if why := patternFlaw(s.Queues); why != "" {
		return Scope{}, fmt.Errorf("no queue can be meant by %.100q in scope %.100q: %s", s.Queues, text, why)
	}
	return s, nil
}

// readScope takes a scope apart.
func readScope(text string) (Scope, error) {
	actions, queues, ok := strings.Cut(text, ":")
	if !ok {
		return Scope{}, fmt.Errorf("want ACTION[,ACTION…]:QUEUES, such as put,consume:orders* or admin:*, have %.100q", text)
	}
	if strings.ContainsFunc(queues, unicode.IsSpace) {
		return Scope{}, fmt.Errorf("there is a blank in the queues %.100q of scope %.100q; give --scope or an entry of "+
			"scopes for each pattern", queues, text)
	}
	s := Scope{Queues: queues}
	for name := range strings.SplitSeq(actions, ",") {
		s.Actions = append(s.Actions, Action(strings.TrimSpace(name)))
	}
	slices.Sort(s.Actions)
	s.Actions = slices.Compact(s.Actions)
	return s, s.Check()
}

// patternFlaw says, for people, why no name of a queue fits a pattern; empty if one does. What fits
// the beginning of names is judged by the shortest such name.
func patternFlaw(pattern string) string {
	name, open := strings.CutSuffix(pattern, All)
	if last := name[strings.LastIndexByte(name, '/')+1:]; open && (last == "" || last == "." || last == "..") {
		name += "a"
	}
	switch {
	case len(name) > nameMax:
		return fmt.Sprintf("a queue's name has at most %d bytes", nameMax)
	case strings.Count(name, "/") > 1:
		return "a queue's name is name or namespace/name, with one slash at most"
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == "." || part == "..":
			return `no part of a queue's name is empty, "." or ".."`
		case strings.ContainsFunc(part, func(r rune) bool { return !isOfToken(r) && r != '.' && r != ':' }):
			return "only letters, digits and the characters . _ : - are allowed in a queue's name"
		}
	}
	return ""
}

// Check returns what is wrong with a scope, for people.
func (s Scope) Check() error {
	if len(s.Actions) == 0 {
		return fmt.Errorf("a scope names at least one action: put, consume, view or admin")
	}
	for _, a := range s.Actions {
		if !slices.Contains(Actions(), a) {
			return fmt.Errorf("there is no action %.100q: there are put, consume, view and admin", a)
		}
	}
	name := strings.TrimSuffix(s.Queues, All)
	if s.Queues == "" || len(s.Queues) > patternMax ||
		strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '*' || r == ',' }) {
		return fmt.Errorf("the queues of a scope are one name, or the beginning of names and *, up to %d bytes; have %.100q",
			patternMax, s.Queues)
	}
	return nil
}

// covers reports whether a queue is one of the scope's.
func (s *Scope) covers(queue string) bool {
	if start, open := strings.CutSuffix(s.Queues, All); open {
		return strings.HasPrefix(queue, start)
	}
	return queue == s.Queues
}

// Scopes are what a token allows.
type Scopes []Scope

// Allow reports whether an action on a queue is allowed. Admin of a queue allows everything on it.
func (all Scopes) Allow(action Action, queue string) bool {
	for i := range all {
		if s := &all[i]; s.covers(queue) && (slices.Contains(s.Actions, action) || slices.Contains(s.Actions, Admin)) {
			return true
		}
	}
	return false
}

// AllowView reports whether the caller may see numbers and settings of a queue. Every action on the
// queue allows this.
func (all Scopes) AllowView(queue string) bool {
	return slices.ContainsFunc(all, func(s Scope) bool { return s.covers(queue) })
}

// AllowCluster reports whether an action is allowed on what concerns all queues and the cluster
// itself: View or Admin.
func (all Scopes) AllowCluster(action Action) bool {
	return slices.ContainsFunc(all, func(s Scope) bool {
		return s.Queues == All && (slices.Contains(s.Actions, action) || slices.Contains(s.Actions, Admin))
	})
}
