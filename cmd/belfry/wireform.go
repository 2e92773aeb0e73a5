package main

import (
	"bytes"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/belfrydb/belfry/rpc"
	"github.com/belfrydb/belfry/rpc/wire"
)

// parseDuration reads a duration in the forms that the server reads.
func parseDuration(text string) (time.Duration, error) { return wire.ParseDuration(text) }

// encodeJSON returns a message as the server would write it, without the newline.
func encodeJSON(message proto.Message) ([]byte, error) {
	text, err := rpc.JSON().Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	return bytes.TrimSuffix(text, []byte("\n")), nil
}

// decodeJSON reads a message in the forms that the server reads. An unknown field is an error that names the nearest.
func decodeJSON(text []byte, message proto.Message) error {
	return rpc.JSON().Unmarshal(text, message)
}
