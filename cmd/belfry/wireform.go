package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// parseDuration reads a duration in the forms that the server reads: "300s", "5m", "1h30m" or a number of seconds.
func parseDuration(text string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return time.Duration(seconds * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New(`want a duration such as "300s", "5m", "1h30m" or a number of seconds`)
	}
	return d, nil
}

// encodeJSON returns a message as the server would write it.
func encodeJSON(message proto.Message) ([]byte, error) {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	return compact.Bytes(), nil
}

// decodeJSON reads a message in the forms that the server reads. An unknown field is an error.
func decodeJSON(text []byte, message proto.Message) error {
	return protojson.Unmarshal(text, message)
}
