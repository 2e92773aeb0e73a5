// Package form reads what a person typed into messages of the API. It sends what the person changed
// and nothing else, and its errors name the field.
package form

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/rpc/wire"
)

// Error says what is wrong with a field. Nothing was sent.
type Error struct {
	// Field is the name of the input; empty if the form as a whole is wrong.
	Field string
	// Text says what is wrong, and which limit was broken.
	Text string
}

// Error returns the field, if there is one, and the text.
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Text
	}
	return e.Field + ": " + e.Text
}

// Errorf returns an error about a field.
func Errorf(field, format string, args ...any) error {
	return &Error{Field: field, Text: fmt.Sprintf(format, args...)}
}

// Values returns the text of an input, and "" for one that the form does not have.
type Values func(name string) string

// text returns a value without the blanks around it.
func (v Values) text(name string) string { return strings.TrimSpace(v(name)) }

// CheckText returns an error about the first of the values, by their names, that is not UTF-8. No call
// takes such a text, and no page shows it.
func CheckText(all url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !utf8.ValidString(name) {
			return Errorf("", "the name %q of an input is not valid UTF-8", name)
		}
		for _, text := range all[name] {
			if !utf8.ValidString(text) {
				return Errorf(name, "not valid UTF-8")
			}
		}
	}
	return nil
}

// Before is the name of the hidden input that has the value which an input had when the page was
// shown. An input that still has it was not changed.
func Before(name string) string { return "before." + name }

// changed reports whether a person changed an input.
func (v Values) changed(name string) bool { return v.text(name) != v.text(Before(name)) }

// Duration reads a duration as the API does. The error names the forms that there are.
func Duration(field, text string) (*durationpb.Duration, error) {
	d, err := wire.ParseDuration(text)
	if err != nil {
		return nil, Errorf(field, "%q is no duration: %s", text, err)
	}
	return durationpb.New(d), nil
}

// durations reads durations with commas between them.
func durations(field, text string) ([]*durationpb.Duration, error) {
	var all []*durationpb.Duration
	for part := range strings.SplitSeq(text, ",") {
		d, err := Duration(field, strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// Number reads a whole number from least to most.
func Number(field, text string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, Errorf(field, "%q is no whole number from %d to %d", text, least, most)
	}
	return n, nil
}

// Count reads a whole number from 0 to most.
func Count(field, text string, most uint64) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > most {
		return 0, Errorf(field, "%q is no whole number from 0 to %d", text, most)
	}
	return n, nil
}

// Time reads a time. One without an offset is in zone.
func Time(field, text string, zone *time.Location) (*timestamppb.Timestamp, error) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return timestamppb.New(at), nil
	}
	for _, form := range []string{
		"2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04", time.DateOnly,
	} {
		if at, err := time.ParseInLocation(form, text, zone); err == nil {
			return timestamppb.New(at), nil
		}
	}
	return nil, Errorf(field, "%q is no time such as 2026-01-31T15:04:05Z or, in %s, 2026-01-31 15:04", text, zone)
}

// Moment reads a duration from now, or else a time. One of the two is returned.
func Moment(field, text string, zone *time.Location) (*durationpb.Duration, *timestamppb.Timestamp, error) {
	if d, err := wire.ParseDuration(text); err == nil {
		return durationpb.New(d), nil, nil
	}
	at, err := Time(field, text, zone)
	if err != nil {
		return nil, nil, Errorf(field, "%q is neither a duration such as 90s, 30m or 2h nor a time such as "+
			"2026-01-31T15:04:05Z or, in %s, 2026-01-31 15:04", text, zone)
	}
	return nil, at, nil
}

// Confirmed returns an error unless the name of what is to be removed was typed.
func Confirmed(in Values, field, name, act string) error {
	if in(field) != name {
		return Errorf(field, "type %s to %s; nothing was done", name, act)
	}
	return nil
}
