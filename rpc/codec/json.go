package codec

import "connectrpc.com/connect"

// JSON returns the server's JSON codec, for programs that show or read its messages. It writes enum
// values without a prefix, and writes zero values. It reads durations in every form. An unknown
// field is an error that names the nearest known field.
func JSON() connect.Codec { return NewJSON(NameJSON, nil) }
