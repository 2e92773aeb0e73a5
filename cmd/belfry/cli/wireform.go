package cli

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/wire"

	"google.golang.org/protobuf/proto"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// parseDuration reads a duration in the forms that the server reads.
func parseDuration(text string) (time.Duration, error) { return wire.ParseDuration(text) }

// KeyRateValue is a flag that takes a rate, such as 10/1m.
type KeyRateValue struct{ Proto *belfryv1.KeyRate }

func (f *KeyRateValue) String() string {
	if f.Proto == nil {
		return ""
	}
	return wire.FormatKeyRate(f.Proto)
}

// Type names the value in the help.
func (f *KeyRateValue) Type() string { return "count/period" }

// Set reads a value.
func (f *KeyRateValue) Set(text string) (err error) {
	f.Proto, err = wire.ParseKeyRate(text)
	return err
}

// EncodeJSON returns a message as the server would write it, without the newline.
func EncodeJSON(message proto.Message) ([]byte, error) {
	text, err := codec.JSON().Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	return bytes.TrimSuffix(text, []byte("\n")), nil
}

// DecodeJSON reads a message in the forms that the server reads. An unknown field is an error that
// names the nearest.
func DecodeJSON(text []byte, message proto.Message) error {
	return codec.JSON().Unmarshal(text, message)
}

// StateOf returns the state that a word names.
func StateOf(word string) belfryv1.JobState {
	return belfryv1.JobState(belfryv1.JobState_value["JOB_STATE_"+strings.ToUpper(word)])
}
