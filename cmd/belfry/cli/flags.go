package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Duration is a flag that takes a duration in any form the server takes.
type Duration struct {
	value *time.Duration
	// text is what the help shows as the default.
	text string
}

// NewDuration returns a flag for value; text is the default that the help shows.
func NewDuration(value *time.Duration, text string) *Duration {
	return &Duration{value: value, text: text}
}

func (f *Duration) String() string { return f.text }

// Type names the value in the help.
func (f *Duration) Type() string { return "duration" }

// Set reads a value.
func (f *Duration) Set(text string) error {
	d, err := parseDuration(text)
	if err != nil {
		return err
	}
	*f.value, f.text = d, text
	return nil
}

// OptionalDuration is a duration flag that knows whether it was given.
type OptionalDuration struct {
	Proto *durationpb.Duration
	// least and most bound it where a command knows the server's limits, which within says in words;
	// most 0 is no bound.
	least, most time.Duration
	within      string
}

func (f *OptionalDuration) String() string {
	if f.Proto == nil {
		return ""
	}
	return f.Proto.AsDuration().String()
}

// Type names the value in the help.
func (f *OptionalDuration) Type() string { return "duration" }

// Set reads a value.
func (f *OptionalDuration) Set(text string) error {
	d, err := parseDuration(text)
	switch {
	case f.most == 0:
	case err != nil:
		return fmt.Errorf("%w, of %s", err, f.within)
	case d < f.least || d > f.most:
		return fmt.Errorf("which is out of range: want %s", f.within)
	}
	if err != nil {
		return err
	}
	f.Proto = durationpb.New(d)
	return nil
}

// BoundedDuration returns a flag that refuses what is not from least to most; within says that in
// words.
func BoundedDuration(least, most time.Duration, within string) *OptionalDuration {
	return &OptionalDuration{least: least, most: most, within: within}
}

// DurationList is a flag that takes durations with commas between them.
type DurationList struct{ Protos []*durationpb.Duration }

func (f *DurationList) String() string {
	var texts []string
	for _, d := range f.Protos {
		texts = append(texts, d.AsDuration().String())
	}
	return strings.Join(texts, ",")
}

// Type names the value in the help.
func (f *DurationList) Type() string { return "durations" }

// Set reads a value.
func (f *DurationList) Set(text string) error {
	f.Protos = nil
	for part := range strings.SplitSeq(text, ",") {
		d, err := parseDuration(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		f.Protos = append(f.Protos, durationpb.New(d))
	}
	return nil
}

// MomentValue is a flag that takes a time as RFC 3339 writes it.
type MomentValue struct{ Proto *timestamppb.Timestamp }

func (f *MomentValue) String() string {
	if f.Proto == nil {
		return ""
	}
	return f.Proto.AsTime().Format(time.RFC3339Nano)
}

// Type names the value in the help.
func (f *MomentValue) Type() string { return "time" }

// Set reads a value.
func (f *MomentValue) Set(text string) error {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return errors.New(`want a time such as "2030-01-31T09:00:00Z"`)
	}
	f.Proto = timestamppb.New(t)
	return nil
}

// ChoiceValue is a flag that takes one of a few words.
type ChoiceValue struct {
	value *string
	words []string
}

// Choice returns a choice; the first word is its default.
func Choice(value *string, words ...string) *ChoiceValue {
	*value = words[0]
	return &ChoiceValue{value: value, words: words}
}

func (f *ChoiceValue) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

// Type names the value in the help.
func (f *ChoiceValue) Type() string { return "word" }

// Set reads a value.
func (f *ChoiceValue) Set(text string) error {
	if !slices.Contains(f.words, text) {
		return fmt.Errorf("want one of %s%s", strings.Join(f.words, ", "), DidYouMean(text, f.words))
	}
	*f.value = text
	return nil
}

// CountValue is a flag that takes a whole number that is not below a least one.
type CountValue[T int | uint32 | uint64] struct {
	value *T
	least T
}

// Count returns a flag for value, which is not below least and has a default.
func Count[T int | uint32 | uint64](value *T, least, byDefault T) *CountValue[T] {
	*value = byDefault
	return &CountValue[T]{value: value, least: least}
}

func (f *CountValue[T]) String() string {
	if f.value == nil {
		return ""
	}
	return fmt.Sprint(*f.value)
}

// Type names the value in the help.
func (f *CountValue[T]) Type() string { return "number" }

// Set reads a value.
func (f *CountValue[T]) Set(text string) error {
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil || n < int64(f.least) || int64(T(n)) != n {
		return fmt.Errorf("want a whole number, %d or more", f.least)
	}
	*f.value = T(n)
	return nil
}

// SizeValue is a flag that takes a number of bytes with a unit.
type SizeValue struct {
	Bytes uint64
	Text  string
}

func (f *SizeValue) String() string { return f.Text }

// Type names the value in the help.
func (f *SizeValue) Type() string { return "size" }

// Set reads a value.
func (f *SizeValue) Set(text string) error {
	bytes, ok := parseSize(text)
	if !ok {
		return errors.New("want a size such as 300MiB, 2GiB or 1.5GiB")
	}
	f.Bytes, f.Text = bytes, text
	return nil
}

// parseSize reads a size with a unit, as Docker ("300m"), Kubernetes ("2Gi") and people ("2 GiB")
// write it. Without a unit it is bytes. Decimal units end with B alone.
func parseSize(text string) (bytes uint64, ok bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	digits := strings.TrimRight(text, "kmgtib ")
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !(n >= 0) || strings.ContainsAny(digits, "xpen_+-") {
		return 0, false
	}
	unit := strings.TrimSpace(text[len(digits):])
	factor := 1.0
	if unit != "" && unit != "b" {
		power := strings.IndexByte("kmgt", unit[0]) + 1
		base := 1024.0
		switch unit[1:] {
		case "", "i", "ib":
		case "b":
			base = 1000
		default:
			power = 0
		}
		if power == 0 {
			return 0, false
		}
		factor = math.Pow(base, float64(power))
	}
	if n *= factor; n > 1<<60 {
		return 0, false
	}
	return uint64(n), true
}

// valueError says what is wrong with the value of a flag: what it is, and what is wanted. The
// caller names the flag, the variable or the line.
func valueError(err error) string {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err.Error()
	}
	wanted := invalid.Unwrap().Error()
	if number, ok := errors.AsType[*strconv.NumError](err); ok {
		wanted = "want " + wantedOf(invalid.GetFlag().Value.Type())
		if errors.Is(number, strconv.ErrRange) {
			wanted += "; it is out of range"
		}
	}
	return fmt.Sprintf("have %q, %s", invalid.GetValue(), wanted)
}

// wantedOf describes the values of one of the types of flags that the library has.
func wantedOf(flagType string) string {
	switch flagType {
	case "bool":
		return "true or false"
	case "uint32":
		return fmt.Sprintf("a whole number, 0 to %d", uint32(math.MaxUint32))
	case "uint64":
		return "a whole number, 0 or more"
	case "float64":
		return "a number"
	default: // int, int32
		return "a whole number"
	}
}
