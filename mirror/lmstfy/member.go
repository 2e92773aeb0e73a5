package lmstfy

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A TimerMember is a member of TimerKey:
//
//	u16 length, namespace | u16 length, queue | u16 tries | u16 length, id
//
// All numbers are little endian, and nothing lies between.
type TimerMember struct {
	Namespace, Queue string
	Tries            uint16 // how many deliveries are left once it is due; 0 makes it a dead letter then
	ID               string
}

// An Element is one of a list of ready jobs or of dead letters:
//
//	u16 tries | u16 length, id
type Element struct {
	Tries uint16 // how many deliveries are left, this one included
	ID    string
}

// Append appends the member to b. It is an error if a name or the id is empty or has more than
// 65,535 bytes; then b is returned as it was.
func (m TimerMember) Append(b []byte) ([]byte, error) {
	for _, part := range []struct{ what, text string }{{"namespace", m.Namespace}, {"queue", m.Queue}, {"id", m.ID}} {
		if err := fits(part.what, part.text); err != nil {
			return b, fmt.Errorf("lmstfy: writing a timer member: %w", err)
		}
	}
	b = appendText(b, m.Namespace)
	b = appendText(b, m.Queue)
	b = binary.LittleEndian.AppendUint16(b, m.Tries)
	return appendText(b, m.ID), nil
}

// Append appends the element to b. It is an error if the id is empty or has more than 65,535 bytes;
// then b is returned as it was.
func (e Element) Append(b []byte) ([]byte, error) {
	if err := fits("id", e.ID); err != nil {
		return b, fmt.Errorf("lmstfy: writing a list element: %w", err)
	}
	return appendText(binary.LittleEndian.AppendUint16(b, e.Tries), e.ID), nil
}

// ParseTimerMember reads a member of TimerKey. It takes nothing that Append would not have written;
// what the names and the id consist of it does not ask.
func ParseTimerMember(member []byte) (TimerMember, error) {
	r := reader{rest: member}
	m := TimerMember{Namespace: r.text("namespace"), Queue: r.text("queue"), Tries: r.number("tries"), ID: r.text("id")}
	if err := r.checkEnd(); err != nil {
		return TimerMember{}, fmt.Errorf("lmstfy: a timer member of %d bytes: %w", len(member), err)
	}
	return m, nil
}

// ParseElement reads an element of a list. It takes nothing that Append would not have written;
// what the id consists of it does not ask.
func ParseElement(element []byte) (Element, error) {
	r := reader{rest: element}
	e := Element{Tries: r.number("tries"), ID: r.text("id")}
	if err := r.checkEnd(); err != nil {
		return Element{}, fmt.Errorf("lmstfy: a list element of %d bytes: %w", len(element), err)
	}
	return e, nil
}

func fits(what, text string) error {
	switch {
	case text == "":
		return fmt.Errorf("the %s is empty", what)
	case len(text) > math.MaxUint16:
		return fmt.Errorf("the %s has %d bytes, at most %d", what, len(text), math.MaxUint16)
	}
	return nil
}

func appendText(b []byte, text string) []byte {
	return append(binary.LittleEndian.AppendUint16(b, uint16(len(text))), text...)
}

// A reader takes a layout apart from the front. After the first error, which it keeps, all that it
// reads is zero.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) number(what string) uint16 {
	if r.err == nil && len(r.rest) < 2 {
		r.err = fmt.Errorf("%d bytes are left for the 2 of the %s", len(r.rest), what)
	}
	if r.err != nil {
		return 0
	}
	n := binary.LittleEndian.Uint16(r.rest)
	r.rest = r.rest[2:]
	return n
}

func (r *reader) text(what string) string {
	n := int(r.number("length of the " + what))
	switch {
	case r.err != nil:
		return ""
	case n == 0:
		r.err = fmt.Errorf("the %s is empty", what)
		return ""
	case n > len(r.rest):
		r.err = fmt.Errorf("the %s is to have %d bytes, %d are left", what, n, len(r.rest))
		return ""
	}
	text := string(r.rest[:n])
	r.rest = r.rest[n:]
	return text
}

func (r *reader) checkEnd() error {
	if r.err == nil && len(r.rest) > 0 {
		r.err = fmt.Errorf("%d bytes follow its end", len(r.rest))
	}
	return r.err
}
