// Package stream carries many calls at once over one connection: the sessions of the SDK with
// servers, and the streams between nodes. A stream begins as an HTTP/1.1 request that asks for an
// upgrade. After the answer 101 both sides send frames. Frames of different calls come in any
// order.
//
// A Caller is the side that makes calls; a Dialer keeps one to a server. A Server has the streams
// of the serving side. What a payload means, and how a call fails, is up to the protocol.
package stream
