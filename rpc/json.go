package rpc

import (
	"time"

	"connectrpc.com/connect"
)

// JSON returns the codec that the server speaks, for programs that show or read its messages: an enum value has no prefix,
// zero values are there, durations are read in every form, and an unknown field is an error that names the nearest.
func JSON() connect.Codec { return jsonCodec{name: codecJSON} }

// ParseDuration reads a duration in every form that a request may have: "300ms", "5m", "1h30m", "7d" or a number of seconds.
func ParseDuration(text string) (time.Duration, error) { return parseDuration(text) }
